"""All bytes that the layers write for one event go out in one write, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.proxy.handlers.gathered_writes import GatheringWriter
from tests.addons.support.proxied import ANSWER, FROM_NODE, Proxy, Raw

REQUEST = b"GET http://hub/api HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n"


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with taddons.context(Proxyserver()) as context:
        yield Proxy(context.options, Raw(ANSWER), Raw(FROM_NODE))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that anybody writes to a socket, piece by piece."""
    pieces: list[bytes] = []
    write = asyncio.StreamWriter.write

    def note(self: asyncio.StreamWriter, data: bytes) -> None:
        pieces.append(bytes(data))
        write(self, data)

    monkeypatch.setattr(asyncio.StreamWriter, "write", note)
    return pieces


async def test_a_head_and_its_body_are_sent_at_once(proxy: Proxy[Raw], sent: list[bytes]) -> None:
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(REQUEST)
    assert answer.lower() == ANSWER.lower()
    assert answer in sent


async def test_mitmproxy_itself_sends_them_one_after_the_other(
    proxy: Proxy[Raw], sent: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When this fails, writes need not be gathered any longer."""
    monkeypatch.setattr(GatheringWriter, "write", lambda self, data: self._writer.write(data))
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(REQUEST)
    head, _, body = answer.rpartition(b"\r\n\r\n")
    assert {head + b"\r\n\r\n", body} <= set(sent)


class Written:
    """Notes what a stream writer is asked to do."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def write_eof(self) -> None:
        self.done.append("eof")

    def close(self) -> None:
        self.closing = True
        self.done.append("close")


@pytest.mark.parametrize(("end", "last"), [("close", "close"), ("write_eof", "eof")])
def test_what_is_written_goes_out_before_the_end(end: str, last: str) -> None:
    raw, written = Written(), list[GatheringWriter]()
    writer = GatheringWriter(raw, written)  # type: ignore[arg-type]  # it has all that is called
    writer.write(b"a")
    writer.write(b"b")
    assert (raw.done, written) == ([], [writer])
    getattr(writer, end)()
    writer.flush()
    assert raw.done == [b"ab", last]
    assert writer.is_closing() is raw.closing


def test_nothing_is_written_to_what_is_closed() -> None:
    raw = Written()
    writer = GatheringWriter(raw, [])  # type: ignore[arg-type]  # it has all that is called
    writer.write(b"a")
    raw.close()
    writer.flush()
    assert raw.done == ["close"]
