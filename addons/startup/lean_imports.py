"""Replaces modules that a hub without an interface never uses. That saves 13 MB and a fifth of the start time.

The figures are the resident memory that each module takes alone:
- `LAZY_MODULES` are executed at the first access to one of their attributes. Their importers use them for one purpose,
  which a quiet hub does not have: flows in a file, metrics as a page, options in YAML, protobuf in Python, not C,
  a profile, an archive for support.
- `FORBIDDEN` modules are imported by modules that the hub needs, which use them only for QUIC, UDP and local
  redirection. The hub has none of these.

Other unused modules cost less or cannot be left out, and are imported.

mitmproxy's own addons, which import Flask and ldap3, are not imported at all: `addons.proxy.master` needs none of them.
An interface uses everything: `--ui console`, `--ui web` and `mitmdump -s` replace no module.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Any, NoReturn

LAZY_MODULES = (
    "cProfile",  # 0.3 MB, with pstats
    "google.protobuf.internal.python_message",  # 1.0 MB
    "html",  # 0.4 MB, with its entities
    "mitmproxy.io",  # 4.5 MB
    "pickletools",  # 0.1 MB
    "prometheus_client",  # 1.4 MB, with http.server and wsgiref
    "pstats",
    "ruamel.yaml",  # 1.5 MB
    "tarfile",  # 0.2 MB
)
FORBIDDEN = (
    "aioquic.h3.connection",  # 4.1 MB, with the other modules of QUIC
    "aioquic.h3.events",
    "aioquic.quic.configuration",
    "aioquic.quic.events",
    "aioquic.quic.packet",
    "mitmproxy.proxy.layers.quic",
    "mitmproxy_rs",  # 2.2 MB
)


def leave_out_unused() -> None:
    """Replace each module of `LAZY_MODULES` and `FORBIDDEN` that is not imported yet.

    Call this before mitmproxy's proxy or protobuf is imported. `tests/addons/startup/test_lean_imports.py` fails if an
    entry is no longer necessary.
    """
    for name in LAZY_MODULES:
        if name not in sys.modules:
            _import_lazily(name)
    for name in FORBIDDEN:
        if name not in sys.modules:
            sys.modules[name] = Forbidden(name)


def _import_lazily(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return  # another version's layout: the normal import follows
    module = importlib.util.module_from_spec(spec)
    module.__class__ = Late
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


class Late(ModuleType):
    """A module that is executed at the first access to an attribute. Submodules of a package are imported without
    it.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        module = f"{self.__name__}.{name}"
        is_package = self.__spec__.submodule_search_locations is not None
        if is_package and (module in sys.modules or importlib.util.find_spec(module) is not None):
            return importlib.import_module(module)
        self.__class__ = ModuleType  # type: ignore[assignment]  # mypy takes a class for fixed
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


class Forbidden(ModuleType):
    """A module whose names can be imported and passed to `isinstance`, and nothing else."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return _unused(self.__name__, name)


@cache
def _unused(module: str, name: str) -> Any:
    return _Names(name, (_Unused,), {"__module__": module})


class _Names(type):
    """Metaclass whose attributes are such names, too: mitmproxy stops a listener by `mitmproxy_rs.udp.UdpServer`."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{cls.__name__} has no attribute {name!r}")
        return _unused(cls.__module__, f"{cls.__name__}.{name}")


class _Unused:
    def __new__(cls, *_: object, **__: object) -> NoReturn:
        raise RuntimeError(f"{cls.__module__}.{cls.__name__} is left out of a hub without an interface")
