"""Read the memory of another process of this user, as far as the kernel allows."""

from __future__ import annotations

from pathlib import Path

PIECE = 16 * 1024 * 1024


def holds(pid: int, wanted: bytes) -> bool:
    """Whether the writable memory of a process contains these bytes. OSError if the kernel shows none."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            at, end = (int(each, 16) for each in span.split("-"))
            tail = b""
            while at < end:
                memory.seek(at)
                piece = memory.read(min(PIECE, end - at))
                if not piece:
                    break
                if wanted in tail + piece:
                    return True
                tail, at = piece[-len(wanted) :], at + len(piece)
    return False
