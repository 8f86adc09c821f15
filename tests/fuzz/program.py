"""Runs one target under atheris: `python -m tests.fuzz.program TARGET SECONDS FOLDER`; without arguments, it lists the
targets. The folder retains the inputs with new coverage from run to run, and an input that violated an invariant. The
exit status is 0 if none did."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

TARGETS = ("frames", "differences", "bodies", "targets", "rules", "http2_input")
INPUT_SECONDS = 10
"""An input that takes longer is a finding, as parsing must be cheap."""
MEMORY = 1024
"""Megabytes; more is a finding."""

type Seeds = Callable[[], Iterator[bytes]]
type Run = Callable[[bytes], None]


def target(name: str) -> tuple[Seeds, Run]:
    """Return a target's seeds and its function for an input."""
    module = importlib.import_module(f"tests.fuzz.{name}")
    return module.seeds, module.run


def main(name: str, seconds: int, folder: Path) -> None:
    import atheris  # noqa: PLC0415 - only scripts/fuzz installs it

    with atheris.instrument_imports(include=["kube", "addons"]):
        seeds, run = target(name)
    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    for data in seeds():
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    flags = {
        "max_total_time": seconds,
        "timeout": INPUT_SECONDS,
        "rss_limit_mb": MEMORY,
        "artifact_prefix": f"{folder}/{name}-",
        "print_final_stats": 1,
        "verbosity": 0,
    }
    atheris.Setup([sys.argv[0], *(f"-{flag}={value}" for flag, value in flags.items()), str(corpus)], run)
    atheris.Fuzz()


if __name__ == "__main__" and len(sys.argv) == 1:
    print(*TARGETS, sep="\n")
elif __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
