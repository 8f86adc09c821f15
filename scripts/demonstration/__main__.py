"""Starts `scripts/demo`, which Ctrl-C ends without a traceback also while its modules load."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)

from scripts.demonstration.program import main  # noqa: E402 - this takes a second

main()
