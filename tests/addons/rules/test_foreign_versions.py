"""How a source learns which versions its clients may hold from elsewhere."""

from __future__ import annotations

import asyncio

from addons.rules.foreign_versions import ANY, ForeignVersions
from kube.http.client import Unreachable
from tests.addons.support.observed import until
from tests.kube.support.toys import Toy, fill, filled, tell


class Cloud:
    """Says what version it is at, when it is told to."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[int]] = []
        self.store = filled(100)

    async def current_version(self) -> int:
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]


def foreign_versions(cloud: Cloud, newest: int = 0, *, was_edited: bool = False) -> ForeignVersions:
    return ForeignVersions(cloud.store, cloud.current_version, newest, was_edited=was_edited)


async def test_without_an_edit_nobody_asks() -> None:
    cloud = Cloud()
    versions = foreign_versions(cloud, 7)
    versions.learn()
    await asyncio.sleep(0)
    assert (versions.newest, cloud.answers) == (7, [])
    versions.raise_to(9)
    versions.raise_to(8)
    assert versions.newest == 9


async def test_after_an_edit_the_cloud_says_what_relays_can_have_given() -> None:
    cloud = Cloud()
    versions = foreign_versions(cloud, was_edited=True)
    versions.learn()
    versions.learn()
    await until(lambda: cloud.answers)
    assert versions.newest == ANY
    cloud.answers[0].set_result(120)
    await until(lambda: versions.newest == 120)
    assert len(cloud.answers) == 1


async def test_an_answer_from_before_another_edit_counts_for_nothing() -> None:
    cloud = Cloud()
    versions = foreign_versions(cloud, was_edited=True)
    versions.learn()
    await until(lambda: cloud.answers)
    versions.rules_edited()
    assert cloud.answers[0].cancelled() or not cloud.answers[0].done()
    versions.learn()
    await until(lambda: len(cloud.answers) == 2)
    assert versions.newest == ANY
    cloud.answers[1].set_result(130)
    await until(lambda: versions.newest == 130)


async def test_a_restored_cloud_has_given_none_of_the_later_versions() -> None:
    cloud = Cloud()
    versions = foreign_versions(cloud, 100)
    tell(cloud.store, "ADDED", Toy("x", version=101))
    cloud.store.advance(102)
    assert versions.newest == 100
    fill(cloud.store, 40)
    assert versions.newest == 40


async def test_a_cloud_that_does_not_answer_is_asked_again() -> None:
    cloud = Cloud()
    versions = foreign_versions(cloud, was_edited=True)
    versions.learn()
    await until(lambda: cloud.answers)
    cloud.answers[0].set_exception(Unreachable("gone"))
    await until(lambda: versions._asking is not None and versions._asking.done())
    assert versions.newest == ANY
    versions.learn()
    await until(lambda: len(cloud.answers) == 2)
    versions.close()
