"""The two steps that make a database ours: an administrator's bootstrap, then the owner's migrations (D18)."""

import asyncio
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

import asyncpg

from devstack.errors import StackError

_ROOT: Final = Path(__file__).resolve().parent.parent
_MIGRATIONS: Final = _ROOT / "migrations"
_CHESSBOARD: Final = _ROOT / "chessboard" / "migrations"
"""The consumer's own schema, which knows nothing of ours: without that folder there is none."""


def prepare(admin_url: str, owner_url: str) -> None:
    """Bootstrap as the administrator, migrate as the owner; both may have happened before."""
    asyncio.run(bootstrap(admin_url))
    migrate(owner_url)


async def bootstrap(admin_url: str) -> None:
    """Run `migrations/bootstrap.sql` in the database of this URL."""
    try:
        connection = await asyncpg.connect(admin_url, timeout=10)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StackError(f"the administrator's database cannot be reached: {error}") from error
    try:
        await connection.execute((_MIGRATIONS / "bootstrap.sql").read_text())
    finally:
        await connection.close()


def migrate(owner_url: str) -> None:
    """Apply the migrations that are not applied yet, with dbmate."""
    _migrate(owner_url, _MIGRATIONS, "crm")
    if _CHESSBOARD.is_dir():
        _migrate(owner_url, _CHESSBOARD, "chessboard")


def _migrate(owner_url: str, folder: Path, name: str) -> None:
    command = [program("dbmate"), "--url", owner_url, "--migrations-dir", str(folder)]
    command += ["--migrations-table", f"{name}.schema_migrations", "--no-dump-schema", "migrate"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(f"the migrations of {name} failed: {(done.stderr or done.stdout).strip()}")


def program(name: str) -> str:
    """A program that a wheel put beside this Python, else on the PATH. Raises `StackError` when it is not installed."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        raise StackError(f"the program {name} is missing: run `make stack`, which installs it")
    return found
