"""The hub's own requests as people see them: the last ones, and who else is told."""

from __future__ import annotations

from addons.link.request_records import KEPT, RequestRecord, RequestRecords
from addons.requests.caller import Lending


def test_the_last_requests_are_kept_and_others_are_told() -> None:
    records = RequestRecords()
    told: list[tuple[str, bool]] = []
    records.listeners.append(lambda record: told.append((record.target, bool(record.ended))))
    for number in range(KEPT + 1):
        record = RequestRecord("GET", f"/{number}", "https://a:6443", Lending.HUB)
        records.begin(record)
        records.end(record)
    assert [each.target for each in records.last] == [f"/{number}" for number in range(1, KEPT + 1)]
    assert told[:3] == [("/0", False), ("/0", True), ("/1", False)]


def test_what_is_under_way_has_no_end() -> None:
    record = RequestRecord("GET", "/x", "https://a:6443", Lending.HUB, began=0.0)
    assert (record.describe()["isUnderWay"], record.describe()["began"]) == (True, "1970-01-01T00:00:00Z")
    record.failure = "refused"
    assert record.describe()["failure"] == "refused"
