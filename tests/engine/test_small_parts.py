"""Tables, lines of memory, frozen classes and figures: what all of gputui is made of, with exact values."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any

import pytest
from gputui.engine import memory_line, units
from gputui.engine.figures import Figure, at
from gputui.engine.frozen import dataclass as frozen
from gputui.engine.late_patterns import late
from gputui.engine.memory_line import Line
from gputui.engine.text_table import Code, Table, escaped

# ---- tables ---------------------------------------------------------------------------------------

TABLE = Table(["a", "b", "c"], [["1", "x|y", "z "], [Code("k=1"), "", Code("")]], right=[1], spare=[2, 1], drawn=[2])


def test_a_table_in_markdown() -> None:
    assert TABLE.markdown() == "| a | b | c |\n| --- | --- | --- |\n| 1 | x\\|y | z |\n| `k=1` |  |  |"
    assert TABLE.markdown(aligned=True).splitlines()[1] == "| --- | ---: | --- |"
    assert escaped("a\nb|c") == "a b\\|c"


@pytest.mark.parametrize(
    ("place", "head", "right", "spare", "drawn"),
    [
        (0, ["n", "a", "b", "c"], [2], [3, 2], [3, 0]),
        (1, ["a", "n", "b", "c"], [2], [3, 2], [3, 1]),
        (2, ["a", "b", "n", "c"], [1], [3, 1], [3, 2]),
        (3, ["a", "b", "c", "n"], [1], [2, 1], [2, 3]),
    ],
)
def test_a_column_of_pictures_moves_those_behind_it(
    place: int, head: list[str], right: list[int], spare: list[int], drawn: list[int]
) -> None:
    made = TABLE.with_column(place, "n", ["p", "q"])
    assert (list(made.head), made.right, made.spare, made.drawn) == (head, right, spare, drawn)
    assert [row[place] for row in made.rows] == ["p", "q"]
    assert [[cell for at, cell in enumerate(row) if at != place] for row in made.rows] == [list(r) for r in TABLE.rows]


def test_rows_are_counted_from_1() -> None:
    made = TABLE.numbered()
    assert (made.head, [row[0] for row in made.rows]) == (["", "a", "b", "c"], ["1", "2"])
    assert (made.right, made.spare, made.drawn) == ([2], [3, 2], [3])


# ---- lines of memory ------------------------------------------------------------------------------


def test_memory_is_a_line_over_the_batch_that_a_jump_does_not_turn() -> None:
    assert memory_line.through([]) is None
    assert memory_line.through([(8, 100), (8, 200)]) is None
    line = memory_line.through([(10, 1100), (20, 1200), (40, 1400)])
    assert line is not None
    assert line.base == pytest.approx(1000)
    assert line.bytes_per_sample == pytest.approx(10)
    assert Line(1000.0, 10.0).at(7) == 1070.0
    falling = memory_line.through([(10, 900), (20, 500)])
    assert falling == Line(700.0, 0.0), "a larger batch does not take less"
    points = [(batch, 10**9 + 10**6 * batch) for batch in (8, 16, 32, 64, 128, 256)]
    points[2] = (32, 2 * points[2][1])
    jump = memory_line.through(points)
    assert jump is not None
    assert jump.bytes_per_sample == pytest.approx(10**6, rel=0.01)
    assert jump.base == pytest.approx(10**9, rel=0.01)


# ---- frozen classes -------------------------------------------------------------------------------


def test_a_frozen_class_is_that_of_the_standard_library() -> None:
    def plain() -> Any:
        class Both:
            a: int
            b: Any = 2
            c: Any = field(default_factory=list)

        return Both

    ours: Any = frozen(frozen=True)(plain())
    theirs: Any = dataclass(frozen=True)(plain())
    for given in ((1,), (1, 3), (1, 3, [4])):
        assert repr(ours(*given)) == repr(theirs(*given))
        assert [each.name for each in fields(ours)] == ["a", "b", "c"]
        assert ours(*given) == ours(*given)
    assert ours(1) != ours(2)
    assert ours(1) != theirs(1)
    assert ours(1) != 1
    assert hash(ours(1, 2, ())) == hash((1, 2, ())) == hash(theirs(1, 2, ()))
    below: Any = type("Below", (ours,), {})
    assert ours(1) != below(1) != ours(1), "another class, although it has the same fields"
    made = ours(1)
    changes: list[tuple[Any, ...]] = [(setattr, "a", 2), (setattr, "d", 2), (delattr, "a")]
    for change, *words in changes:
        refused = []
        for each in (made, theirs(1)):
            with pytest.raises(FrozenInstanceError) as raised:
                change(each, *words)
            refused.append(str(raised.value))
        assert refused[0] == refused[1]
    assert made.a == 1

    class Shown:
        a: int

        def __repr__(self) -> str:
            return "as it likes"

    shown: Any = frozen(frozen=True)(Shown)
    assert repr(shown(1)) == "as it likes"
    inner = ours(1)
    inner.c.append(inner)
    assert repr(inner).endswith("c=[...])")


def test_a_pattern_that_is_compiled_late_has_its_flags() -> None:
    pattern = late("^a(b)$", re.IGNORECASE | re.MULTILINE)
    found = pattern.search("x\nAB\n")
    assert found is not None
    assert found[1] == "B"
    assert (pattern.pattern, pattern.flags) == ("^a(b)$", re.compile("^a(b)$", re.IGNORECASE | re.MULTILINE).flags)
    assert late("a").search("A") is None


# ---- figures --------------------------------------------------------------------------------------

RATE = Figure("samples_per_second", "samples/s", "samples/s", "a", "b")
STEP = Figure("step_ms.p50", "step time", "ms", "a", "b", short="step ms", narrow="ms")
WAIT = Figure("input_wait", "input wait", "share", "a", "b", digits=2)


def test_a_figure_is_written_with_its_name_and_its_unit_once() -> None:
    assert [each.head for each in (RATE, STEP, WAIT)] == ["samples/s", "step ms", "input wait"]
    assert [each.narrow_head for each in (RATE, STEP, WAIT)] == ["samples/s", "ms", "input wait"]
    assert [each.name for each in (RATE, STEP, WAIT)] == ["", "step", "input wait"]
    assert [each.width for each in (RATE, STEP, WAIT)] == [9, 7, 10]
    assert [each.item(12.345) for each in (RATE, STEP, WAIT)] == [
        ("samples/s", "12.3"), ("step", "12.3 ms"), ("input wait", "1234 %"),
    ]  # fmt: skip
    assert [each.phrase(0.05) for each in (RATE, STEP, WAIT)] == ["0.05 samples/s", "step 0.05 ms", "input wait 5 %"]
    assert [each.text(None) for each in (RATE, STEP, WAIT)] == ["-", "-", "-"]
    assert Figure("a", "a", "ms", "", "", digits=2).text(1.0) == "1.00 ms"


@pytest.mark.parametrize(
    ("key", "value"),
    [("a", 1), ("b.c", 2.5), ("b", None), ("b.c.d", None), ("x", None), ("t", None), ("s", None), ("n", None)],
)
def test_a_number_at_a_dotted_key(key: str, value: float | None) -> None:
    assert at({"a": 1, "b": {"c": 2.5}, "t": True, "s": "3", "n": None}, key) == value


@pytest.mark.parametrize(
    ("form", "given", "shown"),
    [
        (units.amount, 99.95, "100"), (units.amount, 100.4, "100"), (units.amount, 0.0, "0"),
        (units.amount, 1.5670578368644907e19, "1.57e+19"),
        (lambda value: units.amount(value, 1), 12345.67, "12,345.7"), (lambda value: units.amount(value, 0), 0.4, "0"),
        (units.three_digits, 1.0, "1.00"), (units.three_digits, 0.11, "0.110"), (units.three_digits, 99.95, "100"),
        (units.abbreviated, 999_400.0, "999 k"), (units.abbreviated, 999_500.0, "1 M"),
        (units.abbreviated, 999_499_999.0, "999 M"), (units.abbreviated, 2.35e10, "23.5 G"),
        (units.abbreviated, 5, "5"),
        (units.share, 0.825, "82 %"), (lambda value: units.share(value, 1), 0.825, "82.5 %"),
        (units.percent, 0.5, " 50 %"), (units.percent, 0.05, "  5 %"), (units.percent, 1.0, "100 %"),
        (units.percent, None, "  - %"),
        (units.change, 0.0, "+0.0 %"), (units.change, 0.05, "+5.0 %"), (units.change, 0.9999, "+100.0 %"),
        (units.change, 1.0, "+100 %"), (lambda value: units.change(value, "points"), -0.05, "-5.0 points"),
        (units.change_label, 0.1, "+10 %"), (units.change_label, -0.025, "-2.5 %"), (units.change_label, 0.0, "0"),
        (units.spread, 0.9999, "100.0 %"), (units.spread, 1.5, "150 %"),
        (units.times, 9.994, "9.99 times"), (units.times, 9.999, "10.00 times"), (units.times, 10.04, "10.0 times"),
        (units.size, 1023, "1023 B"), (units.size, 1024, "1.0 KiB"), (units.size, 1023.4 * 1024, "1023 KiB"),
        (units.size, 1023.5 * 1024, "1.0 MiB"), (units.size, 99.949 * 1024**2, "99.9 MiB"),
        (units.size, 99.95 * 1024**2, "100 MiB"), (units.size, 0, "0 B"), (units.size, 5 * 1024**4, "5120 GiB"),
        (units.gibibytes, 99.9 * 1024**3, "99.9"), (units.gibibytes, 100.4 * 1024**3, "100"),
        (units.performance_state, 2.0, "P2"),
        (units.seconds, 59.94, "59.9 s"), (units.seconds, 59.95, "1:00"), (units.seconds, 3599.4, "59:59"),
        (units.seconds, 3599.6, "1:00:00"), (units.clock, 0.9, "0:00"), (units.clock, 3661, "1:01:01"),
        (units.axis_time, 59.0, "59 s"), (units.axis_time, 3599.0, "59:59 min"), (units.axis_time, 3600.0, "1 h"),
        (units.axis_time, 3659.0, "1 h"), (units.axis_time, 3660.0, "1:01 h"), (units.axis_time, 172_799.0, "47:59 h"),
        (units.axis_time, 172_800.0, "2 d"), (units.axis_time, 216_000.0, "2.5 d"),
        (units.estimate, 0.0, "10 s"), (units.estimate, 14.9, "10 s"), (units.estimate, 99.9, "100 s"),
        (units.estimate, 100.0, "2 min"), (units.estimate, 5999.0, "100 min"), (units.estimate, 6000.0, "1.7 h"),
        *((form, None, "-") for form in (units.amount, units.three_digits, units.count, units.abbreviated, units.share,
                                         units.change, units.spread, units.times, units.size, units.rate,
                                         units.gibibytes, units.performance_state, units.seconds, units.clock)),
    ],
)  # fmt: skip
def test_each_form_at_its_limits(form: Any, given: float | None, shown: str) -> None:
    assert form(given) == shown


@pytest.mark.parametrize(
    ("value", "unit", "bare", "whole"),
    [
        (12.34, "ms", "12.3", "12.3 ms"), (0.5, "share", "50 %", "50 %"), (2048, "bytes", "2.0 KiB", "2.0 KiB"),
        (2048, "bytes/s", "2.0 KiB/s", "2.0 KiB/s"), (3.0, "value", "3", "3"), (3.0, "", "3", "3"),
        (None, "ms", "-", "-"), (1234, "count", "1,234", "1,234"), (2, "P", "P2", "P2"),
        (61, "seconds", "1:01", "1:01"),
    ],
)  # fmt: skip
def test_a_value_by_the_name_of_its_unit(value: float | None, unit: str, bare: str, whole: str) -> None:
    assert (units.bare(value, unit), units.with_unit(value, unit)) == (bare, whole)
    assert units.is_plain(unit) is (unit in ("ms", "value", ""))


def test_decimals_are_for_plain_numbers() -> None:
    assert (units.bare(1.0, "ms", 2), units.with_unit(1.0, "ms", 2)) == ("1.00", "1.00 ms")
    assert units.with_unit(0.5, "share", 2) == "50 %"
