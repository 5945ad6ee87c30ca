"""Damaged files of runs.

A case is a function that gets a random generator. It raises Violation if gputui behaves wrongly.
"""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support import damage

from .lab import Violation


@functools.cache
def _template() -> Path:
    return damage.home_of_two(Path(tempfile.mkdtemp(prefix="faults-two-")))


def damaged_file(file: str) -> Callable[[random.Random], None]:
    """Return a case that damages the `file` of a run in each way. No command and no screen may fail because of it."""

    def case_of(chance: random.Random) -> None:
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for kind in damage.kinds():
                seed = chance.randrange(10**6)
                wrong = damage.violations(_template(), Path(folder) / "home", file, kind, seed)
                found += [f"{kind.name} (seed {seed}): {what}" for what in wrong]
        if found:
            raise Violation(f"{len(found)} of {len(damage.kinds())} kinds: {found[0]}")

    return case_of
