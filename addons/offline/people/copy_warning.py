"""The Warning header by which an answer from a copy says how old it is; kubectl prints it. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from addons.requests.offline_policy import PEOPLE

DATED_AFTER = timedelta(hours=20)
"""A time of day that is further back comes with its date."""


def copy_warning(
    component: str, now: datetime, copied: datetime | None, away: datetime | None, *, is_partial: bool
) -> dict[str, str]:
    """The header for a component; none for programs, which would log it at each request.

    `copied` is when the cloud last said something about the copy, None where this process does not know it. `away`
    is when the last server went down, None where servers answer.
    """
    if component not in PEOPLE:
        return {}
    copy = f"copy of {_time(copied, now)}" if copied is not None else "copy"
    since = f" since {_time(away, now)}" if away is not None else ""
    part = ", and this is what the node has, not all that there is" if is_partial else ""
    return {"Warning": f'299 - "{copy}, the cloud is away{since}{part}"'}


def _time(when: datetime, now: datetime) -> str:
    return when.strftime("%H:%M:%S" if now - when < DATED_AFTER else "%Y-%m-%d %H:%M:%S")
