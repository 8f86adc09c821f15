"""The component that sent a request, as rules and metrics name it: the first word of its User-Agent."""

import re

MAX_LENGTH = 64
"""Characters. Every known program has a shorter name. The limit bounds labels, keys and log lines of clients."""

_ALLOWED = re.compile(rf"[a-z0-9._-]{{1,{MAX_LENGTH}}}")


def component_of(user_agent: str | None) -> str:
    """The text before the first "/", in lower case; "" for an unknown component.

    A name is unknown if it is too long, has other characters than a-z, 0-9, ".", "_" and "-", or is a path step ("."
    or ".."), because components name metrics and files. A User-Agent proves nothing: no rule grants rights by it.
    """
    if not user_agent:
        return ""
    # Check for ASCII before lower(), which makes a plain "k" of U+212A (the Kelvin sign).
    name = user_agent.partition("/")[0]
    if not name.isascii():
        return ""
    name = name.lower()
    return name if _ALLOWED.fullmatch(name) and name not in (".", "..") else ""
