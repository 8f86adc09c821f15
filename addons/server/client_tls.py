"""The server's side of TLS, by pyOpenSSL on memory buffers.

It is the protocol of the socket, and the transport of what is within.

asyncio's own holds 295 KB a connection, and asks no client for a certificate without having it verified.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from mitmproxy import certs, connection, ctx
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.tls import (
    TlsEstablishedClientHook,
    TlsFailedClientHook,
    TlsStartClientHook,
    parse_client_hello,
)
from mitmproxy.tls import TlsData
from OpenSSL import SSL

from addons.telemetry import metrics

FIRST_BYTE = 0x16
"""A client begins so that wants TLS: a record of its handshake (RFC 8446, 5.1)."""
RECORD = 16 * 1024
"""Bytes that OpenSSL gets at once: the most of one record. A connection keeps a buffer for the largest that it was
given."""
SEALING = 512
"""Bytes for which OpenSSL has room beyond the plain text: more than any cipher adds to a record."""
MAX_HANDSHAKE = 16 * 1024
"""Bytes of a client's TLS handshake before its end. One with a certificate, and a key share that resists quantum
computers, has some 5,000."""
LONGEST_FAULT = 200
"""Characters of what the addons are told of a handshake that failed."""
LEFT = "closed"
"""The fault of a client that leaves in the middle: many of those that do not trust a certificate say nothing."""


class TlsSocket(asyncio.Transport, asyncio.Protocol):
    """Shakes hands, and then gives what comes to the protocol that `speak` makes."""

    def __init__(
        self,
        client: connection.Client,
        call_hook: Callable[[Any, Callable[[], None]], None],
        speak: Callable[[], asyncio.Protocol],
    ) -> None:
        """`call_hook` calls its second argument when the addons have handled the first."""
        super().__init__()
        self._client, self._call_hook, self._speak = client, call_hook, speak
        self._data = TlsData(client, Context(client, ctx.options))
        self._tls: SSL.Connection | None = None
        self._hello: bytearray | None = bytearray()
        """The first message as it comes; None when it is whole."""
        self._socket: asyncio.Transport | None = None
        self._protocol: asyncio.Protocol | None = None
        self._received = 0
        """Bytes of the handshake."""
        self._is_paused = False

    # -- the transport of what is within

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default) if self._socket is not None else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._socket is not None:
            self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size() if self._socket is not None else 0

    def is_closing(self) -> bool:
        return self._socket is None or self._socket.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._tls is None or self._socket is None:
            return
        sealed = []
        with contextlib.suppress(SSL.ZeroReturnError, SSL.SysCallError):  # the end of the connection follows
            for at in range(0, len(data), RECORD):
                self._tls.sendall(data[at : at + RECORD])
                sealed.append(_sealed(self._tls))
        self._socket.write(b"".join(sealed))

    def close(self) -> None:
        if self._socket is None or self._socket.is_closing():
            return
        if self._tls is not None and self._protocol is not None:
            with contextlib.suppress(SSL.Error):
                self._tls.shutdown()
            self._socket.write(_sealed(self._tls))
        self._socket.close()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._socket is not None:
            self._socket.resume_reading()
            asyncio.get_running_loop().call_soon(self._decrypt)

    # -- the protocol of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self._client.tls = True

    def data_received(self, data: bytes) -> None:
        if self._protocol is None:
            self._received += len(data)
        if self._hello is not None:
            self._greet(self._hello, data)
            return
        assert self._tls is not None
        self._tls.bio_write(data)
        if self._protocol is None:
            self._shake_hands(self._tls)
        self._decrypt()

    def eof_received(self) -> bool:
        self._leave()
        return False

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._leave()
        protocol, self._socket, self._protocol = self._protocol, None, None
        if protocol is not None:
            protocol.connection_lost(error)

    def _greet(self, hello: bytearray, data: bytes) -> None:
        """Read whom the client calls: the certificate depends on it."""
        hello += data
        try:
            parsed = parse_client_hello(bytes(hello))
        except ValueError:
            self._fail(f"Cannot parse ClientHello: {hello.hex()}")
            return
        if parsed is None:
            self._bound()
            return
        self._hello = None
        self._client.sni = parsed.sni
        self._client.alpn_offers = parsed.alpn_protocols
        self._call_hook(TlsStartClientHook(self._data), lambda: self._start(bytes(hello)))

    def _start(self, hello: bytes) -> None:
        self._tls = self._data.ssl_conn
        if self._tls is None:
            self._fail("no addon has a certificate")
        else:
            self._tls.bio_write(hello)
            self._shake_hands(self._tls)
            self._decrypt()

    def _bound(self) -> None:
        if self._received > MAX_HANDSHAKE:
            metrics.CONNECTIONS_REFUSED.labels("handshake").inc()
            self._fail(f"it has more than {MAX_HANDSHAKE} bytes")

    def _shake_hands(self, tls: SSL.Connection) -> None:
        if self._socket is None:
            return
        try:
            tls.do_handshake()
        except SSL.WantReadError:
            self._socket.write(_sealed(tls))
            self._bound()
            return
        except SSL.Error as error:
            self._socket.write(_sealed(tls))  # the alert says to the client what is wrong
            self._fail(_reason(error))
            return
        self._socket.write(_sealed(tls))
        self._note(tls)
        self._call_hook(TlsEstablishedClientHook(self._data), self._begin)

    def _note(self, tls: SSL.Connection) -> None:
        """Show people what was agreed on."""
        client = self._client
        client.timestamp_tls_setup = time.time()
        client.alpn = tls.get_alpn_proto_negotiated()
        client.cipher = tls.get_cipher_name()
        client.tls_version = tls.get_protocol_version_name()  # type: ignore[assignment]  # it is one of these
        if (shown := tls.get_peer_certificate()) is not None:
            client.certificate_list = [certs.Cert.from_pyopenssl(shown)]

    def _begin(self) -> None:
        if self._socket is None:
            return
        self._protocol = self._speak()
        self._protocol.connection_made(self)
        self._decrypt()

    def _leave(self) -> None:
        """Note that the client has gone: one that has seen a certificate may not trust it."""
        if self._tls is not None and self._client.timestamp_tls_setup is None:
            self._fail(LEFT)

    def _fail(self, why: str) -> None:
        if self._client.error is None:
            self._client.error = why[:LONGEST_FAULT]
            self._call_hook(TlsFailedClientHook(self._data), self.close)

    def _decrypt(self) -> None:
        if self._tls is None or self._protocol is None or self._socket is None:
            return
        has_ended, protocol = False, self._protocol
        while not self._is_paused:
            try:
                data = self._tls.recv(RECORD)
            except SSL.WantReadError:
                break
            except SSL.Error:
                has_ended = True
                break
            protocol.data_received(data)
        if has_ended:
            protocol.eof_received()
            self.close()


def _sealed(tls: SSL.Connection) -> bytes:
    """What is for the client."""
    parts = []
    with contextlib.suppress(SSL.WantReadError):
        while True:
            parts.append(tls.bio_read(RECORD + SEALING))
            if len(parts[-1]) < RECORD + SEALING:  # a shorter read is the last one
                break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _reason(error: SSL.Error) -> str:
    """What is wrong, in OpenSSL's words."""
    errors = error.args[0] if error.args else ()
    return str(errors[-1][-1]) if isinstance(errors, list) and errors else "the connection was closed"
