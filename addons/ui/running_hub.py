"""The parts of a running hub that pages, reports and interfaces read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from addons.inputs.filter_inputs import FilterInputs
from addons.link.drills import Drills
from addons.link.health import Cloud
from addons.offline.offline_mode import Offline
from addons.pool.pool import Pool
from addons.rules.filter_modules import FilterModules
from addons.rules.in_force import RulesInForce
from addons.settings import Settings
from addons.ui.hub_records import Records
from addons.views.sources import Sources
from kube.http.client import Client


@dataclass(frozen=True, slots=True)
class Readiness:
    """Functions that return why the hub does not serve its node completely."""

    closed: Callable[[], list[str]] = list
    """Returns the addresses of listeners that should be open and are not."""
    waits_for: Callable[[], str] = str
    """Returns why the hub answers no request yet; "" if it does."""
    unfit: Callable[[], str] = str
    """Returns why the hub does not match its node, which it serves anyway; "" if it matches."""


@dataclass(frozen=True, slots=True)
class RunningHub:
    """The parts of the hub that reports read and never change."""

    settings: Settings
    cloud: Cloud
    sources: Sources
    inputs: FilterInputs
    rules: RulesInForce
    offline: Offline | None = None
    """None in a hub without a cache."""
    modules: FilterModules | None = None
    """Filters added by the operator; None if there are only built-in ones."""
    records: Records = field(default_factory=Records)
    pool: Pool | None = None
    """None if the hub shares nothing with other nodes."""
    drills: Drills | None = None
    """Drills of the link; None for a hub without a link of its own."""
    readiness: Readiness = field(default_factory=Readiness)
    client: Client | None = None
    """Client with the node's identity; None for a hub without a link."""
    web_address: Callable[[], str] = str
    """Returns the URL of mitmproxy's web interface with its token; "" without one. Never part of a report or file."""
