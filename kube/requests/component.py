"""The component that sent a request, as rules and metrics name it: what its User-Agent begins with."""

import re

MAX_LENGTH = 64
"""Characters. Every known program has a shorter name. The limit bounds labels, keys and log lines of clients."""
UNKNOWN = "unknown"
"""The component of a request without a User-Agent (kube-rs sends none), or with one that names nobody."""

_ALLOWED = re.compile(rf"[a-z0-9._-](?:[a-z0-9._ -]{{0,{MAX_LENGTH - 2}}}[a-z0-9._-])?")
_SPACES = re.compile(" +")


def component_of(user_agent: str | None) -> str:
    """The component of a request with this User-Agent. It proves nothing: no rule grants rights by it."""
    return component_named((user_agent or "").partition("/")[0]) or UNKNOWN


def component_named(text: str) -> str:
    """A component's name, in lower case, with one space where there are several; "" for what is none.

    That is what is too long, has other characters than a-z, 0-9, ".", "_", "-" and spaces between them, or is a path
    step ("." or ".."): components name metrics and files.
    """
    # Check for ASCII before lower(), which makes a plain "k" of U+212A (the Kelvin sign).
    name = text.strip(" ").lower() if text.isascii() else ""
    return _SPACES.sub(" ", name) if _ALLOWED.fullmatch(name) and name not in (".", "..") else ""
