"""The other end of a TLS handshake, in memory: pyOpenSSL's, or Python's `ssl`, strict as Python 3.13's and Go's are."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from OpenSSL import SSL

from tests.cloud.pki import Credential

STEPS = 10
"""A TLS 1.3 handshake takes three, 1.2 four."""


@dataclass(frozen=True)
class Shaken:
    """A handshake that succeeded, seen from the client."""

    client: ssl.SSLObject
    server: SSL.Connection
    incoming: ssl.MemoryBIO
    """The buffer that the client reads from."""


def client_context(authority: bytes, credential: Credential | None = None) -> ssl.SSLContext:
    """Trusts one CA (PEM) by the strict rules, and shows a certificate if it has one."""
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
) -> Shaken:
    """A complete handshake; ValueError in the client's words, OpenSSL.SSL.Error in the server's, when it fails."""
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
            return Shaken(client_end, server_end, incoming)
    raise ValueError("the handshake does not end")


def meet(client: SSL.Connection, server: ssl.SSLContext) -> ssl.SSLObject:
    """The server's end of a handshake with a client of pyOpenSSL; OpenSSL.SSL.Error when either side refuses."""
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
    """A complete handshake between two of pyOpenSSL; OpenSSL.SSL.Error when either side gives up."""
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
