"""Makes what the pages of `docs/` have from the code: tables of options, metrics and alerts; numbers of bounds."""
