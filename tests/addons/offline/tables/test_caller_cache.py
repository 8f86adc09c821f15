"""Cached reviews of callers on a real disk: hashed with their own key, and loaded before the first request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from addons.offline.tables.caller_cache import KEY_BYTES, KEY_FILE, CallerCache
from addons.offline.tables.disk_access import DiskAccess
from kube.disk.database import Disk
from kube.disk.writer import DiskWriter
from kube.http.access_review import right_to
from kube.requests.request_info import parse_request

TOKEN = "Bearer secret-token"
RIGHT = right_to(parse_request("GET", "/api/v1/services"))


@asynccontextmanager
async def open_cache(folder: Path) -> AsyncIterator[CallerCache]:
    access = DiskAccess(Disk(folder / "cache"), DiskWriter())
    made = CallerCache(access)
    await made.open()
    try:
        yield made
        await made._rows.settled()
    finally:
        access.close()


async def test_a_caller_is_known_after_a_restart_until_the_cloud_refuses_it(tmp_path: Path) -> None:
    def contents(folder: Path) -> bytes:
        return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())

    async with open_cache(tmp_path) as callers:
        callers.known.store_user(TOKEN, "the user")
        callers.known.store_answer(TOKEN, RIGHT)
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    async with open_cache(tmp_path) as callers:
        assert callers.known.user_of(TOKEN) is not None
        assert callers.known.right_of(TOKEN, RIGHT) is not None
        callers.known.delete_token(TOKEN)
    async with open_cache(tmp_path) as callers:
        assert callers.known.user_of(TOKEN) is None
        assert callers.known.right_of(TOKEN, RIGHT) is None
    assert b"secret-token" not in contents(tmp_path)


async def test_a_new_permission_of_a_caller_is_written_at_once(tmp_path: Path) -> None:
    """A hub that was killed within two seconds had the copy on disk without the caller's permission."""
    async with open_cache(tmp_path) as callers:
        callers.known.store_user(TOKEN, "the user")
        callers.known.store_answer(TOKEN, RIGHT)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert callers._rows.is_writing


async def test_a_missing_or_truncated_key_is_replaced(tmp_path: Path) -> None:
    async with open_cache(tmp_path) as callers:
        callers.known.store_user(TOKEN, "the user")
    (tmp_path / KEY_FILE).write_bytes(b"short")
    async with open_cache(tmp_path) as callers:
        assert callers.known.user_of(TOKEN) is None
    assert len((tmp_path / KEY_FILE).read_bytes()) == KEY_BYTES
