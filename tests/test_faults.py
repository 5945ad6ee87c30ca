"""The faults that `python -m tests.faults` plants."""

from __future__ import annotations

import pytest

from tests.faults import frozen
from tests.faults.one_line import by_hand, faults

SOURCE = '''
from __future__ import annotations

LIMIT = 3


@cached(size=1)
def rest(values: list[int] | None = None, *, whole: bool = True) -> int:
    """Not a fault: 1 < 2."""
    if whole and not values:
        return min(values, key=len) - LIMIT
    values.append("é" if LIMIT <= 2 else f"{1 + 1}")
'''
CHANGED = [
    "LIMIT = 4",
    "def rest(values: list[int] | None = None, *, whole: bool = False) -> int:",
    "if False:",
    "if True:",
    "if (whole or not values):",
    "if (not values):",
    "if (whole):",
    "if whole and (values):",
    "return (min(values, key=len) + LIMIT)",
    "return (min(values, key=len))",
    "return (min(values)) - LIMIT",
    "return max(values, key=len) - LIMIT",
    "None",
    "values.append(('é'))",
    "values.append((f'{1 + 1}'))",
    """values.append("é" if (LIMIT < 2) else f"{1 + 1}")""",
    """values.append("é" if LIMIT <= 3 else f"{1 + 1}")""",
]


def test_faults_of_a_line_change_what_runs_and_neither_texts_nor_types() -> None:
    before = SOURCE.splitlines()
    changed = [
        line.strip()
        for fault in faults(SOURCE)
        for line, old in zip(fault.planted(SOURCE).splitlines(), before, strict=True)
        if line != old
    ]
    assert changed == CHANGED


def test_a_fault_by_hand_replaces_a_text_that_is_there_once() -> None:
    fault = by_hand(SOURCE, "LIMIT <= 2", "LIMIT > 2")
    assert (fault.line, fault.last_line) == (12, 12)
    assert fault.planted(SOURCE) == SOURCE.replace("LIMIT <= 2", "LIMIT > 2")
    with pytest.raises(ValueError, match="the text is there 3 times"):
        by_hand(SOURCE, "LIMIT", "limit")
    with pytest.raises(SyntaxError):
        by_hand(SOURCE, "<= 2", "<= 2)").planted(SOURCE)


def test_the_test_that_notices_a_frozen_fault_is_still_there() -> None:
    """If one was deleted on purpose, `python -m tests.faults --frozen` says whether another one notices the fault."""
    noticed = [fault for fault in frozen.read() if fault.outcome == "noticed"]
    assert len(noticed) > 200
    assert [fault for fault in noticed if not frozen.exists(fault.by)] == []
