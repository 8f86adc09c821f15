"""Hides secrets in an object before it is shown: the values of Secrets, and service account tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

from addons.settings import Settings

type Tree = dict[str, Any]
"""An object as plain values."""


class Visible(NamedTuple):
    """Optional parts of objects that may be shown."""

    secrets: bool = False
    """Values of Secrets. Tokens are never shown."""
    managed_fields: bool = False
    """metadata.managedFields, which are long and seldom of interest; otherwise only their number is shown."""


DEFAULT_VISIBILITY = Visible()


def visible_by(settings: Settings) -> Visible:
    """Return the parts that the operator's options make visible."""
    return Visible(settings.show_secrets, settings.show_managed_fields)


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation in which kubectl stores the complete applied object, including a Secret's values."""

_SHOW_METADATA = frozenset({"Secret", "PartialObjectMetadata", "Table"})
_TOKENS = {"TokenRequest": "status", "TokenReview": "spec"}


def masked(kind: str, tree: Tree, visible: Visible = DEFAULT_VISIBILITY) -> Tree:
    """Return the object without secret values."""
    if kind in _TOKENS:
        return _without_token(tree, _TOKENS[kind])
    if visible.secrets or kind not in _SHOW_METADATA:
        return tree
    shown: Tree = _hide(kind, tree)
    return shown


def _without_token(tree: Tree, part: str) -> Tree:
    inner = tree.get(part)
    if not isinstance(inner, dict) or "token" not in inner:
        return tree
    return {**tree, part: {**inner, "token": _hidden(inner["token"])}}


def _hidden_values(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _hidden(value) for name, value in values.items()}
    return _hidden(values)


def _hidden(value: Any) -> str:
    return f"(hidden, {len(str(value))} characters)"


def _hide(kind: object, node: Any) -> Any:
    """Return a part of an object without values of Secrets.

    Rows of a Table contain complete objects if the client requests that.
    """
    match node:
        case dict():
            of_secret = node.get("kind", kind) == "Secret"
            return {
                name: _hidden_values(value)
                if of_secret and name in ("data", "stringData")
                else _hidden(value)
                if name == LAST_APPLIED
                else _hide(None, value)
                for name, value in node.items()
            }
        case list():
            return [_hide(None, element) for element in node]
    return node
