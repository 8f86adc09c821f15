"""Keeps modules that a hub without an interface never uses out of its process: 16 MB, and a fifth of the time to start.

What is left out, and how:

- `PACKAGES` import all of their modules in their own `__init__`; aiohttp's client parses every CA certificate of the
  system. Their modules are imported one by one here, and the `__init__` runs when somebody asks for a name of its own.
- `FORBIDDEN` modules are imported by modules that the hub needs, which use them for QUIC, UDP, WireGuard and local
  redirection alone. The hub opens no such listener.

mitmproxy's own addons, which bring Flask and ldap3, are not imported at all: `addons.proxy.master` needs none of them.
An interface uses everything: `--ui console`, `--ui web` and `mitmdump -s` leave nothing out.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib import metadata
from types import ModuleType
from typing import Any, NoReturn

PACKAGES = ("aiohttp", "mitmproxy.io", "prometheus_client", "ruamel.yaml")
FORBIDDEN = (
    "mitmproxy.proxy.layers.http._http3",
    "mitmproxy.proxy.layers.quic",
    "mitmproxy_rs",
)


def leave_out_unused() -> None:
    """Replace each module of `PACKAGES` and `FORBIDDEN` that is not imported yet.

    To be called before mitmproxy's proxy or aiohttp is imported. `tests/addons/proxy/test_lean_imports.py` tells
    when mitmproxy and aiohttp no longer import what they do not need.
    """
    for name in PACKAGES:
        if name not in sys.modules:
            _leave_out_package(name)
    for name in FORBIDDEN:
        if name not in sys.modules:
            sys.modules[name] = Forbidden(name)


def _leave_out_package(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return  # another layout; the import costs what it costs
    module = importlib.util.module_from_spec(spec)
    module.__class__ = Package
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


class Package(ModuleType):
    """A package whose `__init__` runs when somebody asks for a name that is not one of the package's modules."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return metadata.version(self.__name__)  # aiohttp's own modules ask for it
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module = f"{self.__name__}.{name}"
        if importlib.util.find_spec(module) is not None:
            return importlib.import_module(module)
        self.__class__ = ModuleType  # type: ignore[assignment]  # mypy takes a class for fixed
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


class Forbidden(ModuleType):
    """A module whose names may be imported and asked for with `isinstance`, and nothing else."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return _unused(self.__name__, name)


def _unused(module: str, name: str) -> Any:
    return _Names(name, (_Unused,), {"__module__": module})


class _Names(type):
    """What is asked for of a name is such a name, too: mitmproxy stops a listener by `mitmproxy_rs.udp.UdpServer`."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{cls.__name__} has no attribute {name!r}")
        return _unused(cls.__module__, f"{cls.__name__}.{name}")


class _Unused:
    def __new__(cls, *_: object, **__: object) -> NoReturn:
        raise RuntimeError(f"{cls.__module__}.{cls.__name__} is left out of a hub without an interface")
