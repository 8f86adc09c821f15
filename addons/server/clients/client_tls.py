"""TLS with a client: its ClientHello, the certificate for it, and the details that mitmproxy shows."""

from __future__ import annotations

import asyncio
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

from addons.link.tls_transport import TlsTransport
from addons.telemetry import metrics

TLS_FIRST_BYTE = 0x16
"""The first byte of a TLS handshake record (RFC 8446, 5.1), by which the hub recognizes TLS."""
MAX_HANDSHAKE = 16 * 1024
"""Maximum bytes that a client may send in a TLS handshake. With a certificate and a post-quantum key share it needs
some 5,000.
"""
MAX_ERROR_TEXT = 200
"""Maximum characters of the message about a failed handshake that addons get."""
DISCONNECTED = "closed"
"""The error of a client that disconnects during the handshake. Many clients that distrust a certificate send no
alert.
"""


class TlsSocket(TlsTransport):
    """Performs the handshake, then passes decrypted bytes to the protocol that `make_protocol` returns."""

    def __init__(
        self,
        client: connection.Client,
        call_hook: Callable[[Any, Callable[[], None]], None],
        make_protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        """`call_hook` runs the hook that is its first argument, then calls its second argument."""
        super().__init__()
        self._client, self._call_hook, self._make_protocol = client, call_hook, make_protocol
        self._data = TlsData(client, Context(client, ctx.options))
        self._hello: bytearray | None = bytearray()
        """The received part of the ClientHello; None once it is complete."""
        self._received = 0
        """Bytes received during the handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._client.tls = True

    def data_received(self, data: bytes) -> None:
        if self._is_established:
            super().data_received(data)
            return
        self._received += len(data)
        if self._hello is not None:
            self._read_hello(self._hello, data)
        else:
            super().data_received(data)
        self._check_size()

    def _check_size(self) -> None:
        if self._received > MAX_HANDSHAKE and not self._is_established and self._client.error is None:
            metrics.CONNECTIONS_REFUSED.labels("handshake").inc()
            self._fail(f"it has more than {MAX_HANDSHAKE} bytes")

    def _read_hello(self, hello: bytearray, data: bytes) -> None:
        """Collect and parse the ClientHello: the certificate depends on its server name."""
        hello += data
        try:
            parsed = parse_client_hello(bytes(hello))
        except ValueError:
            self._fail(f"Cannot parse ClientHello: {hello.hex()}")
            return
        if parsed is None:
            return
        self._hello = None
        self._client.sni = parsed.sni
        self._client.alpn_offers = parsed.alpn_protocols
        self._call_hook(TlsStartClientHook(self._data), lambda: self._start_handshake(bytes(hello)))

    def _start_handshake(self, hello: bytes) -> None:
        if self._data.ssl_conn is None:
            self._fail("no addon has a certificate")
        else:
            self.start(self._data.ssl_conn, hello)

    def handshake_done(self, tls: SSL.Connection) -> None:
        """Show the TLS parameters in interfaces, and start to serve HTTP."""
        client = self._client
        client.timestamp_tls_setup = time.time()
        client.alpn = tls.get_alpn_proto_negotiated()
        client.cipher = tls.get_cipher_name()
        client.tls_version = tls.get_protocol_version_name()  # type: ignore[assignment]  # it is one of these
        if (shown := tls.get_peer_certificate()) is not None:
            client.certificate_list = [certs.Cert.from_pyopenssl(shown)]
        self._call_hook(TlsEstablishedClientHook(self._data), self._begin)

    def _begin(self) -> None:
        if self._below is not None:
            self.start_protocol(self._make_protocol())

    def handshake_failed(self, tls: SSL.Connection, why: str) -> None:
        self._fail(why)

    def eof_received(self) -> bool:
        self._leave()
        return super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._leave()
        super().connection_lost(error)

    def _leave(self) -> None:
        """Record that the client left during the handshake: it may distrust the certificate."""
        if self._tls is not None and not self._is_established:
            self._fail(DISCONNECTED)

    def _fail(self, why: str) -> None:
        if self._client.error is None:
            self._client.error = why[:MAX_ERROR_TEXT]
            self._call_hook(TlsFailedClientHook(self._data), self.close)
