"""`edgehub manifests`: what has to be applied in the cloud, for who has the wheel and no checkout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "controllers" / "manifests"
"""In a checkout and in the wheel alike."""


def names() -> list[str]:
    """Those of all manifests, without the ending."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def manifest(name: str) -> str:
    """The text of one, by its name with or without the ending; ValueError where there is none."""
    stem = name.removesuffix(".yaml")
    if stem not in names():
        raise ValueError(f"there is no manifest {name!r}: there are {', '.join(names())}")
    return (FOLDER / f"{stem}.yaml").read_text()


def listed() -> Iterator[str]:
    """A line for each: its name, and the first sentence of what it says it is for."""
    for name in names():
        lines = manifest(name).splitlines()
        comments = [line[2:] for line in takewhile(lambda line: line.startswith("#"), lines)]
        about = " ".join(comment for comment in comments if not comment.startswith("Rendered by"))
        yield f"{name:<24} {re.split(r'(?<=[.:]) ', about)[0].rstrip(':')}"
