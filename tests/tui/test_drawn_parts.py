"""Cards, heads, feet of charts and charts word for word, with the styles that stand out: `__snapshots__` holds them."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from gputui.engine.trials.rate_record import RateSettings, RateTest
from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.base.settings import Charts
from gputui.tui.drawing import charts, host, log_rows, rate
from gputui.tui.drawing.live import chart_foot, head, layout, phases
from gputui.tui.drawing.plot.axes import x_scale
from gputui.tui.drawing.plot.canvas import draw
from gputui.tui.drawing.plot.curves import Curve, Plot, as_drawn
from gputui.tui.drawing.plot.overlay import overlaid
from gputui.tui.drawing.plot.viewport import Viewport
from gputui.tui.drawing.rows import Row, length, plain
from gputui.tui.reading.earlier_starts import EarlierStarts, Usual
from gputui.tui.reading.run.gpu_reading import Gpu, GpuProcess, Instance
from gputui.tui.reading.run.series import Line, Pace
from gputui.tui.reading.run.snapshot import BestEpoch, Message, Snapshot, Span, Spell
from gputui.tui.widgets.gpu_cards import card

Drawn = Any
GIB = 1024**3
QUIET = ("", "value", "label", "track")  # the styles that are not written down


def text(rows: Iterable[Row]) -> str:
    """The rows with the style in front of each piece that stands out."""
    lines = ("".join(piece if style in QUIET else f"<{style}>{piece}" for piece, style in row) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def line(*values: float | None, each: float = 1.0, breaks: Iterable[int] = (), lost: Any = None) -> Line:
    """Readings at 0, `each`, 2 `each` ...; ten steps are done between two of them."""
    places = array("d", [each * number for number in range(len(values))])
    steps = array("d", [10.0 * number for number in range(len(values))])
    y = array("d", [math.nan if value is None else value for value in values])
    return Line(places, y, frozenset(breaks), values[-1] if values else None, steps=steps, lost=lost)


# ---- GPUs ------------------------------------------------------------------------------------------------

BUSY = Gpu(
    3, name="NVIDIA H100 80GB HBM3", busy=0.97, memory_used_bytes=61.4 * GIB, memory_total_bytes=79.6 * GIB,
    temperature_c=64, power_w=612.4, power_limit_w=700.0, sm_clock_mhz=1980, tf_current_bytes=38.2 * GIB,
    tf_peak_bytes=57.9 * GIB, training=True, history=line(0.2, 0.9, 0.97, 0.5, 1.0, 0.0), energy_j=7.2e6,
    energy_wh=21.5, sm_active=0.87, tensor_active=0.45, dram_active=0.61, memory_busy=0.33, memory_clock_mhz=2619,
    pstate=0, slowed={"power": 0.1, "heat": 0.0, "reliability": 0.004}, ecc_corrected=0, ecc_uncorrected=0,
    mig_off=True,
    processes=(GpuProcess(5303, "python", 60.8 * GIB, True, use=0.9, idle_seconds=0.0, idle_at_least=False),
               GpuProcess(911, "Xorg", None, False, user="root", use=0.0, idle_seconds=90.0),
               GpuProcess(12, hidden="of another container")),
)  # fmt: skip
CARDS: Mapping[str, Gpu] = {
    "trains": BUSY,
    "slowed": replace(BUSY, throttle=("power cap", "heat"), temperature_c=83, power_w=525.0, busy=0.1, lease="run r7",
                      slowed={"power": 0.005, "heat": 0.0}, shared_with_host=True),
    "idle": Gpu(0, name="Tesla T4", busy=0.0, memory_used_bytes=0.5 * GIB, memory_total_bytes=15 * GIB, power_w=9.0,
                temperature_c=40, lease="free", counts_reserved=True, ecc_corrected=2, ecc_uncorrected=3, processes=(),
                history=line(0.0)),
    "unknown": Gpu(11, reasons={"busy": "unsupported", "memory_used_bytes": "no_permission", "nvlink": "error"}),
    "parted": replace(BUSY, mig=(Instance(3 * GIB, 10 * GIB), Instance(None, 20 * GIB)), mig_off=False, training=False,
                      clocks_set_by=("application clocks",), nvlink_links=18, nvlink_rx_bytes_per_second=30.0 * GIB),
    "lost": Gpu(1, missing="the GPU is lost (it has fallen off the bus); the machine needs a restart"),
}  # fmt: skip


@pytest.mark.parametrize("name", CARDS)
def test_the_card_of_a_gpu(name: str, snapshot: Drawn) -> None:
    parts = []
    for width, height in ((38, 1), (45, 1), (60, 1), (78, 1), (90, 1), (45, 2), (60, 4), (45, 6), (78, 9)):
        rows = card(CARDS[name], 5.0, width, height, PLAIN)
        assert (len(rows), {length(row) for row in rows}) == (height, {width})
        parts.append(f"---- {width} x {height}\n{text(rows)}")
    for width, height in ((60, 16), (78, 12)):
        parts.append(f"---- all in {width} x {height}\n{text(card(CARDS[name], 5.0, width, height, PLAIN, True))}")
    assert "\n".join(parts) == snapshot


def test_charts_of_the_machine(snapshot: Drawn) -> None:
    keys = ("", " memory", " power", " temperature")

    def machine(count: int) -> Snapshot:
        lines = {f"gpu{n}{key}": line(0.1 * n, 0.2 * n) for n in range(count) for key in keys}
        lines |= {f"gpus {word}{key}": line(0.3, 0.6) for word in ("mean", "lowest", "highest") for key in keys}
        return Snapshot(lines=lines | {"cpu": line(0.5, 0.25)}, gpus=tuple(map(Gpu, range(count))), elapsed=0.5)

    shown = []
    for count, picked in ((0, None), (1, 0), (4, 2), (5, 2), (5, None)):
        plots = charts.of_machine(machine(count), picked, Charts())
        shown.append(f"---- {count} GPUs, {picked}")
        for plot in plots:
            curves = ", ".join(f"{curve.label} / {curve.short}" for curve in plot.curves)
            shown.append(f"{plot.title} ({plot.unit}, {plot.bounds}, to {plot.x_end}, {plot.since}): {curves}")
    assert "\n".join(shown) == snapshot
    (memory,) = (plot for plot in charts.of_gpus(replace(machine(1), lines={"gpu0 memory": line(3.0 * GIB)}), [0]))
    assert (list(memory.curves[0].line.y), memory.curves[0].line.last) == ([3.0], 3.0)


# ---- heads and messages ----------------------------------------------------------------------------------

STARTED: dict[str, Any] = {
    "versions": {"tensorflow": "2.21.0"}, "devices": ["/device:GPU:0", "/device:GPU:1"], "global_batch_size": 4096,
    "actual": {"parameters": 25_600_000}, "replicas": 4, "workers": ["a:1", "b:1"], "worker": 1,
}  # fmt: skip
NAME = head.RunName("cnn batch_size=512", "20260921-100000-cnn", "a small network\nof mine", 12)
STATES: Mapping[str, Snapshot] = {
    "trains": Snapshot(
        phase="training", elapsed=3725.0, started=STARTED, first_step_seconds=4.5,
        progress={"step": 30, "steps": 1200, "epoch": 2, "epochs": 30, "eta_seconds": 65.0, "mfu": 0.41},
        diagnosis={"verdict": "input_bound", "sentence": "waits for its input", "confidence": 0.8},
    ),
    "compiles": Snapshot(phase="compiling", phase_seconds=61.0, elapsed=1.5, started={"devices": ["/device:CPU:0"]}),
    "evaluates": Snapshot(phase="compiling", phase_detail="evaluation", phase_seconds=1.0, elapsed=0.3),
    "waits": Snapshot(phase="configuring", phase_detail="waiting for worker 1 (b:1)", phase_seconds=9.0),
    "reads": Snapshot(phase="reading"),
    "by time": Snapshot(phase="training", progress={"step": 30, "steps": 900_000_000, "epoch": 1, "epochs": 1}),
    "unknown steps": Snapshot(phase="training", progress={"step": 30}, diagnosis={"verdict": "healthy"}),
    "early": Snapshot(outcome="ok", progress={"step": 30, "steps": 31}, elapsed=9.0),
    "stopped early": Snapshot(
        outcome="ok", progress={"step": 30, "steps": 31, "mfu": 0.4},
        summary={"ended_by": "early_stop", "epochs": 12,
                 "best": [{"option": "train.early_stop", "epoch": 7, "figure": "val_loss", "value": 0.25}]},
    ),
    "stopped": Snapshot(outcome="stopped", started=STARTED, diagnosis={"verdict": "undecided", "confidence": 0.9}),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_the_head_of_a_run(name: str, snapshot: Drawn) -> None:
    now = STATES[name]
    parts = [f"---- {width} cells\n{text(head.rows(NAME, 'held', now, width, PLAIN))}" for width in (50, 80, 130)]
    parts.append(text(head.rows(NAME._replace(number=None, title=NAME.id), "", now, 110, PLAIN, 2)))
    assert "\n".join(parts) == snapshot
    rows = head.rows(NAME, "", now, 40, PLAIN, 4)
    assert len(rows) <= 4
    if now.started.get("versions"):
        assert text(head.rows(NAME, "", now, 21, PLAIN)[2:3]) == "TensorFlow 2.21.0", "facts without room are left out"


def test_a_verdict_is_sure_likely_or_preliminary() -> None:
    words = [head.confidence({"verdict": "healthy", "confidence": share}) for share in (0.8, 0.79, 0.55, 0.54, None)]
    assert words == ["sure", "likely", "likely", "preliminary", ""]
    assert head.confidence({"verdict": "undecided", "confidence": 0.9}) == ""
    signs = [head.mark({"verdict": verdict}, PLAIN) for verdict in ("healthy", "input_bound", "undecided", None)]
    assert signs == [("ok", "good"), ("!", "warn"), ("~", "label"), ("~", "label")]
    due = [head.is_due(Snapshot(phase=phase, phase_detail=detail, outcome=outcome)) for phase, detail, outcome in (
        ("training", "", None), ("evaluating", "", None), ("saving", "", None), ("compiling", "evaluation", None),
        ("compiling", "", None), ("importing", "", None), ("training", "", "ok"))]  # fmt: skip
    assert due == [True, True, True, True, False, False, False]


def test_messages_and_the_error_of_a_run(snapshot: Drawn) -> None:
    fault = Message("oom", "out of memory at batch size 512: the trainer ended", "try input.batch_size=256", "")
    warnings = tuple(Message("x", f"number {n} of the warnings is long enough for two lines", f"do {n}", f"input.o{n}")
                     for n in range(4))  # fmt: skip
    named = (Message("x", "input.cache does nothing", "", "input.cache"),)
    parts = []
    for now, width, height, key in (
        (Snapshot(error=fault), 60, 9, "a"), (Snapshot(error=fault), 120, 9, "a"), (Snapshot(error=fault), 60, 9, ""),
        (Snapshot(error=replace(fault, hint="look")), 60, 9, "a"), (Snapshot(warnings=warnings), 60, 12, "a"),
        (Snapshot(warnings=warnings), 60, 11, "a"), (Snapshot(warnings=warnings), 60, 2, "a"),
        (Snapshot(warnings=warnings, error=fault), 60, 4, ""), (Snapshot(warnings=warnings, error=fault), 60, 2, ""),
        (Snapshot(warnings=named), 60, 4, ""),
    ):  # fmt: skip
        rows = head.message_rows(now, width, height, PLAIN, key)
        assert len(rows) <= height
        parts.append(f"---- {width} x {height}, {key}\n{text(rows)}")
    failed = Snapshot(outcome="oom", error=fault)
    parts += [text([phases.failure(failed, width, PLAIN)]) for width in (60, 100)]
    assert phases.failure(replace(failed, outcome=None), 60, PLAIN) == []
    assert phases.failure(Snapshot(outcome="ok"), 60, PLAIN) == []
    assert "\n".join(parts) == snapshot


def test_the_figures_of_the_result(snapshot: Drawn) -> None:
    summary = {"samples_per_second": 12_345.6, "step_ms": {"p50": 12.34}, "input_wait": 0.25, "seconds": 3725.0,
               "epochs": 2, "steps": 600, "metrics": {"loss": 0.123456}, "peak_memory_bytes": 3 * GIB, "goodput": 0.9,
               "startup_seconds": 12.0, "first_step_seconds": 4.5, "gpu_busy_mean": 0.9}  # fmt: skip
    now = Snapshot(outcome="ok", summary=summary, started={"devices": ["/device:GPU:0"]})
    unfinished = replace(now, summary=summary | {"epochs": 0}, started={"devices": ["/device:CPU:0"]})
    parts = [text(head.result_rows(each, width)) for each in (now, unfinished) for width in (30, 60, 110)]
    early = STATES["stopped early"]
    parts += [text(head.result_rows(early, width)) for width in (40, 100)]
    assert "\n----\n".join(parts) == snapshot
    assert [head.height(each, 60) for each in (now, Snapshot(), early)] == [
        len(head.result_rows(now, 60)), 0, len(head.result_rows(early, 60)),
    ]  # fmt: skip


# ---- the start, the host and the foot of the charts ---------------------------------------------------------

EARLIER = EarlierStarts(3, {"importing": Usual(6.0, 5.0, 8.5), "building": Usual(2.0, 0.5, 9.0),
                            "compiling": Usual(20.0, 19.0, 40.0)})  # fmt: skip


def test_the_phases_of_a_start(snapshot: Drawn) -> None:
    begun = (Span("starting", "", 0.02), Span("importing", "", 6.25))
    options = {"compile": {"steps_per_execution": 16}, "workload": {"model": "resnet50"}}
    started = STARTED | {"options": options}
    cases: tuple[tuple[Any, str, str, Any, Any], ...] = (
        (begun, "importing", "", None, {}), ((*begun, Span("building", "the model", 1.0)), "building", "", None, {}),
        ((*begun, Span("building", "", 1.0), Span("compiling", "XLA", 10.0)), "compiling", "XLA", None, started),
        ((*begun, Span("compiling", "", 16.0)), "compiling", "", None, started),
        ((*begun, Span("compiling", "", 35.5)), "compiling", "", None, {}),
        ((*begun, Span("compiling", "", 45.0)), "compiling", "", None, {}),
        ((*begun, Span("configuring", "waiting for worker 1 (b:1)", 9.0)), "configuring", "waiting for worker 1 (b:1)",
         None, {}),
        ((*begun, Span("compiling", "", 45.0)), "ended", "", "crashed", started),
    )  # fmt: skip
    parts = []
    for start, phase, detail, outcome, of_started in cases:
        now = Snapshot(start=start, phase=phase, phase_detail=detail, outcome=outcome, started=of_started, elapsed=0.7)
        parts += [f"---- {phase}", text(phases.rows(now, EARLIER, 100, 12, PLAIN))]
    small = Snapshot(start=begun, phase="importing")
    parts += ["---- small", *(text(phases.rows(small, EARLIER, *size, PLAIN)) for size in ((50, 4), (60, 1)))]
    spans = (Span("evaluating", "", 5.0, 3), Span("training", "", 99.0, 4), Span("saving", "", 1.5, 1),
             Span("compiling", "evaluation", 2.0, 1))  # fmt: skip
    rest = {span.phase + span.detail: span for span in spans}
    waits = Span("configuring", "waiting for worker 1 (b:1)", 2.0)
    over = Snapshot(start=(*begun, Span("importing", "", 1.0), waits, Span("compiling", "", 16.0)), rest=rest)
    parts += [text([phases.phase_line(over, width)]) for width in (30, 60, 90, 110, 160)]
    assert "\n".join(parts) == snapshot


def test_what_is_compiled_names_replicas_and_steps_only_if_there_are_several() -> None:
    def said(steps: int, replicas: object) -> str:
        started = {"options": {"compile": {"steps_per_execution": steps}}, "replicas": replicas, "actual": {}}
        now = Snapshot(start=(Span("compiling", "", 1.0),), phase="compiling", started=started)
        return plain(phases.rows(now, EARLIER, 100, 12, PLAIN)[-3]).strip()

    words = "TensorFlow traces the model"
    assert [said(*each) for each in ((1, 1), (2, 1), (1, 2), (16, 4), (0, None))] == [
        words, f"{words}, 2 steps in one graph", f"{words}, 2 replicas", f"{words}, 16 steps in one graph, 4 replicas",
        words,
    ]  # fmt: skip


def test_the_wait_for_other_workers_fills_no_bar_and_shortens_no_estimate() -> None:
    usual = EarlierStarts(2, {"configuring": Usual(4.0, 3.5, 4.5), "compiling": Usual(20.0, 19.0, 40.0)})
    own, wait = Span("configuring", "", 2.0), Span("configuring", "waiting for worker 1 (b:1)", 90.0)
    alone, waited = (
        phases.rows(Snapshot(start=start, phase="configuring"), usual, 100, 12, PLAIN)
        for start in ((own,), (wait, own))
    )
    assert waited[2:] == alone[1:]
    assert len(alone) == 5, "a head, two phases, and an estimate in two rows"
    words = []
    for seconds in (14.9, 15.0, 15.1, 20.0, 39.9):
        begun = Snapshot(start=(Span("compiling", "", seconds),), phase="compiling")
        words.append(" ".join(plain(phases.rows(begun, usual, 100, 12, PLAIN)[-2]).split()[1:4]))
    assert words == ["about 10 s", "about 10 s", "a few seconds", "about 20 s", "a few seconds"]


def test_the_host(snapshot: Drawn) -> None:
    readings: dict[str, Any] = {
        "cpu": 0.5, "memory_used_bytes": 12.3 * GIB, "memory_total_bytes": 64.0 * GIB, "trainer_cpu": 3.25,
        "trainer_bytes": 4.0 * GIB, "engine_bytes": 0.1 * GIB, "io_wait": 0.125,
    }  # fmt: skip
    now = Snapshot(host=readings, elapsed=5.0, lines={"cpu": line(0.2, 0.9, 0.5)}, no_gpu_reason="no driver (libnvml)")
    with_tensors = replace(now, tf_host={"current_bytes": 1.5 * GIB, "peak_bytes": 2.0 * GIB}, no_gpu_reason=None)
    over = replace(with_tensors, host=readings | {"trainer_bytes": 0}, started={"devices": ["/device:GPU:0"]},
                   no_gpu_reason="no permission: ask (somebody) for it")  # fmt: skip
    parts = []
    for each, alone in itertools.product((now, with_tensors, over, Snapshot()), (False, True)):
        parts += [text([host.host_line(each, width, PLAIN, alone)]) for width in (40, 60, 90, 120, 160)]
        parts += [text(host.host(each, 100, 4, PLAIN, alone))]
        parts += [text(host.no_gpu(each, width)) for width in (20, 80)]
    assert "\n".join(parts) == snapshot


def test_the_row_below_the_charts(snapshot: Drawn) -> None:
    speed = line(*range(10), each=2.0)
    spells = (Spell("evaluating", 5.0, 6.0, 30.0), Spell("saving", 8.0, 9.0, 40.0))
    now = Snapshot(lines={"samples_per_second": speed}, pace=Pace(4.0, 20.0, 8.0), spells=spells, elapsed=20.0,
                   start=(Span("importing", "", 6.0),), best={"a": BestEpoch(7, "val_loss", (6.0, 30.0)),
                                                              "b": BestEpoch(3, "loss", (5.0, 20.0))})  # fmt: skip
    marks: Any = {"best": (2.0,), "joins": (3.0,), "spells": ((1.0, 2.0, "e"), (4.0, 5.0, "s"))}
    time, step = (Plot("loss", "", (Curve("", speed),), x_unit=unit, x_end=14.0, **marks) for unit in ("time", "step"))
    view = Viewport()
    parts = [text([chart_foot.row(now, plots, view, width, PLAIN, "0")])
             for plots, width in itertools.product(([], [time]), (40, 70, 99))]  # fmt: skip
    for plot, cursor, window, dragged in (
        (time, 5.2, None, None), (step, 43.0, None, None), (step, 47.0, (40.0, 60.0), None), (time, 99.0, None, None),
        (time, None, (1.5, 3.25), None), (time, 2.0, None, (3.0, 1.0)), (step, None, (10.0, 20.0), (11.0, 12.0)),
    ):  # fmt: skip
        view.cursor, view.window, view.dragged = cursor, window, dragged
        parts += [text([chart_foot.row(now, [plot], view, width, PLAIN, "0")]) for width in (40, 90)]
    assert "\n".join(parts) == snapshot
    assert chart_foot.places(replace(now, lines={}), time, 5.0) == ["5.0 s after training began"]


# ---- charts --------------------------------------------------------------------------------------------------


def test_charts_with_their_marks_scales_and_legends(snapshot: Drawn) -> None:
    falling = line(*(100.0 / (n + 1) for n in range(30)))
    gaps = line(5.0, 6.0, None, 7.0, 8.0, 6.5, breaks=(4,), lost=(5.0, 60.0))
    means = Curve("epoch mean", line(9.0, 4.0), True, short="mean")
    whole = Plot("loss", "", (Curve("train", falling, lesser=True), means), x_unit="step", x_end=29.0,
                 joins=(10.0,), best=(20.0,), spells=((5.0, 8.0, "e"),), note="so far", corner="2 of 3",
                 how=("best epoch 3",))  # fmt: skip
    plots = (
        whole, as_drawn(whole, Charts(logarithmic=True, smoothing=0.5)), replace(whole, window=(3.0, 12.0), final=True),
        Plot("power", "W", (Curve("GPU 0", gaps), Curve("GPU 1", line(9.0, 3.0))), "zero", x_end=5.0, filled=True),
        Plot("busy", "", (Curve("", line(0.1, 0.9, 1.0)),), "share", x_end=2.0, final=True, filled=True),
        as_drawn(Plot("loss", "", (Curve("train", gaps),), x_end=5.0), Charts()),
        Plot("temperature", "°C", (Curve("GPU 0", line(40.0, 41.0, 43.0)),), x_unit="epoch", x_end=2.0),
        Plot("loss", "", (Curve("a", line(1e-6, 3e-5)),), x_end=90_000.0, logarithmic=True),
        Plot("val loss", "", tuple(Curve(f"r{n}", line(*(n + 1 / (k + 1) for k in range(40))), n % 2 == 0, colour=n)
                                   for n in range(5)), x_unit="step", x_end=39.0),
    )  # fmt: skip
    parts = []
    for plot, (width, height, glyphs) in itertools.product(plots, ((38, 6, PLAIN), (90, 12, PLAIN), (60, 9, RICH))):
        rows, scale = draw(plot, width, height, glyphs)
        parts.append(f"---- {plot.title}, {width} x {height}, to {scale.high:g}\n{text(rows)}")
    assert "\n".join(parts) == snapshot


def test_the_cursor_and_a_selected_range_lie_over_a_chart(snapshot: Drawn) -> None:
    plot = Plot("loss", "", (Curve("", line(*range(12))),), x_unit="step", x_end=11.0, final=True, corner="2 of 3")
    rows, _ = draw(plot, 60, 8, PLAIN)
    across, view, parts = x_scale(plot, 60 - 7), Viewport(), []
    for cursor, dragged, axis in ((5.0, None, True), (0.0, None, True), (11.0, None, True), (3.0, (8.0, 2.0), True),
                                  (5.0, None, False), (12.0, None, True), (None, None, True)):  # fmt: skip
        view.cursor, view.dragged = cursor, dragged
        parts.append(text(overlaid(rows[1:], plot, across, view, 60, axis, PLAIN)))
    assert "\n----\n".join(parts) == snapshot


def test_compared_runs_in_charts() -> None:
    def run(name: str, colour: int, count: int, **more: Any) -> charts.Named:
        lines = {"loss": line(*range(count, 0, -1)), "samples_per_second": line(*([100.0] * count), each=2.0)}
        pace = Pace(1.0, more.pop("per_epoch", 20.0), 8.0)
        return charts.Named(name, name[:1], colour, Snapshot(lines=lines, pace=pace, windowed=True, **more))

    one, two = run("one", 5, 3, outcome="ok"), run("two", 0, 30, outcome="ok")
    loss, speed = charts.compared_plots([one, two], Charts())
    assert [(plot.title, plot.unit, plot.x_unit, plot.x_end, plot.final, plot.filled) for plot in (loss, speed)] == [
        ("loss", "", "step", 290.0, True, False), ("throughput", "samples/s", "time", 57.0, True, False),
    ]  # fmt: skip
    assert [(curve.label, curve.short, curve.colour, curve.value) for curve in loss.curves] == [
        ("one last", "o last", 5, None), ("two last", "t last", 0, None),
    ]  # fmt: skip
    assert not charts.compared_plots([one, replace(two, now=replace(two.now, outcome=None))], Charts())[0].final
    assert [plot.x_unit for plot in charts.compared_plots([one, two], Charts(x_axis="epoch"))] == ["epoch", "epoch"]
    odd = [one, run("odd", 1, 9, per_epoch=None)]
    assert [plot.x_unit for plot in charts.compared_plots(odd, Charts(x_axis="epoch"))] == ["step", "time"]
    assert charts.axes(odd) == ["time", "step", "samples"]
    assert charts.axes([]) == []
    many = [run(f"{n}", n, 3) for n in range(9)]
    assert [len(plot.curves) for plot in charts.compared_plots(many, Charts())] == [8, 8]
    means = replace(one, now=replace(one.now, windowed=False))
    assert charts.compared_plots([means, two], Charts())[0].curves[0].label == "one (epoch mean) last"
    told = replace(one, figures={"metrics.loss": 0.5})
    assert [(curve.label, curve.value) for curve in charts.compared_plots([told, two], Charts())[0].curves] == [
        ("one", 0.5), ("two last", None),
    ]  # fmt: skip


@pytest.mark.parametrize(("last", "said"), [(4.9, True), (5.0, False), (50.0, False)])
def test_a_curve_on_less_than_a_twentieth_of_the_axis_is_hardly_seen(last: float, said: bool) -> None:
    short = Line(array("d", [0.0, last]), array("d", [1.0, 2.0]))
    long = Line(array("d", [0.0, 100.0]), array("d", [1.0, 2.0]))
    plot = Plot("loss", "", (Curve("a last", short), Curve("b", long)), x_end=100.0)
    text = f"a is hardly seen: it ends at {last:.1f} s, the axis at 1:40"
    assert charts.hardly_seen(plot) == (text if said else "")
    assert charts.hardly_seen(replace(plot, window=(0.0, 50.0))) == ""
    assert charts.hardly_seen(replace(plot, curves=plot.curves[:1])) == ""


def rate_test() -> RateTest:
    rates = [1e-6 * 10 ** (n / 4) for n in range(25)]
    losses = [2.3, *(2.3 - n / 20 for n in range(21)), 40.0, None, 40.0]
    smoothed = [2.3 - n / 25 for n in range(24)]
    suggestion: Any = {"suggested": 2e-3, "reason": "the loss falls fastest there", "lowest_at": 0.3}
    return RateTest(settings=RateSettings(), before=1e-3, rates=rates, losses=losses, smoothed=smoothed, **suggestion)


def test_a_range_test_of_the_learning_rate(snapshot: Drawn) -> None:
    test = rate_test()
    parts = [text(rate.detail(test, 70, 18, PLAIN)), text(rate.detail(test, 70, 5, PLAIN))]
    early = replace(test, smoothed=[], suggested=None)
    parts.append(text(rate.detail(early, 70, 18, PLAIN)))
    faint, lowest, suggested = rate.plot(test).curves
    assert (faint.faint, lowest.raw is faint.line, lowest.value) == (True, True, test.smoothed[-1])
    assert list(suggested.line.x) == pytest.approx([-2.69897])
    assert suggested.value == 2e-3
    assert rate.chart(replace(test, smoothed=[2.3]), 70, 9, PLAIN) == []
    assert len(rate.chart(replace(test, smoothed=[2.3, 2.2]), 70, 9, PLAIN)) == 9
    assert "\n----\n".join(parts) == snapshot


# ---- the log and the layout --------------------------------------------------------------------------------------


def test_a_time_in_a_line_of_the_log_is_one_of_the_day_from_a_billion_seconds_on() -> None:
    times = [log_rows.judged(f"I0000 00:00:{t}  1 a.cc:1] x").t for t in ("1795307329.7", "1000000000.5", "59.5")]
    assert times == [1795307329.7, 1000000000.5, 0.0]


def test_the_arrangement_of_cards_at_its_limits() -> None:
    for (width, height, count), cards in {
        (75, 6, 1): (1, 6), (75, 6, 2): (1, 3), (76, 6, 2): (2, 6), (76, 1, 5): (2, 1), (113, 2, 5): (2, 1),
        (114, 2, 5): (3, 1), (114, 4, 5): (3, 2), (37, 9, 3): (1, 3),
    }.items():  # fmt: skip
        assert layout.arrange(width, height, count)[:2] == cards, (width, height, count)
    for (width, height, count), whole in {
        (111, 14, 1): (1, 14, True, 0), (111, 9, 1): (1, 1, False, 8), (112, 14, 2): (2, 14, True, 0),
        (111, 14, 2): (2, 4, False, 10), (60, 20, 1): (1, 20, True, 0), (60, 13, 1): (1, 1, False, 12),
    }.items():  # fmt: skip
        assert layout.arrange_whole(width, height, count) == whole, (width, height, count)
    assert [layout.whole_card(width) for width in (76, 77)] == [14, 10]
