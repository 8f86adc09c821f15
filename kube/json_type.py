"""The type of a JSON object once it is parsed, and its equality."""

from typing import Any

type Json = dict[str, Any]
"""An API object in JSON. Its values have any JSON type: a reader checks the type that it expects."""


def same_json(left: Any, right: Any) -> bool:
    """Whether two values are equal in JSON, where `true` is not 1."""
    match left, right:
        case dict(), dict():
            return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
        case list(), list():
            return len(left) == len(right) and all(map(same_json, left, right))
        case _:
            return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
