"""The component that sent a request, as rules and metrics name it: the beginning of its User-Agent."""

import re

MAX_LENGTH = 64
"""Characters. Every known program has a shorter name. The limit bounds labels, keys and log lines of clients."""
UNKNOWN = "unknown"
"""The component of a request without a User-Agent (kube-rs sends none), or with a malformed one."""

_ALLOWED = re.compile(rf"[a-z0-9._-](?:[a-z0-9._ -]{{0,{MAX_LENGTH - 2}}}[a-z0-9._-])?")
_SPACES = re.compile(" +")


def component_of(user_agent: str | None) -> str:
    """The component of a request with this User-Agent. It proves nothing: no rule grants rights by it."""
    return component_named((user_agent or "").partition("/")[0]) or UNKNOWN


def component_named(text: str) -> str:
    """A component's name, in lower case, with single spaces; "" for an invalid one.

    Invalid are names that are too long, have other characters than a-z, 0-9, ".", "_", "-" and spaces between them, or
    are a path step ("." or ".."): components name metrics and files.
    """
    # Check for ASCII before lower(), which makes a plain "k" of U+212A (the Kelvin sign).
    name = text.strip(" ").lower() if text.isascii() else ""
    return _SPACES.sub(" ", name) if _ALLOWED.fullmatch(name) and name not in (".", "..") else ""
