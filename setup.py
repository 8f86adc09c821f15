"""Says what a wheel holds: one top-level package, `edgehub`, in which the packages of a checkout lie.

At the top level they would overwrite and shadow those of other packages, `kube` for one, whoever builds the wheel.

An editable installation, that of `scripts/environment`, has the packages where they are.
"""

import atexit
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
PACKAGES = ("addons", "controllers", "kube")

packages = find_packages(str(HERE), include=[f"{package}*" for package in PACKAGES])
# A folder of its own: what an earlier build left in `build/` would get into the wheel.
base = tempfile.mkdtemp(prefix="edgehub-build-")
atexit.register(shutil.rmtree, base, ignore_errors=True)
if "editable_wheel" in sys.argv:
    setup(packages=["edgehub", *packages])
else:
    setup(
        packages=["edgehub", *(f"edgehub.{package}" for package in packages)],
        package_dir={f"edgehub.{package}": package for package in PACKAGES},
        options={"build": {"build_base": base}},
    )
