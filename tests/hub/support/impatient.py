"""The hub with short times: it collects garbage continuously, counts a second as a day and six as a minute of a drill,
and waits a second for a signature. Run it as `python -m tests.hub.support.impatient FLAGS`."""

from __future__ import annotations

import sys

from addons import command
from addons.certificates import signing_request
from addons.link import drills
from addons.offline import garbage

if __name__ == "__main__":
    garbage.INTERVAL, garbage.DAY = 0.2, 1
    signing_request.REPORT_AFTER = 1.0
    drills.MINUTE = 6.0
    command.main(sys.argv[1:])
