"""`scripts/site`: builds this tree's pages as a site, with mkdocs-material.

The site uses the Markdown of the tree. The README becomes the first page; links between the root and `docs/` are
rewritten to the pages' paths in the site.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTPUT = ROOT / "dist" / "site"
OTHERS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "CHANGELOG.md": "changelog.md",
    "deploy/chart/README.md": "chart.md",
}
"""Pages outside `docs/`, and their names on the site."""
NAVIGATION = {
    "Use": [
        "README.md",
        "docs/install.md",
        "docs/nodes.md",
        "docs/repair.md",
        "docs/kind.md",
        "docs/rules.md",
        "docs/topology.md",
        "docs/offline.md",
        "docs/offline-kubectl.md",
        "docs/links.md",
        "docs/pool.md",
        "docs/manager.md",
        "docs/fleet.md",
        "docs/updates.md",
        "docs/bindings.md",
        "docs/filters.md",
        "docs/seeing.md",
        "docs/attach.md",
        "docs/packages.md",
        "docs/operations.md",
    ],
    "Reference": [
        "docs/reference.md",
        "docs/builtin-filters.md",
        "docs/bounds.md",
        "deploy/chart/README.md",
        "docs/supported.md",
        "docs/glossary.md",
        "CHANGELOG.md",
    ],
    "Explain": [
        "docs/architecture.md",
        "docs/versions.md",
        "docs/outages.md",
        "docs/slow-links.md",
        "docs/peers.md",
        "docs/controllers.md",
        "docs/security.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
    ],
    "Measured": ["docs/measured.md", "docs/conformance.md"],
}
"""All pages, under headings by use."""
LINK = re.compile(r"(?P<before>\]\()(?P<path>[^)#\s:]+)(?P<rest>(?:#[^)\s]*)?\))")
"""Matches a Markdown link to a file of the tree."""
RUNBOOK = re.compile(r"(?<= )runbook: ")
"""The prefix of a page's path in the runbook annotation of an alert."""
LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(https?://[^"'\s>]+)""")


def site_path(path: str) -> str:
    """Return a page's path on the site."""
    return OTHERS.get(path, Path(path).name)


def rewritten(page: str, text: str) -> str:
    """Rewrite a page's links to other files for the site; ValueError for a missing file."""

    def link(match: re.Match[str]) -> str:
        target = (ROOT / page).parent.joinpath(match["path"]).resolve()
        path = str(target.relative_to(ROOT))
        if path not in OTHERS and target.parent != DOCS:
            raise ValueError(f"{page} leads to {path}, which is no page of the site")
        return match["before"] + site_path(path) + match["rest"]

    return LINK.sub(link, text)


def lay_out(folder: Path, address: str = "") -> None:
    """Write the pages of the site, and their pictures, below a folder.

    `address` is the site's URL, for the links in alerts.
    """
    for source in DOCS.iterdir():
        shutil.copy(source, folder)
    for page in (*OTHERS, *(f"docs/{path.name}" for path in DOCS.glob("*.md"))):
        (folder / site_path(page)).write_text(rewritten(page, (ROOT / page).read_text()))
    if address:
        alerts = folder / "alerts.yaml"
        alerts.write_text(RUNBOOK.sub(f"runbook_url: {address.rstrip('/')}/", alerts.read_text()))


def configuration(pages: Path, output: Path) -> str:
    """Return the settings of mkdocs: no external fonts or scripts. The pages work without a web server, except
    search."""
    return yaml.safe_dump(
        {
            "site_name": "Edgehub",
            "docs_dir": str(pages),
            "site_dir": str(output),
            "theme": {"name": "material", "font": False, "features": ["navigation.sections", "toc.follow"]},
            "use_directory_urls": False,
            "plugins": ["search"],
            "markdown_extensions": [
                "admonition",
                "tables",
                "pymdownx.superfences",
                {"toc": {"permalink": True}},
            ],
            "extra": {"generator": False},
            "nav": [{heading: [site_path(page) for page in those]} for heading, those in NAVIGATION.items()],
            "validation": {"links": {"anchors": "warn"}},
        },
        sort_keys=False,
    )


def external(html: str) -> list[str]:
    """Return resources of other hosts that a browser would fetch to show a page; links to follow do not count."""
    return LOADED.findall(html)


def main() -> int:
    """Build the site, or serve it; return mkdocs' exit status."""
    parser = argparse.ArgumentParser(prog="scripts/site", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="Show the site at http://127.0.0.1:8000.")
    parser.add_argument("--address", default="", help="URL of the site, for the links in its alerts.yaml.")
    options = parser.parse_args()
    serve: bool = options.serve
    with tempfile.TemporaryDirectory() as temporary:
        pages = Path(temporary) / "pages"
        pages.mkdir()
        lay_out(pages, options.address)
        settings = Path(temporary) / "mkdocs.yml"
        settings.write_text(configuration(pages, OUTPUT))
        verb = ["serve"] if serve else ["build", "--strict", "--quiet"]
        command = [sys.executable, "-m", "mkdocs", *verb, "--config-file", str(settings)]
        # Suppresses the advertisement that mkdocs-material prints at each start.
        done = subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False)
    if serve or done.returncode:
        return done.returncode
    if addresses := sorted(
        {address for page in OUTPUT.glob("*.html") for address in external(page.read_text())}
    ):
        print(f"the pages load resources from other servers: {', '.join(addresses)}", file=sys.stderr)
        return 1
    print(OUTPUT / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
