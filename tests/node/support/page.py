"""The commands of docs/install.md: tests run the same text that a person copies from the page."""

from __future__ import annotations

import re

from scripts.node_machine.instances import ROOT

PAGE = ROOT / "docs" / "install.md"


def blocks(section: str) -> list[str]:
    """The blocks of commands below a heading, up to the next one."""
    _, found, rest = PAGE.read_text().partition(f"\n{section}\n")
    assert found, f"{PAGE.name} has no {section!r}"
    return re.findall(r"^```sh\n(.*?)^```$", re.split(r"\n#+ ", rest)[0], re.MULTILINE | re.DOTALL)
