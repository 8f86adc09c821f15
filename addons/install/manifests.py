"""`edgehub manifests`: what has to be applied in the cloud, for who has the wheel and no checkout."""

from __future__ import annotations

from collections.abc import Iterator
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
        comments = (line.removeprefix("# ") for line in lines if line.startswith("# "))
        about = next((line for line in comments if not line.startswith("Rendered by")), "")
        yield f"{name:<24} {about}"
