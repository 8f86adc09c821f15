"""The entry points of the installed programs.

In a wheel, the project's packages lie inside this folder. At the top level, packages such as `kube` would
overwrite or shadow other packages with the same names.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

MODULES = Path(__file__).parent
"""The folder with the packages in a wheel. In a checkout they lie beside this folder, and the editable install
finds them there."""
if (MODULES / "kube").is_dir():
    sys.path.insert(0, str(MODULES))


def hub() -> None:
    """Run the command `edgehub`. Until it handles Ctrl-C, that ends it without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from addons.command import program  # noqa: PLC0415 - the path is ready now

    program()


def manager() -> None:
    """Run the command `edgehub-manager`, as `hub`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from controllers.manager import program  # noqa: PLC0415 - the path is ready now, and the hub needs none of it

    program()
