"""All messages that Kubernetes publishes. The file is read on first use; its text, 140 KB, stays in memory."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

from kube.message_table import Messages

PUBLISHED_FILE = Path(__file__).with_name("messages.txt.gz")


def published_text() -> str:
    """The text of the file."""
    return gzip.decompress(PUBLISHED_FILE.read_bytes()).decode()


@cache
def messages() -> Messages:
    """The table of messages, one for the process."""
    return Messages(published_text())
