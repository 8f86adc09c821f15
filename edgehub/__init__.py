"""The installed programs.

In a wheel the project's modules lie in this folder, and not at the top level, where they would overwrite and shadow
those of other packages of the same names (`kube` for one).
"""

from __future__ import annotations

import sys
from pathlib import Path

MODULES = Path(__file__).parent
"""Where a wheel has the modules. A checkout has them beside this folder, and its environment finds them there."""
if (MODULES / "kube").is_dir():
    sys.path.insert(0, str(MODULES))


def hub() -> None:
    """The command `edgehub`."""
    from addons.command import program  # noqa: PLC0415 - the path is ready now

    program()


def manager() -> None:
    """The command `edgehub-manager`."""
    from controllers.manager import program  # noqa: PLC0415 - the path is ready now, and the hub needs none of it

    program()
