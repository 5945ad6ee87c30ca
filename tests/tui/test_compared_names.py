"""The names of compared runs at every width, and their versions and code as cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputui.engine.compare.comparison import OptionRow
from gputui.engine.compare.same_code import CodeRow
from gputui.engine.runs.titles import Title
from gputui.tui.wording import comparison

from tests.tui.test_exact_words import compared


def test_the_code_of_compared_runs_stands_after_the_versions() -> None:
    code = CodeRow(("abc1234", "d\x1bef"), (None, ("a.py",)), (1, 2))
    versions = (OptionRow("TensorFlow", ("2.21", "2.\x1b20")), OptionRow("Keras", ("3", None)))
    own = compared((), code=code, versions=versions)
    assert comparison.fact_cells(own) == [
        ("TensorFlow", ["2.21", "2.?20"]), ("Keras", ["3", ""]), ("code", ["abc1234", "differs: a.py (d?ef)"]),
    ]  # fmt: skip
    assert [cells[0] for cells in comparison.table_rows(own)[3:]] == [
        "outcome", "TensorFlow", "Keras", "code", "compile.xla", "input.cache",
    ]  # fmt: skip
    assert comparison.fact_cells(compared((), versions=())) == []


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
