"""A wire between a worker and one server that can be cut, frozen, and mended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """Forwards connections to `target`, `host:port`, as long as it is open; `address` is its own."""

    target: str
    address: str = ""
    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _wires: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> None:
        """Take connections, at the same address as before if there was one."""
        host, _, port = (self.address or "127.0.0.1:0").rpartition(":")
        self.flowing.set()
        self._server = await asyncio.start_server(self._connect, host, int(port))
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())

    def freeze(self) -> None:
        """Keep every connection and let nothing pass, as a server does that hangs."""
        self.flowing.clear()

    async def cut(self) -> None:
        """End every connection and take no new one."""
        if self._server is not None:
            self._server.close()
        for wire in self._wires:
            wire.cancel()
        await asyncio.gather(*self._wires, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            wire = asyncio.create_task(self._forward(source, sink))
            self._wires.add(wire)
            wire.add_done_callback(self._wires.discard)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            try:
                while data := await source.read(65_536):
                    await self.flowing.wait()
                    sink.write(data)
            finally:
                sink.close()


@asynccontextmanager
async def a_proxy(target: str) -> AsyncIterator[Proxy]:
    """An open proxy, cut at the end."""
    proxy = Proxy(target)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.cut()
