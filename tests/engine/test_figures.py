"""Every figure is declared once, and every value is written in one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from gputui.engine import figures, units
from gputui.engine.diagnosis.rules import RULES
from gputui.engine.figures import GPU, HOST, NOT_SHOWN, PROFILE, RUN, View
from gputui.engine.options import OPTIONS
from gputui.engine.profile.xprof_tables import Shares
from gputui.engine.runs.events import HostReading, Progress, Summary
from gputui.engine.telemetry.gpu_totals import GpuTotals
from gputui.engine.telemetry.nvml.gpu_reader import CORE
from gputui.engine.trials.trial import FIGURES, Trial
from gputui.tui.reading.run import gpu_reading
from gputui.tui.reading.run.series import NOTHING

ROOT = Path(__file__).parent.parent.parent
DECLARED = ("engine/figures/", "engine/units.py")
MOVES_ON = {
    "epoch",
    "epochs",
    "step",
    "steps",
    "samples",
    "metrics",
}  # of a progress event: where it is, and the user's metrics
# Strings that hold a unit of bytes or a percent sign although they are no values: file -> why.
PROSE = {
    "engine/options/gpu_choice.py": "the way in which a user writes a kind of GPU: @24GB",
    "engine/options/hardware.py": "the same, in the help of device.visible",
    "engine/telemetry/chips.py": "a chip's own name",
    "tui/commands/gpus.py": "the way in which a user writes a kind of GPU: 2@24GB",
    "tui/drawing/host.py": "two values of memory before one unit",
    "tui/drawing/gpu_details.py": "two values of memory before one unit",
}


def names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_what_result_json_holds_is_declared_or_named_as_not_shown_with_the_reason() -> None:
    held, roots = names(Summary), {figure.key.partition(".")[0] for figure in RUN}
    assert held - roots - set(NOT_SHOWN) == set(), "declare it in figures/declared.py, or say there why it is not shown"
    assert set(NOT_SHOWN) - held == set()
    assert roots & set(NOT_SHOWN) == set()
    elsewhere = names(Trial) | {"gain", "loss_scale", "eta_seconds", "window_loss"}
    assert roots - held - elsewhere == set(), "no file has such a figure"


def test_figures_of_events_are_fields_of_the_events() -> None:
    live = {figure.progress for figure in RUN} - {""}
    assert live | MOVES_ON == names(Progress)
    assert set(HOST) <= names(HostReading)
    assert set(CORE) <= set(GPU)
    reading = {key: float(number) for number, key in enumerate(gpu_reading.FIGURES)}
    gpu = gpu_reading.read(0, reading, None, (), {}, NOTHING, GpuTotals())
    assert {key: gpu.value(key) for key in reading} == reading, "the views find each"
    assert set(FIGURES) <= names(Trial)
    assert set(PROFILE) == names(Shares)
    evidence = ast.parse((ROOT / "engine/diagnosis/verdict.py").read_text())
    beside = [
        node.args[0]
        for node in ast.walk(evidence)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_row"
    ]
    named = [str(node.value) for node in beside if isinstance(node, ast.Constant)]
    assert len(named) > 5
    for name in (*named, *(rule.measurement for rule in RULES)):
        assert figures.measurement(name).about, name


def test_each_declaration_is_whole_and_tells_columns_apart() -> None:
    for figure in (*RUN, *GPU.values(), *HOST.values(), *PROFILE.values()):
        assert all((figure.label, figure.about, figure.source)), figure.key
        assert figure.text(None) == units.NONE, figure.key
        assert figure.unit in ("value", "count", "") or figure.text(1234.5) != "1,234", figure.key
    for view in get_args(View):
        shown = [figure for figure in HOST.values() if view in figure.shown] if view == "host" else figures.shown(view)
        heads = [figure.narrow_head for figure in shown]
        assert len(set(heads)) == len(heads) > 0, (view, heads)


def test_how_each_figure_is_judged_and_where_it_is_shown(snapshot: Any) -> None:
    lines = []
    of_others = {"gpu": GPU, "host": HOST, "profile": PROFILE}
    for group, declared in (("run", RUN), *((name, tuple(part.values())) for name, part in of_others.items())):
        for figure in declared:
            better = {None: "neither is better", True: "more is better", False: "less is better"}[figure.more_is_better]
            parts = [better, figure.text(1234.5), figure.head, f"({figure.narrow_head})", *figure.shown]
            parts += [f"live as {figure.progress}"] if figure.progress else []
            lines.append(f"{group} {figure.key}: {', '.join(parts)}{', of a GPU' if figure.of_gpu else ''}")
    assert "\n".join(lines) == snapshot


def test_values_are_written_in_one_form() -> None:
    assert [units.share(0.824), units.change(1.31), units.change(-0.032), units.spread(0.04)] == [
        "82 %", "+131 %", "-3.2 %", "4.0 %"]  # fmt: skip
    assert [units.size(70), units.size(1024**2 * 1.5), units.size(80 * 1024**3), units.rate(2048)] == [
        "70 B", "1.5 MiB", "80.0 GiB", "2.0 KiB/s"]  # fmt: skip
    assert [units.seconds(4.24), units.seconds(187), units.seconds(7509), units.clock(9.9)] == [
        "4.2 s", "3:07", "2:05:09", "0:09"]  # fmt: skip
    assert [units.amount(0.01234), units.amount(1234.5), units.count(12345.6), units.times(2.314)] == [
        "0.0123", "1,234", "12,346", "2.31 times"]  # fmt: skip
    assert [units.abbreviated(999_999), units.size(1024**2 - 1), units.seconds(59.96)] == ["1 M", "1.0 MiB", "1:00"]
    speed, step = (figures.of_run(key) for key in ("samples_per_second", "step_ms.p50"))
    assert [speed.phrase(1234.5), speed.bare(1234.5), step.phrase(12.3)] == ["1,234 samples/s", "1,234", "step 12.3 ms"]


@pytest.mark.parametrize(
    ("form", "value", "shown"),
    [
        (units.size, -3 * 1024**2, "-3.0 MiB"),
        (units.size, 99.94 * 1024, "99.9 KiB"),
        (units.size, 99.96 * 1024, "100 KiB"),
        (units.size, 1024**4, "1024 GiB"),
        (units.three_digits, 99.94, "99.9"),
        (units.three_digits, 99.96, "100"),
        (units.three_digits, -250.0, "-250"),
        (units.amount, -1234.0, "-1,234"),
        (units.amount, 0.0, "0"),
        (units.times, 9.5, "9.50 times"),
        (units.times, 10.0, "10.0 times"),
        (units.change, -1.0, "-100 %"),
        (units.change, -0.999, "-99.9 %"),
        (units.spread, 1.0, "100 %"),
        (units.abbreviated, 999.4, "999"),
        (units.abbreviated, 999.6, "1 k"),
        (units.gibibytes, 61.44 * 1024**3, "61.4"),
        (units.gibibytes, 99.94 * 1024**3, "99.9"),
        (units.gibibytes, 99.96 * 1024**3, "100"),
        (units.size, -99.96 * 1024, "-100 KiB"),
        (units.size, 1023.4 * 1024**2, "1023 MiB"),
        (units.size, 1023.6 * 1024**2, "1.0 GiB"),
        (units.clock, 59.99, "0:59"),
        (units.clock, 3600.0, "1:00:00"),
        (units.axis_time, 0.0, "0"),
        (units.axis_time, 20.0, "20 s"),
        (units.axis_time, 60.0, "1 min"),
        (units.axis_time, 90.0, "1:30 min"),
        (units.axis_time, 3600.0, "1 h"),
        (units.axis_time, 5430.0, "1:30 h"),
        (units.axis_time, 2 * 86_400.0, "2 d"),
        (units.estimate, 3.0, "10 s"),
        (units.estimate, 94.0, "90 s"),
        (units.estimate, 100.0, "2 min"),
        (units.estimate, 99 * 60.0, "99 min"),
        (units.estimate, 100 * 60.0, "1.7 h"),
    ],
)
def test_a_value_at_a_limit_has_the_unit_and_the_digits_of_its_side(
    form: Callable[[float], str], value: float, shown: str
) -> None:
    assert form(value) == shown


# ---- nothing beside the declarations ----------------------------------------------------------


def product() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("engine", "tui"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if not name.startswith(DECLARED):
                yield name, ast.parse(path.read_text())


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """All but docstrings, with their lines; of an f-string the parts between values."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def labels() -> set[str]:
    """What names a figure; a word that may as well be a key is left out."""
    found = {name for figure in RUN for name in (figure.label, figure.head, figure.name)}
    return {name for name in found if not name.isidentifier() and name}


def test_no_view_has_a_label_or_a_unit_of_its_own() -> None:
    unit = re.compile(r"samples/s\b|°C|\bMHz\b|ms/step")
    own = labels()
    assert {"input wait", "samples/s", "start-up"} <= own
    beside = [
        f"{name}:{line}: {value!r}"
        for name, tree in product()
        for line, value in strings(tree)
        if value.strip(" :,") in own or unit.search(value)
    ]
    assert beside == [], "read it from engine/figures"


def test_shares_and_bytes_are_formatted_in_the_text_module_alone() -> None:
    field = re.compile(r"\{[^{}]*%\}|\d%(?!\w)|\d ?[kKMG]B\b")
    after_a_value = re.compile(r" ?(%|[kKMGT]i?B\b)")
    found = []
    for name, tree in product():
        texts = [(line, value) for line, value in strings(tree) if "\n" not in value]  # else it is a style sheet
        lines = [line for line, value in texts if field.search(value)]
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                lines += [
                    node.lineno
                    for before, part in pairwise(node.values)
                    if isinstance(part, ast.Constant)
                    and isinstance(before, ast.FormattedValue)
                    and after_a_value.match(str(part.value))
                ]
            elif isinstance(node, ast.FormattedValue) and node.format_spec is not None:
                lines += [node.lineno] if ast.unparse(node.format_spec).rstrip("'\"").endswith("%") else []
        found += [f"{name}:{line}" for line in lines]
    beside = [place for place in found if place.rpartition(":")[0] not in PROSE]
    assert beside == [], "use engine/units.py"
    assert {place.rpartition(":")[0] for place in found} == set(PROSE), "of no use any more"


def test_one_thing_is_named_in_the_singular() -> None:
    for number, things, said in (
        (1, "steps", "1 step"), (0, "steps", "0 steps"), (12_346, "steps", "12,346 steps"), (1, "batches", "1 batch"),
        (1, "passes", "1 pass"), (1, "replicas", "1 replica"), (1, "GPUs", "1 GPU"), (2, "remedies", "2 remedies"),
        (1, "remedies", "1 remedy"), (1, "boxes", "1 box"), (1, "changed options", "1 changed option"),
        (None, "steps", "- steps"), (1, "MB", "1 MB"),
    ):  # fmt: skip
        assert units.counted(number, things) == said
    for info in OPTIONS:  # units of options are named in the plural
        one = units.named(1, info.about.unit)
        known = ("", "MB", "step", "sample", "batch", "file", "thread", "part", "epoch", "pixel", "minute", "second")
        assert one in known, info.key
