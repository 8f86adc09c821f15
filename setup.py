"""Says what a wheel holds: one top-level package, `edgehub`, in which the rooms of a checkout lie.

At the top level they would overwrite and shadow those of other packages, `kube` for one, whoever builds the wheel.

An editable installation, that of `scripts/environment`, has the rooms where they are.
"""

import atexit
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
ROOMS = ("addons", "controllers", "kube")

rooms = find_packages(str(HERE), include=[f"{room}*" for room in ROOMS])
# A folder of its own: what an earlier build left in `build/` would get into the wheel.
base = tempfile.mkdtemp(prefix="edgehub-build-")
atexit.register(shutil.rmtree, base, ignore_errors=True)
if "editable_wheel" in sys.argv:
    setup(packages=["edgehub", *rooms])
else:
    setup(
        packages=["edgehub", *(f"edgehub.{room}" for room in rooms)],
        package_dir={f"edgehub.{room}": room for room in ROOMS},
        options={"build": {"build_base": base}},
    )
