"""Many cases of one kind in one test: all of them run, and the test's failure names each that failed and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Cases:
    """`with cases.case(NAME):` around the check of each."""

    def __init__(self) -> None:
        self.count = 0
        self.failures: list[str] = []

    @contextmanager
    def case(self, name: object) -> Iterator[None]:
        """A failure of the body is kept under the case's name, and the next case goes on."""
        self.count += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - told at the end
            self.failures.append(f"{name}: {type(failure).__name__}: {failure}")


@contextmanager
def all_hold() -> Iterator[Cases]:
    """Cases of the block, of which none may have failed at its end."""
    yield (cases := Cases())
    told = "\n".join(cases.failures[:20])
    assert not cases.failures, f"{len(cases.failures)} of {cases.count} cases failed\n{told}"
    assert cases.count, "there were no cases"
