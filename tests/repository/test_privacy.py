"""No file names a package registry's host, or a folder of a developer's machine."""

from __future__ import annotations

import re

import pytest

from tests.repository.support.tree import files, label

# Written in pieces, as the test also reads this file.
REGISTRIES = (
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("proxy.golang", "org"),
    ("sum.golang", "org"),
    ("npmjs", "org"),
    ("crates", "io"),
    ("repo.maven.apache", "org"),
    ("deb.debian", "org"),
)
HOST = re.compile("|".join(re.escape(".".join(host)) for host in REGISTRIES))
MACHINE_FOLDER = re.compile(r"(?<![\w.~}/-])/(?:root|work|Users|home)/(?!<)\w")


def names_a_machine(text: str) -> bool:
    """Return True if a text is valid only on the machine or network where it was written."""
    return bool(HOST.search(text) or MACHINE_FOLDER.search(text))


def test_no_file_names_a_machine() -> None:
    wrong = [
        f"{label(path)}: {line}"
        for path in files()
        for line in path.read_text(errors="replace").splitlines()
        if names_a_machine(line)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("https://files.pythonhosted" + ".org/x", True),
        ("open('" + "/ho" + "me/ann/edgehub')", True),
        ("cd /" + "root/edgehub", True),
        ("$HOME/work/x and ~/root/x", False),
        ("/var/lib/edgehub and /registry/work/x", False),
    ],
)
def test_names_of_machines_are_found(text: str, wrong: bool) -> None:
    assert names_a_machine(text) is wrong
