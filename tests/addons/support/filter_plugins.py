"""A plugin filter for tests: as an object, and as the text of a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from addons.filters.filter import LIST_AND_WATCH, SERVICES, GroupResource
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Outcome, Verdict, ignore_note
from kube.wire.api_objects import ApiObject


@dataclass(frozen=True)
class Hiding:
    """Hide the objects of one name."""

    hidden: str = "web"
    name: str = "acme-hide"
    resources: frozenset[GroupResource] = frozenset({SERVICES})
    components: frozenset[str] = frozenset({"kube-proxy"})
    verbs: frozenset[str] = LIST_AND_WATCH
    reasons: frozenset[str] = frozenset({"hidden", "shown"})
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    protobuf: bool = True
    answer: object = field(default=None)
    """The object to return instead of a verdict, if any."""

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        if self.answer is not None:
            return self.answer  # type: ignore[return-value]  # as without a type checker
        if obj.name == self.hidden:
            return Verdict(Outcome.DROPPED, "hidden")
        return Verdict(Outcome.KEPT, "shown")


def text_of(hidden: str, *, protobuf: bool = True) -> str:
    """Return the text of a file with such a filter."""
    return (
        "from tests.addons.support.filter_plugins import Hiding\n"
        f"FILTERS = (Hiding(hidden={hidden!r}, protobuf={protobuf}),)\n"
    )


def write(file: Path, text: str) -> None:
    """Write a filter file that a hub accepts: only its owner may write it, whatever the umask is."""
    file.write_text(text)
    file.chmod(0o600)
