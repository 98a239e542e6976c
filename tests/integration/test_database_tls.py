"""`doctor` over a real encrypted connection: what it says is what the connection is (trap 30, issue 4 section 4)."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from db import server
from db.server import Link
from db.unit_of_work import UnitOfWork, open_pool
from tests.acceptance.installed import installed
from tests.conftest import Database


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that nobody else trusts, with its key beside it."""
    made = tmp_path / "server.crt"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(made.with_suffix(".key")), "-out", str(made)]
    openssl = installed("openssl", package="openssl")
    request = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name, *files]
    subprocess.run(request, check=True, capture_output=True)
    return made


@pytest.fixture
async def encrypted(database: Database, certificate: Path) -> AsyncIterator[str]:
    """The database's URL behind a front that speaks TLS as PostgreSQL does: the local stack's build cannot."""
    parts, context = urlsplit(database.worker), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # the client asks for TLS
        writer.write(b"S")
        await writer.start_tls(context)
        behind, before = await asyncio.open_connection(parts.hostname, parts.port)
        await asyncio.wait([asyncio.create_task(_pass(reader, before)), asyncio.create_task(_pass(behind, writer))])

    front = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{front.sockets[0].getsockname()[1]}"
    yield parts._replace(netloc=f"{parts.username}@{address}", query="").geturl()
    front.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def _link(url: str) -> Link:
    pool = await open_pool(url, size=1)
    async with UnitOfWork(pool) as connection:
        found = server.link(connection)
    await pool.close()
    return found


async def test_how_each_mode_is_protected(database: Database, encrypted: str, certificate: Path) -> None:
    """Trap 30: disable is in the clear, require encrypts without looking, verify-ca and verify-full verify the server."""
    trust = f"&sslrootcert={certificate}"
    found = [
        await _link(database.worker),
        await _link(f"{encrypted}?sslmode=require"),
        await _link(f"{encrypted}?sslmode=verify-ca{trust}"),
        await _link(f"{encrypted}?sslmode=verify-full{trust}"),
    ]
    assert [(link.encrypted, link.verified, link.name_checked, link.local) for link in found] == [
        (False, False, False, True),
        (True, False, False, True),
        (True, True, False, True),
        (True, True, True, True),
    ]
