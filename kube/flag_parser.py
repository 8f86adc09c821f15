"""Reads the flags of the hub's and the manager's programs: a mistake is one line, which names the flag."""

from __future__ import annotations

import argparse
from typing import NoReturn


class FlagParser(argparse.ArgumentParser):
    """argparse's own prints all flags before its error, and whoever mistyped one has to look for the line below."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; `{self.prog} --help` names all flags\n")
