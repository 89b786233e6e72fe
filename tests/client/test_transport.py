"""What a client writes on a connection that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from surecast.client.transport import _Stream


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_is_over_is_an_error_of_the_system_on_every_loop(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def write() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.transport.abort()
        await asyncio.sleep(0.01)
        try:
            await _Stream(reader, writer).write(b"late")
        finally:
            server.close()

    with asyncio.Runner(loop_factory=make_loop) as runner, pytest.raises(ConnectionResetError):
        runner.run(write())
