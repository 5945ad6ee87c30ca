"""The names of compared runs at every width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputui.engine.runs.titles import Title
from gputui.tui.wording import comparison

MOMENTS = ("14:05", "14:06")


def test_a_name_that_is_too_long_loses_its_changes_then_its_preset(snapshot: Any) -> None:
    both = [Title("quickstart", ("batch_size=256", "xla")), Title("quickstart", ("batch_size=256", "cache"))]
    cases: tuple[tuple[list[Title], Sequence[str]], ...] = (
        (both, ()), (both, ("r1", "r2")), ([Title("quickstart", ("xla",)), Title("cnn", ("xla",))], ()),
        ([Title("quickstart"), Title("quickstart")], ()),
    )  # fmt: skip
    found = []
    for titles, short in cases:
        names, before = comparison.distinct_names(titles, MOMENTS, short), list[str]()
        found.append("----")
        for width in range(5, 30):
            brief = comparison.in_brief(names, titles, MOMENTS, width, short)
            if brief != before:
                found.append(f"from {width}: {', '.join(brief)}")
            before = brief
        assert before == names
    assert "\n".join(found) == snapshot
