"""The site has every page once, and every link between pages resolves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from scripts.building.site import DOCS, LINK, NAVIGATION, OTHERS, external, lay_out, rewritten, site_path
from tests.repository.support.tree import ROOT

PAGES = [page for those in NAVIGATION.values() for page in those]


def test_every_page_is_in_one_section() -> None:
    assert sorted(PAGES) == sorted([*OTHERS, *(f"docs/{path.name}" for path in DOCS.glob("*.md"))])
    assert len({site_path(page) for page in PAGES}) == len(PAGES)


def test_links_refer_to_pages_and_pictures_of_the_site(tmp_path: Path) -> None:
    lay_out(tmp_path)
    broken = {
        f"{page.name}: {found['path']}"
        for page in tmp_path.glob("*.md")
        for found in LINK.finditer(page.read_text())
        if not (tmp_path / found["path"]).exists()
    }
    assert broken == set()
    assert (tmp_path / "index.md").read_text().startswith((ROOT / "README.md").read_text().splitlines()[0])


def test_the_alerts_of_a_site_with_an_address_link_to_its_pages(tmp_path: Path) -> None:
    lay_out(tmp_path, "https://docs.my.org/edgehub/")
    links = set[str]()
    for group in yaml.safe_load((tmp_path / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert "runbook" not in rule["annotations"]
            links.add(rule["annotations"]["runbook_url"])
    assert "https://docs.my.org/edgehub/outages.html#replay" in links
    assert all(
        (tmp_path / link.rpartition("/")[2].replace(".html", ".md").partition("#")[0]).exists()
        for link in links
    )


def test_a_link_out_of_the_site_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("docs/rules.md leads to pyproject.toml")):
        rewritten("docs/rules.md", "[a](../pyproject.toml)")
    assert rewritten("docs/rules.md", "[a](../README.md#limits)") == "[a](index.md#limits)"
    assert rewritten("README.md", "[a](docs/rules.md)") == "[a](rules.md)"


def test_external_resources_of_a_page_are_found() -> None:
    html = '<a href="https://a.example/">a</a><link rel=stylesheet href=assets/x.css><script src="https://b.example/c.js">'
    assert external(html) == ["https://b.example/c.js"]
