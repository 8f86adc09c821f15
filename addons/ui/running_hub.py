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
    """Says why a hub does not answer its node, or not all of it."""

    closed: Callable[[], list[str]] = list
    """Names the listeners that were asked for and are not open."""
    waits_for: Callable[[], str] = str
    """The reason why the hub answers no request yet; "" for none."""
    unfit: Callable[[], str] = str
    """The reason why the hub is not that of its node, which it answers all the same; "" for none."""


@dataclass(frozen=True, slots=True)
class RunningHub:
    """The parts of the hub that reports read. No report changes them."""

    settings: Settings
    cloud: Cloud
    sources: Sources
    inputs: FilterInputs
    rules: RulesInForce
    offline: Offline | None = None
    """None for a hub without a cache."""
    modules: FilterModules | None = None
    """Filters that are not the hub's; None for a hub that has its own alone."""
    records: Records = field(default_factory=Records)
    pool: Pool | None = None
    """None if the hub shares nothing with other nodes."""
    drills: Drills | None = None
    """Rehearsed outages; None for a hub without a link of its own."""
    readiness: Readiness = field(default_factory=Readiness)
    client: Client | None = None
    """Asks the cloud as the node; None for a hub without a link."""
    web_address: Callable[[], str] = str
    """The URL of mitmproxy's web interface, with its token, for no report and no file; "" where there is none."""
