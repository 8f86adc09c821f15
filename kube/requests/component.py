"""The component that sent a request, as rules and metrics name it: the beginning of its User-Agent."""

import re

MAX_LENGTH = 64
"""The most characters. Every known program has a shorter name. The limit bounds labels, keys and log lines of
clients."""
UNKNOWN = "unknown"
"""The component of a request without a User-Agent (kube-rs sends none), or with a malformed one."""

_ALLOWED = re.compile(rf"[a-z0-9._-](?:[a-z0-9._ -]{{0,{MAX_LENGTH - 2}}}[a-z0-9._-])?")


def component_of(user_agent: str | None) -> str:
    """The component of a request with this User-Agent. Rules grant no rights by it, because clients can send any
    value."""
    return component_named((user_agent or "").partition("/")[0]) or UNKNOWN


def component_named(text: str) -> str:
    """Normalize a component's name: lower case, single spaces; "" for an invalid one.

    A name is invalid if it is too long, has characters other than a-z, 0-9, ".", "_", "-" and inner spaces, or is a
    path step ("." or ".."): components name metrics and files.
    """
    # Check for ASCII before lower(), which turns U+212A (the Kelvin sign) into an ASCII "k".
    name = text.strip(" ").lower() if text.isascii() else ""
    return " ".join(name.split()) if _ALLOWED.fullmatch(name) and name not in (".", "..") else ""
