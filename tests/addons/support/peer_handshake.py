"""A handshake in memory between two connections of pyOpenSSL: a follower's and a leader's."""

from __future__ import annotations

from OpenSSL import SSL

STEPS = 10
"""A TLS 1.3 handshake takes three."""


def shake(client: SSL.Connection, server: SSL.Connection) -> None:
    """A whole handshake, to the server's end of it. OpenSSL.SSL.Error when either side gives up."""
    for _ in range(STEPS):
        ends = [_step(client, server), _step(server, client)]
        if all(ends):
            return
    raise AssertionError("the handshake does not end")


def _step(one: SSL.Connection, other: SSL.Connection) -> bool:
    try:
        one.do_handshake()
    except SSL.WantReadError:
        done = False
    else:
        done = True
    try:
        while True:
            other.bio_write(one.bio_read(1 << 16))
    except SSL.WantReadError:
        return done
