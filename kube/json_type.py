"""The type of a parsed JSON object, and equality of JSON values."""

from typing import Any

type Json = dict[str, Any]
"""A parsed API object. Its values may have any JSON type, so readers check for the type that they expect."""


def same_json(left: Any, right: Any) -> bool:
    """True if two values are equal JSON: unlike in Python, `true` is not 1."""
    match left, right:
        case dict(), dict():
            return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
        case list(), list():
            return len(left) == len(right) and all(map(same_json, left, right))
        case _:
            return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
