"""The peer of a TLS handshake in memory: pyOpenSSL, or Python's `ssl` with the strict checks of Python 3.13 and Go."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from OpenSSL import SSL

from tests.cloud.pki import Credential

STEPS = 10
"""The steps of a handshake: three in TLS 1.3, four in 1.2."""


@dataclass(frozen=True)
class ClientHandshake:
    """A completed handshake, from the client's side."""

    client: ssl.SSLObject
    server: SSL.Connection
    incoming: ssl.MemoryBIO
    """The buffer that the client reads from."""


def client_context(authority: bytes, credential: Credential | None = None) -> ssl.SSLContext:
    """Return a context that trusts one CA (PEM) with strict checks, and presents a certificate if given."""
    context = ssl.create_default_context(cadata=authority.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if credential is not None:
        with tempfile.TemporaryDirectory() as folder:
            context.load_cert_chain(*credential.write(Path(folder), "client"))
    return context


def shake_hands(
    server: SSL.Context | SSL.Connection,
    client: ssl.SSLContext,
    name: str,
    session: ssl.SSLSession | None = None,
) -> ClientHandshake:
    """Complete a handshake; raise the client's error as ValueError, the server's as OpenSSL.SSL.Error."""
    server_end = SSL.Connection(server) if isinstance(server, SSL.Context) else server
    if isinstance(server, SSL.Context):
        server_end.set_accept_state()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_end = client.wrap_bio(incoming, outgoing, server_hostname=name, session=session)
    done = False
    for _ in range(STEPS):
        try:
            client_end.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise ValueError(str(error)) from error
        _pump(outgoing, server_end)
        served = _step(server_end)
        _drain(server_end, incoming)
        if done and served:
            return ClientHandshake(client_end, server_end, incoming)
    raise ValueError("the handshake does not end")


def meet(client: SSL.Connection, server: ssl.SSLContext) -> ssl.SSLObject:
    """Complete the server's side of a handshake with a pyOpenSSL client; OpenSSL.SSL.Error if either side refuses."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_end = server.wrap_bio(incoming, outgoing, server_side=True)
    for _ in range(STEPS):
        done = _step(client)
        _drain(client, incoming)
        try:
            server_end.do_handshake()
        except ssl.SSLWantReadError:
            done = False
        except ssl.SSLError as error:
            raise SSL.Error(str(error)) from error
        _pump(outgoing, client)
        if done:
            return server_end
    raise ValueError("the handshake does not end")


def shake(client: SSL.Connection, server: SSL.Connection) -> None:
    """Complete a handshake between two pyOpenSSL connections; OpenSSL.SSL.Error if either side refuses."""
    for _ in range(STEPS):
        done = _step(client)
        _drain(client, server)
        done &= _step(server)
        _drain(server, client)
        if done:
            return
    raise ValueError("the handshake does not end")


def _pump(outgoing: ssl.MemoryBIO, server: SSL.Connection) -> None:
    data = outgoing.read()
    if data:
        server.bio_write(data)


def _step(end: SSL.Connection) -> bool:
    try:
        end.do_handshake()
    except SSL.WantReadError:
        return False
    return True


def _drain(end: SSL.Connection, into: ssl.MemoryBIO | SSL.Connection) -> None:
    write = into.write if isinstance(into, ssl.MemoryBIO) else into.bio_write
    try:
        while True:
            write(end.bio_read(1 << 16))
    except SSL.WantReadError:
        return
