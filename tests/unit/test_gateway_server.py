"""The socket on which the gateway listens."""

import asyncio
import socket

import pytest

from gateway.server import listening
from tickets_batch.errors import UserError


def test_a_small_piece_of_an_answer_is_sent_at_once() -> None:
    async def scene() -> None:
        connected: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await connected.put(writer)

        with listening("127.0.0.1:0") as server_socket:
            async with await asyncio.start_server(accept, sock=server_socket):
                _, caller = await asyncio.open_connection(*server_socket.getsockname())
                writer = await connected.get()
                assert writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                for one in (caller, writer):
                    one.close()
                    await one.wait_closed()

    asyncio.run(scene())


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "no.such.host.invalid:0"])
def test_what_is_no_address_is_one_line(listen: str) -> None:
    with pytest.raises(UserError, match=f"cannot listen on {listen}: .*; change gateway.listen"), listening(listen):
        pytest.fail("it listens")
