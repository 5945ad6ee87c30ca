"""Many cases of one kind in one test: all of them run, and the test's failure names each that failed and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Cases:
    """`with cases.case(NAME):` around the check of each; `told()` asserts that none failed."""

    def __init__(self) -> None:
        self.count = 0
        self._failures: list[str] = []

    @contextmanager
    def case(self, name: object) -> Iterator[None]:
        """A failure of the body is kept under the case's name, and the next case goes on."""
        self.count += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - told at the end
            self._failures.append(f"{name}: {type(failure).__name__}: {failure}")

    def told(self) -> None:
        """Fails with all failures, the first ones at full length."""
        told = "\n".join(self._failures[:20])
        assert not self._failures, f"{len(self._failures)} of {self.count} cases failed\n{told}"
        assert self.count, "there were no cases"


@contextmanager
def all_hold() -> Iterator[Cases]:
    """Cases of the block, of which none may have failed at its end."""
    cases = Cases()
    yield cases
    cases.told()
