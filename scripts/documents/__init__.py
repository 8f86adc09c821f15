"""Generates parts of the pages in `docs/` from the code: tables of options, metrics and alerts; numbers of bounds."""
