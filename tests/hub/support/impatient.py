"""The hub that looks for garbage all the time and counts a second as a day.

Run it as `python -m tests.hub.support.impatient FLAGS`.
"""

from __future__ import annotations

import sys

from addons import command
from addons.offline import garbage

if __name__ == "__main__":
    garbage.INTERVAL, garbage.DAY = 0.2, 1
    command.main(sys.argv[1:])
