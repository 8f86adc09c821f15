"""Keeps modules of mitmproxy out of a hub that never uses them.

The package `mitmproxy.addons` imports all of mitmproxy's own addons, and with them Flask, ldap3 and passlib: 13 MB and
a quarter of the time to start. The hub without an interface uses two of these addons.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec

PACKAGE = "mitmproxy.addons"


def skip_default_addons() -> None:
    """Let `mitmproxy.addons` be a package whose modules are imported one by one, as they are asked for.

    Without effect where the package is imported already, as it is in tests. `tests/addons/proxy/test_lean_imports.py`
    tells when mitmproxy's package no longer imports what it does not need, and this function can go.
    """
    if PACKAGE in sys.modules:
        return
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.submodule_search_locations is None:
        return  # another layout; the import costs what it costs
    spec = ModuleSpec(PACKAGE, loader=None, is_package=True)
    spec.submodule_search_locations = list(found.submodule_search_locations)
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
