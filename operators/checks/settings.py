"""`doctor`: are the settings whole, and is what they say about encryption enough?"""

from ipaddress import ip_address
from typing import Any, Final

from db.server import link
from db.unit_of_work import Pool, UnitOfWork
from operators.checks.finding import Finding, NotLookedAtError, State
from operators.checks.places import Place, Places
from operators.sources import Loaded

CORRECT: Final = "correct the variable; docs/configuration.md has them all"
KAFKA_PROTOCOL: Final = "BOOKING_EXPIRATION_KAFKA_SECURITY_PROTOCOL"


async def operators(places: Places) -> Finding:
    """The command's own settings."""
    return _judged("settings", places.operator, "what the commands need is set")


async def workers(places: Places) -> Finding:
    """The worker's, as far as they are given here: elsewhere it has them, and here there may be none."""
    if places.push.mistakes:
        return _judged("worker's settings", places.push, "")
    if places.worker.unset:
        unset = ", ".join(line.partition(":")[0] for line in places.worker.mistakes)
        todo = "to have them checked too, ask with the worker's variables"
        return Finding("worker's settings", State.WARN, f"not given here: {unset}", todo)
    return _judged("worker's settings", places.worker, "all that a worker needs is set")


async def temporals(places: Places) -> Finding:
    """Temporal's, from its profile file and variables (D21)."""
    found = places.temporal.value
    what = f"{found['target_host']}, namespace {found.get('namespace', 'default')}" if found else ""
    return _judged("Temporal's settings", places.temporal, what)


def _judged(check: str, settings: Loaded[Any], well: str) -> Finding:
    if settings.mistakes:
        return Finding(check, State.FAIL, "; ".join(settings.mistakes), CORRECT)
    return Finding(check, State.OK, well)


async def database_tls(place: Place[Pool], check: str) -> Finding:
    """Encryption of a connection to PostgreSQL (trap 30)."""
    async with UnitOfWork(await place.needed()) as connection:
        found = link(connection)
    verified = found.verified and found.name_checked
    return _tls(check, "the database's URL", encrypted=found.encrypted, verified=verified, local=found.local)


async def temporal_tls(places: Places) -> Finding:
    """Encryption to Temporal: by TLS, or by an API key, which brings it with it; the server is verified then."""
    await places.client.needed()
    found = places.temporal.value or {}
    encrypted = bool(found.get("tls")) or (found.get("tls") is None and bool(found.get("api_key")))
    host = str(found.get("target_host", ""))
    return _tls("Temporal's TLS", "TEMPORAL_TLS", encrypted=encrypted, verified=encrypted, local=_is_local(host))


async def kafka_tls(places: Places) -> Finding:
    """Encryption to the brokers; with it they are always verified."""
    await places.topic.needed()
    if (found := places.kafka.value) is None:
        raise NotLookedAtError("how to reach Kafka is not set here")
    encrypted = "SSL" in found.kafka_security_protocol
    local = all(_is_local(host) for host in found.kafka_bootstrap_servers.split(","))
    return _tls("Kafka's TLS", KAFKA_PROTOCOL, encrypted=encrypted, verified=encrypted, local=local)


def _tls(check: str, variable: str, *, encrypted: bool, verified: bool, local: bool) -> Finding:
    advice = f"see {variable} under Verified connections in docs/configuration.md"
    if verified:
        return Finding(check, State.OK, "encrypted, the server is verified")
    what = "encrypted, but the server is not verified" if encrypted else "not encrypted"
    if local:
        return Finding(check, State.OK, f"{what}; it does not leave this machine")
    return Finding(check, State.WARN, what, advice)


def _is_local(address: str) -> bool:
    host = address.rpartition(":")[0] if address.count(":") == 1 or address.startswith("[") else address
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
