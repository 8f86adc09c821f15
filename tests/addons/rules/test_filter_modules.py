"""Files and packages of filters: who may write them, the mistakes in them, and what a change of a file does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from addons.filters.chain import FILTERS
from addons.filters.filter import Filter
from addons.rules import filter_modules
from addons.rules.filter_modules import GROUP, MAX_FILE, FilterModules, load_file
from addons.telemetry import metrics
from tests.addons.support.filter_plugins import text_of
from tests.addons.support.observed import until, value_of
from tests.support.background import beside


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "acme.py"
    made.write_text(text_of("web"))
    made.chmod(0o644)
    return made


def test_the_filters_of_a_file_stand_among_the_hubs(file: Path) -> None:
    modules = FilterModules(FILTERS, [file])
    assert [each.name for each in modules.filters] == [*(each.name for each in FILTERS), "acme-hide"]
    assert [each.name for each in modules.plugins] == ["acme-hide"]
    assert load_file(file) == load_file(file), "the same text is the same filter"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("FILTERS = (", "SyntaxError"),
        ("import no_such_package", "ModuleNotFoundError"),
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("", "has no FILTERS, a tuple of filters"),
        ("FILTERS = ()", "has no FILTERS, a tuple of filters"),
        ("FILTERS = (7,)", "7 needs a name"),
        ("#" * (MAX_FILE + 1), f"larger than {MAX_FILE} bytes"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(file: Path, text: str, problem: str) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match=problem) as caught:
        FilterModules(FILTERS, [file])
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        FilterModules(FILTERS, [tmp_path / "acme.py"])


def by_others(file: Path) -> None:
    file.chmod(0o666)


def by_the_group(file: Path) -> None:
    file.chmod(0o664)


def in_an_open_folder(file: Path) -> None:
    file.parent.chmod(0o777)


def behind_a_link(file: Path) -> None:
    """The link is in a good folder; what it leads to is not."""
    there = file.parent / "open"
    there.mkdir()
    target = file.rename(there / "acme.py")
    there.chmod(0o777)
    file.symlink_to(target)


@pytest.mark.parametrize("opened", [by_others, by_the_group, in_an_open_folder, behind_a_link])
def test_a_file_that_others_can_write_is_refused(file: Path, opened: Callable[[Path], None]) -> None:
    opened(file)
    with pytest.raises(ValueError, match="can be written by other users, whose code the hub would run"):
        load_file(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(file: Path) -> None:
    os.chown(file, 1234, -1)
    with pytest.raises(ValueError, match="belongs to another user"):
        load_file(file)


def test_in_a_folder_like_tmp_a_file_of_the_hubs_user_is_safe(file: Path) -> None:
    file.parent.chmod(0o1777)
    assert load_file(file)


def test_an_installed_package_brings_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_filters.py").write_text(text_of("web"))
    about = tmp_path / "acme_filters-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-filters\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nacme = acme_filters:FILTERS\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert metadata.version("acme-filters") == "1.2"
    (found,) = FilterModules(FILTERS, []).plugins
    assert found.digest == "acme-filters 1.2 acme_filters:FILTERS"
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nacme = acme_filters:NOTHING\n")
    with pytest.raises(ValueError, match=r"entry point acme of acme-filters 1\.2: AttributeError"):
        FilterModules(FILTERS, [])


async def test_a_change_is_taken_over_and_a_broken_one_is_not(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(filter_modules, "LOOK", 0.01)
    modules = FilterModules(FILTERS, [file])
    first, taken = modules.filters, asyncio.Queue[tuple[Filter, ...]]()
    async with beside(modules.follow(taken.put_nowait)):
        await asyncio.to_thread(file.write_text, "FILTERS = (")
        await until(lambda: modules.problem, 20)
        assert "SyntaxError" in modules.problem
        assert value_of(metrics.FILTER_MODULES_BROKEN) == 1
        assert modules.filters == first
        assert taken.empty()
        assert "all filters stay as they were" in caplog.text
        await asyncio.to_thread(file.write_text, text_of("another"))
        async with asyncio.timeout(20):
            assert await taken.get() == modules.filters
        assert modules.filters != first
        assert (modules.problem, value_of(metrics.FILTER_MODULES_BROKEN)) == ("", 0)
