"""The component that sent a request, as rules and metrics name it: the first word of its User-Agent."""

import re

MAX_LENGTH = 64
"""Characters: enough for every known program; bounds the labels, keys and log lines that a client could fill."""

_ALLOWED = re.compile(rf"[a-z0-9._-]{{1,{MAX_LENGTH}}}")


def component_of(user_agent: str | None) -> str:
    """The text before the first "/", in lower case; "" for an unknown component.

    What is too long, has other characters than a-z, 0-9, ".", "_" and "-", or could be a path step ("." and "..")
    is unknown, because the result names metrics and files. A User-Agent proves nothing: never grant anything by it.
    """
    if not user_agent:
        return ""
    # ASCII only before lower(): U+212A (the Kelvin sign) would else become an innocent "k".
    name = user_agent.partition("/")[0]
    if not name.isascii():
        return ""
    name = name.lower()
    return name if _ALLOWED.fullmatch(name) and name not in (".", "..") else ""
