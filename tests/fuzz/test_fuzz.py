"""Each target runs over its seeds and random mutations of them. The fuzzer itself does not run here."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.program import TARGETS, target


@pytest.mark.parametrize("name", TARGETS)
def test_each_target_accepts_its_seeds_and_their_mutations(name: str) -> None:
    def changed(seed: bytes, other: bytes, chance: random.Random) -> bytes:
        """Return a seed with some bytes replaced, and the end of another seed."""
        data = bytearray(seed)
        for _ in range(chance.randint(1, 4)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        cut = chance.randint(0, len(data))
        return bytes(data[:cut]) + other[chance.randint(0, len(other)) :]

    seeds, run = target(name)
    inputs = list(seeds())
    assert inputs
    for data in (b"", *inputs):
        run(data)
    chance = random.Random(11)
    # The number of mutations per target.
    changes = 100
    for _ in range(changes):
        run(changed(chance.choice(inputs), chance.choice(inputs), chance))
