"""The hub installs a patch where mitmproxy has the known signature, and installs none where one differs."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import mitmproxy.version
import pytest

from addons.connections import PATCHES
from addons.proxy.patches import KNOWN_MITMPROXY, Patch, UnknownMitmproxyError, install, signature_of

ROOT = Path(__file__).parents[3]


class Base:
    def method(self, value: int) -> int:
        return value


class Fits(Base):
    def method(self, value: int) -> int:
        return value + 1

    def other(self) -> int:
        return 2


class DoesNot(Base):
    def method(self, value: int, more: int = 0) -> int:
        return value + more


@pytest.fixture
def place() -> ModuleType:
    made = ModuleType("place")
    vars(made).update(function=lambda one, two="x": None, Kind=Base)
    return made


def patch(place: ModuleType, name: str, replacement: object, signature: str) -> Patch:
    return Patch(place, name, replacement, signature, "why", "test")


def test_what_fits_is_replaced_once(place: ModuleType) -> None:
    patches = [patch(place, "function", print, "(one, two='x')"), patch(place, "Kind", Fits, "()")]
    install(patches)
    install(patches)  # as where mitmproxy loads the addons a second time
    assert vars(place)["function"] is print
    assert vars(place)["Kind"] is Fits


@pytest.mark.parametrize(
    ("name", "replacement", "signature", "says"),
    [
        ("function", print, "(one)", "place.function is (one, two='x') here, not (one)"),
        ("absent", print, "(one)", "place.absent is missing here"),
        ("Kind", DoesNot, "()", "place.Kind.method is (self, value) here, not (self, value, more=0)"),
    ],
)
def test_what_does_not_fit_leaves_all_as_it_was(
    place: ModuleType, name: str, replacement: object, signature: str, says: str
) -> None:
    before = dict(vars(place))
    fitting = patch(place, "function", repr, "(one, two='x')")
    with pytest.raises(UnknownMitmproxyError, match=r"needs mitmproxy 12\.2") as raised:
        install([fitting, patch(place, name, replacement, signature)])
    assert says in str(raised.value)
    assert vars(place) == before


def test_only_what_can_be_called_has_a_signature() -> None:
    assert (signature_of(3), signature_of(Base)) == ("", "()")


def test_the_known_version_is_the_installed_one() -> None:
    assert mitmproxy.version.VERSION.startswith(f"{KNOWN_MITMPROXY}.")


@pytest.mark.parametrize("each", PATCHES, ids=lambda each: str(each.name))
def test_each_patch_names_a_test_that_shows_the_fault(each: Patch) -> None:
    path, _, name = each.shown_by.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()
    assert each.why
