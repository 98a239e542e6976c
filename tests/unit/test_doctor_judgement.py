"""What `doctor` makes of what it measured, where one machine cannot be all that it must judge (issue 4, section 4)."""

import asyncio
import ssl
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from contracts import topic
from contracts.topic import Found
from db import server
from operators.checks import clocks, finding, kafka, settings
from operators.checks.clocks import DATABASE, TEMPORAL, THIS_MACHINE, WORKER, Offset
from operators.checks.finding import Finding, NotLookedAtError, State


def _topic(**change: Any) -> Found:
    parts: dict[str, Any] = {"partitions": topic.PARTITIONS, "replicas": 3, "in_sync": 3, **change}
    return Found(**{**parts, "configuration": {**topic.CONFIGURATION, **parts.get("configuration", {})}})


@pytest.mark.parametrize(
    ("found", "state", "says"),
    [
        (_topic(), State.OK, "6 partitions, 3 replicas, 2 acknowledge"),
        (_topic(in_sync=2), State.OK, "2 acknowledge"),
        (_topic(in_sync=1), State.FAIL, "min.insync.replicas is 2, and a partition has 1 of 3 replicas in sync"),
        (_topic(replicas=2, in_sync=2), State.WARN, "one broker that is away stops publishing"),
        (_topic(configuration={"min.insync.replicas": "1"}), State.WARN, "on one broker alone"),
        (_topic(partitions=3), State.WARN, "partitions: 3, not 6"),
        (_topic(configuration={"cleanup.policy": "compact,delete"}), State.FAIL, "cleanup.policy is compact,delete"),
        (_topic(configuration={"max.message.bytes": "1000"}), State.WARN, "max.message.bytes: 1000, not 1048588"),
        ("there is no topic t", State.FAIL, "there is no topic t"),
    ],
    ids=["as it should be", "a broker away", "no quorum", "no spare", "one alone", "partitions", "compacted", "small", "none"],
)
def test_the_topic_against_acks_all(found: Found | str, state: State, says: str) -> None:
    """Issue 4, section 4: partitions, retention, and min.insync.replicas against acks=all and the number of replicas."""
    judged = kafka.judged("t", found)
    assert (judged.state, says in judged.what, bool(judged.todo)) == (state, True, state is not State.OK), judged


@pytest.mark.parametrize(
    ("database", "temporal", "state"),
    [
        (0.0, 0.0, State.OK),
        (1.0, 0.5, State.OK),
        (1.2, 0.0, State.WARN),
        (-3.0, 3.0, State.FAIL),
        (5.2, 5.2, State.FAIL),
        (-4.9, 0.0, State.WARN),
    ],
)
def test_clocks_apart(database: float, temporal: float, state: State) -> None:
    """D2: each pair counts, a warning above 1 s, a failure above 5 s."""
    found = [Offset(THIS_MACHINE, 0, 0), Offset(DATABASE, database, 0.01), Offset(TEMPORAL, temporal, 0.01)]
    assert clocks.judged(found, []).state is state


def test_the_workers_clock_counts_too() -> None:
    """D2: a worker that is off is told beside the others; one whose clock nobody knows is said, and is no warning."""
    off = clocks.judged([Offset(THIS_MACHINE, 0, 0), Offset(DATABASE, 0.2, 0.01), Offset(WORKER, -6, 0.01)], [])
    assert (off.state, off.what.endswith("the worker 6.00 s behind this machine")) == (State.FAIL, True)
    unknown = clocks.judged([Offset(THIS_MACHINE, 0, 0), Offset(DATABASE, 0.2, 0.01)], [], "the worker's clock is not known")
    assert (unknown.state, unknown.what.endswith("; the worker's clock is not known"), unknown.todo) == (State.OK, True, "")


def test_a_slow_answer_is_no_difference() -> None:
    """D2: what is within the error of measuring, as over a slow line, is not told as a clock that is off."""
    assert clocks.judged([Offset(THIS_MACHINE, 0, 0), Offset(DATABASE, 2.0, 1.5)], []).state is State.OK
    half = clocks.judged([Offset(THIS_MACHINE, 0, 0), Offset(DATABASE, 0.0, 0.0)], ["Temporal cannot be reached"])
    assert (half.state, half.what.endswith("; Temporal cannot be reached")) == (State.WARN, True)


@pytest.mark.parametrize(
    ("encrypted", "verified", "local", "state", "says"),
    [
        (True, True, False, State.OK, "encrypted, the server is verified"),
        (True, False, False, State.WARN, "encrypted, but the server is not verified"),
        (False, False, False, State.WARN, "not encrypted"),
        (False, False, True, State.OK, "not encrypted; it does not leave this machine"),
    ],
)
def test_tls(*, encrypted: bool, verified: bool, local: bool, state: State, says: str) -> None:
    """Trap 30: every connection says whether it is encrypted and whether the server was verified."""
    judged = settings._tls("x", "X", encrypted=encrypted, verified=verified, local=local)
    assert (judged.state, judged.what) == (state, says)


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize(
    ("context", "peer", "link"),
    [
        (ssl.create_default_context, ("10.0.0.1", 5432), server.Link(True, True, True, False)),
        (_unverified, ("10.0.0.1", 5432), server.Link(True, False, False, False)),
        (None, ("::1", 5432, 0, 0), server.Link(False, False, False, True)),
        (None, "/run/postgresql/.s.PGSQL.5432", server.Link(False, False, False, True)),
    ],
    ids=["verify-full", "require", "loopback", "socket"],
)
def test_how_a_connection_is_protected(context: Callable[[], ssl.SSLContext] | None, peer: Any, link: server.Link) -> None:
    """Trap 30: by the connection's own TLS context, not by what the URL hoped for."""
    secured = SimpleNamespace(context=context()) if context else None
    connection: Any = SimpleNamespace(_transport=SimpleNamespace(get_extra_info={"ssl_object": secured, "peername": peer}.get))
    assert server.link(connection) == link


@pytest.mark.parametrize(
    ("address", "local"),
    [("localhost:7233", True), ("127.0.0.1:9092", True), ("[::1]:7233", True), ("localhost", True), ("t.example:7233", False)],
)
def test_addresses_of_this_machine(address: str, *, local: bool) -> None:
    """Trap 30: what does not leave the machine needs no encryption."""
    assert settings._is_local(address) is local


async def test_a_check_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 4, section 4: it is left alone after its limit, and says so."""
    monkeypatch.setattr(finding, "LIMIT", 0.05)
    hung = await finding.within_limit("x", asyncio.Event().wait())  # type: ignore[arg-type] # it never returns
    assert (hung.state, hung.what) == (State.FAIL, "no answer within 0 s")


async def test_a_check_that_breaks() -> None:
    """Issue 4, section 4: an error nobody thought of is a line too; what was not looked at is no failure."""

    async def broken(error: Exception) -> Finding:
        raise error

    found = [await finding.within_limit("x", broken(error)) for error in (ValueError("why"), NotLookedAtError("it is away"))]
    assert [(each.state, each.what) for each in found] == [
        (State.FAIL, "ValueError: why"),
        (State.WARN, "not looked at: it is away"),
    ]
