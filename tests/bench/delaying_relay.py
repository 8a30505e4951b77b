"""A relay that makes every byte late and none rare: what a way of some length does to a connection, in a process of its own.

The one rule: it delays and does not throttle. What comes is read at once and goes out in its order when its time has come, however much
there is of it on the way.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Final

from tests.bench.processes import running

_PIECE: Final = 256 * 1024


def delaying(port: int, round_trip_s: float) -> AbstractContextManager[int]:
    """The port of a running relay to a port of this machine."""
    return running(_run, port, round_trip_s / 2)


def _run(port: int, delay: float, ready: Connection) -> None:
    asyncio.run(_relay(port, delay, ready))


async def _relay(port: int, delay: float, ready: Connection) -> None:
    async def connect(from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port, limit=_PIECE)
        await asyncio.gather(_pass_on(from_client, to_server, delay), _pass_on(from_server, to_client, delay))

    server = await asyncio.start_server(connect, "127.0.0.1", 0, limit=_PIECE)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """All that comes, each piece when it is due; an empty one is the end."""
    clock = asyncio.get_running_loop().time
    late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        piece = b"the first"
        while piece:
            try:
                piece = await reader.read(_PIECE)
            except ConnectionError:
                piece = b""
            late.put_nowait((clock() + delay, piece))

    async def send() -> None:
        while True:
            due, piece = await late.get()
            await asyncio.sleep(due - clock())
            if not piece:
                writer.close()
                return
            # Whether the reader keeps up is for the two ends to find out, not for the way between them.
            writer.write(piece)

    await asyncio.gather(read(), send())
