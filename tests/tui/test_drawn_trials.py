"""The rows of sweeps, compared speeds and waiting runs word for word, with their styles: `__snapshots__` holds them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from gputui.engine.compare.comparison import Comparison, FigureRow
from gputui.engine.trials import sweep_groups, sweep_sentences
from gputui.engine.trials.sweep_record import Axis, Sweep, SweepSettings, SweepTrial
from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.drawing import compared_speeds, parallel_coordinates, sweep
from gputui.tui.drawing.interval_bar import Interval
from gputui.tui.drawing.live import waiting
from gputui.tui.drawing.rows import Row, length
from gputui.tui.reading.queue_places import Waiting
from gputui.tui.reading.run.series import Line

Drawn = Any
QUIET = ("", "value", "label")  # the styles that are not written down


def text(rows: Iterable[Row]) -> str:
    """The rows with the style in front of each piece that stands out."""
    lines = ("".join(piece if style in QUIET else f"<{style}>{piece}" for piece, style in row) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


RATE, BATCH, DECAY = "train.learning_rate", "input.batch_size", "train.schedule"
AXES = (Axis(key=RATE, low=1e-4, high=1e-2, log=True), Axis(key=BATCH, values=(128, 32, 64)),
        Axis(key=DECAY, values=("cosine", "constant", True)))  # fmt: skip


def trial(number: int, rate: float, batch: int, decay: Any, seed: int, **more: Any) -> SweepTrial:
    changes = {RATE: rate, BATCH: batch, DECAY: decay}
    return SweepTrial(run=f"s-{number:03}", changes=changes, seed=seed, **more)


def done(number: int, rate: float, batch: int, decay: Any, value: float, seed: int = 1, **more: Any) -> SweepTrial:
    more = {"state": "done", "value": value, "seconds": 61.0, "ended_t": 5.0} | more
    return trial(number, rate, batch, decay, seed, **more)


TRIALS = [
    done(1, 1e-3, 64, "cosine", 0.52), done(2, 1e-3, 64, "cosine", 0.56, 2), done(3, 3e-3, 32, "constant", 0.31),
    done(4, 3e-3, 32, "constant", 0.35, 2), done(5, 1e-2, 128, "cosine", 1.75), done(6, 1e-4, 128, True, 0.9),
    trial(7, 2e-3, 32, True, 1, state="dropped", rungs=[2.5, 1.25], seconds=20.0, ended_t=9.0),
    trial(8, 5e-3, 64, "constant", 1, state="failed", error="killed", cause="crashed", seconds=3.0, ended_t=9.0),
    trial(9, 6e-3, 64, "constant", 1, state="running", rungs=[0.75], until=4),
    trial(10, 7e-3, 64, "constant", 1, state="planned"), trial(11, 8e-3, 64, "constant", 1, state="waiting"),
    trial(12, 9e-3, 64, "constant", 1, state="not trained"),
    done(13, 3e-3, 32, "constant", 0.4, 7, part="proof"),
]  # fmt: skip


def swept(higher: bool = False, axes: tuple[Axis, ...] = AXES, trials: Iterable[SweepTrial] = TRIALS) -> Sweep:
    settings = SweepSettings(axes=axes, metric="val_accuracy" if higher else "val_loss", higher=higher, seeds=2)
    best = {RATE: 3e-3, BATCH: 32, DECAY: "constant"}
    return Sweep(settings=settings, trials=list(trials), best=best, searched=0.33, compared=9, seconds_saved=123.0)


def test_the_settings_of_a_sweep(snapshot: Drawn) -> None:
    parts = []
    for higher in (False, True):
        whole = swept(higher)
        parts += ["----", text(sweep.in_brief(whole, "the result in a sentence", 60, 22, PLAIN))]
        parts += ["----", text(sweep.in_brief(whole, "the result in a sentence", 76, 10, PLAIN))]
    whole = swept()
    parts += ["----", text(sweep.about(whole, TRIALS, 60, PLAIN)), text(sweep.detail(whole, TRIALS, 28, 4, PLAIN))]
    assert "\n".join(parts) == snapshot
    assert [sweep.names(whole, [TRIALS[:2]], width) for width in (50, 51)] == [
        ("learning_rate, batch_size, schedule", ["0.001, 64, cosine"]),
        ("setting", ["learning_rate=0.001, batch_size=64, schedule=cosine"]),
    ]  # fmt: skip
    assert sweep.interval(TRIALS[:2]) == pytest.approx(Interval(0.54, 0.54 - 0.0008**0.5, 0.54 + 0.0008**0.5))


def test_the_rows_of_a_sweep_fit_into_their_height() -> None:
    whole = swept()
    for height in (1, 5, 12, 30):
        assert len(sweep.detail(whole, TRIALS, 80, height, PLAIN)) <= height
        assert len(sweep.in_brief(whole, "result", 80, height, PLAIN)) <= height
    over = 1 + 3 + 4 + 3  # a head and the values of each option that were trained to the end
    assert len(sweep.over_options(whole, 80, PLAIN)) == over
    remarks = len(sweep.about(whole, [], 80, PLAIN))
    assert len(sweep.detail(whole, [], 80, remarks + 1, PLAIN)) == remarks, "no heading without room for a row"
    assert len(sweep.detail(whole, [], 80, remarks + 2, PLAIN)) == remarks + 2
    assert len(sweep.detail(whole, [], 80, 99, PLAIN)) == remarks + 1 + over
    lucky = swept()
    lucky.proved = 0.5
    assert len(sweep.about(lucky, [], 20, PLAIN)) == 3, "a remark has at most three lines"
    lucky.settings = replace(lucky.settings, rungs=(2, 4))
    told = [row[0][0] for row in sweep.about(lucky, [], 300, PLAIN)]
    assert told == [sweep_sentences.luck(lucky), sweep_sentences.saved(lucky)]
    nothing = swept(trials=[])
    assert sweep.over_options(nothing, 80, PLAIN) == []
    assert sweep.reference([]) == 0.0
    groups = sweep_groups.in_order(TRIALS, False)
    assert sweep.reference(groups) == pytest.approx(0.33)
    own = [SweepTrial(run="p", changes={}, seed=1, state="done", value=0.8)]
    assert sweep.reference([*groups, own]) == pytest.approx(0.8), "that of the preset"
    assert sweep.names(whole, [*groups, own], 10)[0] == "setting", "the preset has no values"
    assert sweep.interval(own) == Interval(0.8, 0.8, 0.8)
    assert sweep.interval([]) is None


def test_the_curves_of_a_sweep(snapshot: Drawn) -> None:
    whole = swept()
    values = {trial.run: [2.0 / n + at / 10 for n in range(1, 9)] for at, trial in enumerate(TRIALS[:8])}
    lines = {run: Line(array("d", range(1, 9)), array("d", y), last=y[-1]) for run, y in values.items()}
    complete = {run: line for run, line in lines.items() if run < "s-007"}
    assert sweep.curves(whole, lines, 100, 7, PLAIN) == []
    assert sweep.curves(whole, {}, 100, 12, PLAIN) == []
    drawn = [sweep.curves(whole, some, 110, 8, PLAIN) for some in (lines, complete, {"s-001": lines["s-001"]})]
    assert "\n".join(map(text, drawn)) == snapshot


def test_parallel_coordinates(snapshot: Drawn) -> None:
    whole = swept()
    assert [parallel_coordinates.fits(whole, *size) for size in ((60, 8), (59, 8), (60, 7))] == [True, False, False]
    assert not parallel_coordinates.fits(swept(axes=AXES[:2]), 99, 30)
    assert not parallel_coordinates.fits(swept(trials=TRIALS[6:12]), 99, 30), "no setting has a metric"
    spread = [done(n, 10.0 ** -(n / 4), 32 * n, f"s{n}", n / 10) for n in range(1, 13)]
    many = swept(axes=tuple(Axis(key=axis.key, log=axis.log) for axis in AXES), trials=spread)
    parts = []
    for each, picked, size, glyphs in (
        (whole, TRIALS[5:6], (60, 12), PLAIN), (swept(True), TRIALS[:1], (90, 16), RICH),
        (many, spread[6:7], (100, 18), PLAIN), (swept(trials=TRIALS[6:12]), (), (70, 9), PLAIN),
        (swept(trials=TRIALS[:1]), (), (70, 9), PLAIN),
    ):  # fmt: skip
        rows = parallel_coordinates.parallel(each, picked, *size, glyphs)
        assert (len(rows), {length(row) for row in rows}) == (size[1], {size[0]})
        parts.append(text(rows))
    assert "\n\n".join(parts) == snapshot


def compared(changes: tuple[float | None, ...], noise: float | None, key: str = "samples_per_second") -> Comparison:
    row = FigureRow(key, "throughput", "samples/s", True, tuple(100.0 for _ in changes), changes, noise)
    runs = tuple(f"r{n}" for n in range(len(changes)))
    return Comparison("r0", "first", runs, (), (), (), (row,), ())


def test_the_speeds_of_compared_runs(snapshot: Drawn) -> None:
    names = ["base", "xla", "a run with a very long name", "two", "none"]
    parts = []
    for changes, noise in (((0.0, 0.25, -0.1, 0.02, None), 0.02), ((0.0, 0.25, -0.1, 0.021, None), 0.02),
                           ((0.0, 0.25, -0.1, 0.02, None), None)):  # fmt: skip
        each = compared(changes, noise)
        parts += [text(compared_speeds.rows(each, names, width, PLAIN)) for width in (70, 120)]
    assert "\n".join(parts) == snapshot
    assert compared_speeds.rows(compared((0.0, None), 0.1), names, 80, PLAIN) == []
    assert compared_speeds.rows(compared((0.0, 0.5), 0.1, "step_ms.p50"), names, 80, PLAIN) == []
    assert len(compared_speeds.rows(compared((0.0, 0.5, 0.2), 0.1), names[:2], 80, PLAIN)) == 2


HELD = "held by you"
WAITS: Mapping[str, Waiting] = {
    "waits": Waiting("r7", 2, why="needs 2 GPUs; GPU 0: used by bob", when="in about 4:10", needs="2 GPUs",
                     since=1000.0, after="r3", count=3),
    "unknown": Waiting("r7", 1, since=2000.0, needs="1 GPU"),
    "of Slurm": Waiting("r7", None, why="waits in Slurm as job 5", when="soon", needs="1 GPU", since=1000.0),
    "held": Waiting("r7", 1, held=True, why=HELD, when="soon", needs="1 GPU", since=1000.0),
}  # fmt: skip


def test_a_run_that_waits(snapshot: Drawn) -> None:
    parts = [f"---- {name}\n{text(waiting.rows(each, 1090.0, 60, True))}" for name, each in WAITS.items()]
    parts += [text(waiting.rows(each, 1090.0, 30, False)) for each in WAITS.values()]
    assert "\n".join(parts) == snapshot
    assert [waiting.state(each) for each in WAITS.values()] == ["waiting in the queue"] * 3 + ["held"]
    assert [str(each) for each in WAITS.values()] == [
        "place 2, in about 4:10: needs 2 GPUs; GPU 0: used by bob", "place 1", "soon: waits in Slurm as job 5", HELD,
    ]  # fmt: skip
    assert str(Waiting("r7", 1, held=True, why="a failure")) == "held: a failure"
