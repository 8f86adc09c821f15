"""The hub's records for reports: in memory, and bounded."""

from __future__ import annotations

from dataclasses import dataclass, field

from addons.link.request_records import RequestRecords
from addons.telemetry.component_traffic import ComponentTraffic
from addons.telemetry.log import LogTail
from addons.telemetry.observation import Observations
from addons.ui.link_log import LinkState


@dataclass(frozen=True, slots=True)
class Records:
    """Counts and last events of a hub, written by its parts and read by reports."""

    traffic: ComponentTraffic = field(default_factory=ComponentTraffic)
    observations: Observations = field(default_factory=Observations)
    link: LinkState = field(default_factory=LinkState)
    log: LogTail = field(default_factory=LogTail)
    own_requests: RequestRecords = field(default_factory=RequestRecords)
    """The hub's last own requests."""
