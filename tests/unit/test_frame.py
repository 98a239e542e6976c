"""How the commands end when a server says no: one line, never a traceback; and what is no server's fault is none (issue 4)."""

import asyncio
from typing import Any, NoReturn

import pytest
import typer
from temporalio.client import WorkflowQueryFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import TemporalError

import connections
from connections import TemporalUnreachableError
from operators import frame
from operators.loading import PLACES, Commands


async def _raising(error: Exception) -> NoReturn:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        TemporalUnreachableError("no answer"),
        WorkflowQueryFailedError("no such query\nknown: none"),
        WorkflowUpdateRPCTimeoutOrCancelledError(),
        TemporalError("any other"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_temporal_says_is_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4 section 4, never a traceback: every error of the SDK is one line with the address, and exit code 1."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example:7233")
    monkeypatch.delenv("BOOKING_EXPIRATION_OPERATOR_DATABASE_URL", raising=False)  # not every command needs it
    with pytest.raises(typer.Exit) as ended:
        frame.run(_raising(error))
    said = capsys.readouterr().err
    assert (ended.value.exit_code, said.count("\n"), said.startswith("Temporal at temporal.example:7233: ")) == (1, 1, True), said


def test_our_own_mistakes_are_not_temporals() -> None:
    """Issue 4: a `RuntimeError` that is none of the connection's is a bug, and is not told as a server's."""
    with pytest.raises(RuntimeError, match="a bug"):
        frame.run(_raising(RuntimeError("a bug")))


class Broken:
    """A pool whose other side is gone."""

    ended = False

    async def close(self) -> None:
        """As the driver does when the connection is gone already."""
        raise BrokenPipeError

    def terminate(self) -> None:
        """Noted."""
        self.ended = True


def test_a_pool_is_closed_although_the_server_is_gone() -> None:
    """Issue 4: a connection that broke while it was being closed is no error of the command's; the pool is ended."""
    pool: Any = Broken()
    asyncio.run(connections.close(pool))
    assert pool.ended


@pytest.mark.parametrize("name", PLACES)
def test_the_help_says_what_the_command_says(name: str) -> None:
    """The help is quick as it imports no command; its line is the first one of the command's own help."""
    command = Commands()[name]
    assert PLACES[name].line == (command.short_help or command.help).strip().partition("\n")[0]
