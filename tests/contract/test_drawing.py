"""What is drawn of GPUs, runs, charts and logs that are played from played/*.txt: the rows of each, in golden/drawing/.

A file of played/ has blocks: `---- NAME` or `---- NAME | the moment at which it is looked at`, then an event in each
line: seconds, type, and fields in JSON where they are other than usual; or the name of a block `==== NAME`.
"""

from __future__ import annotations

import difflib
import json
import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.conftest import HERE, Golden
from tests.contract.test_screens import arrived
from tests.doors import engine, tui
from tests.doors.tui import PLAIN, RICH, Waiting
from tests.support import recorded
from tests.support.form_pilot import LARGE, SMALL
from tests.support.recorded import BEGAN, GIB
from tests.support.tiny import Tiny, wait_for

JUDGING = ("good", "warn", "bad", "light", "moderate", "heavy")
Told = dict[str, Any]


def text(rows: Iterable[Sequence[tuple[str, str]]]) -> str:
    """The rows as lines: a piece in a colour that judges has its name before it."""
    lines = []
    for row in rows:
        alike = groupby(row, key=lambda piece: piece[1] if piece[1] in JUDGING else "")
        pieces = ((style, "".join(piece[0] for piece in group)) for style, group in alike)
        lines.append("".join(f"<{style}>{part}" if style and part.strip() else part for style, part in pieces).rstrip())
    return "\n".join(lines).rstrip() + "\n"


def differing(shown: str, usual: str) -> str:
    """What is shown in place of usual lines, with how many of these are gone; all of it if nothing is usual."""
    old, new, lines = usual.splitlines(True), shown.splitlines(True), list[str]()
    for kind, begin, end, first, last in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if kind != "equal":
            gone = end - begin
            lines += [f"({gone} gone)\n"] * (gone != last - first) + new[first:last]
    return "".join(lines) if usual else shown


FULL: Told = {
    "index": 0, "uuid": "GPU-0", "name": "NVIDIA H100 80GB HBM3", "busy": 0.93, "memory_busy": 0.41,
    "memory_used_bytes": 61 * GIB, "memory_total_bytes": 80 * GIB, "temperature_c": 64, "power_w": 578.4,
    "power_limit_w": 700.0, "energy_j": 7_200_000, "sm_clock_mhz": 1965, "max_sm_clock_mhz": 1980,
    "memory_clock_mhz": 2619, "throttle": [], "pstate": 0, "slowed_by_power_seconds": 10.0,
    "slowed_by_heat_seconds": 0.0, "sm_active": 0.85, "tensor_active": 0.45, "dram_active": 0.57,
    "pcie_rx_bytes_per_second": 1_400_000_000, "pcie_tx_bytes_per_second": 200_000_000,
    "nvlink": {"links": 18, "rx_bytes_per_second": 31 * GIB, "tx_bytes_per_second": 29 * GIB},
    "ecc_errors": {"corrected": 0, "uncorrected": 0}, "mig": None, "processes": [],
}  # fmt: skip

USUAL: Told = {
    "started": {
        "versions": {"tensorflow": "2.21.0"}, "devices": ["/device:GPU:0"], "gpus": ["GPU-0"], "replicas": 1,
        "global_batch_size": 1024, "steps_per_epoch": 100, "epochs": 3, "steps": 300, "options": {},
        "actual": {"parameters": 25_600_000},
    },
    "host": {
        "cpu": 0.34, "memory_used_bytes": 88 * GIB, "memory_total_bytes": 512 * GIB, "engine_bytes": 36_000_000,
        "trainer_bytes": 14 * GIB, "trainer_cpu": 11.4, "io_wait": 0.02,
    },
    "progress": {
        "epoch": 1, "epochs": 3, "steps": 300, "samples_per_second": 9_800.0, "step_ms_p50": 104.0,
        "step_ms_p95": 120.0, "input_wait": 0.08, "loss": 1.5, "metrics": {"accuracy": 0.5}, "eta_seconds": 65.0,
    },
    "done": {
        "samples_per_second": 9_900.0, "step_ms": {"p50": 104.0, "p95": 120.0}, "input_wait": 0.08, "steps": 300,
        "epochs": 3, "seconds": 42.0, "goodput": 0.86, "metrics": {"loss": 0.3, "accuracy": 0.9, "val_loss": 0.4},
    },
    "reading": {"takes": 0.1, "lost": [], "errors": []},
}  # fmt: skip
COUNTS = ("step", "steps", "epoch", "epochs")  # which are absent if they are not known


def at(t: float, type_: str, **fields: Any) -> Told:
    """An event so many seconds after the begin, with the usual fields of its type."""
    fields = USUAL.get(type_, {}) | fields
    if type_ in ("done", "finished") and "summary" not in fields:
        outcome = fields.setdefault("outcome", "ok")
        type_, fields = "finished", {"outcome": outcome, "summary": fields}
    known = {name: value for name, value in fields.items() if value is not None or name not in COUNTS}
    return {"t": BEGAN + t, "type": type_, **known}


def in_bytes(fields: Told) -> Told:
    """With the numbers of bytes that are written as `61.4 GiB`."""
    return {
        name: int(float(value.removesuffix(" GiB")) * GIB) if str(value).endswith(" GiB") else value
        for name, value in fields.items()
    }


class Script:
    """The blocks of a file of played/: the events of each, and the number behind its name, if there is one.

    `gpu0` is a reading of GPU 0 with the values of the reading before, `gpus` one of several GPUs.
    """

    def __init__(self, file: str) -> None:
        self.named: dict[str, list[Told]] = {}
        self.blocks: dict[str, tuple[list[Told], float | None]] = {}
        into, gpu = list[Told](), Told()
        for line in (HERE / "played" / file).read_text(encoding="utf-8").splitlines():
            kind, _, rest = line.partition(" ")
            if kind in ("====", "----"):
                into, gpu = [], dict(FULL)
                name, _, clock = rest.partition(" | ")
                if kind == "====":
                    self.named[name] = into
                else:
                    self.blocks[name] = into, float(clock) if clock else None
            else:
                into += self.named[line] if line in self.named else [self._event(float(kind), *rest.split(" ", 1), gpu)]

    def _event(self, t: float, type_: str, *more: Any) -> Told:
        *fields, gpu = more
        if type_ == "phase":
            name, _, detail = fields[0].partition(" ")
            return at(t, type_, phase=name, detail=detail)
        given: Any = json.loads(fields[0], object_hook=in_bytes) if fields else {}
        if type_ == "gpu0":
            gpu |= given
            known = {name: value for name, value in gpu.items() if value is not None or name in FULL}
            return at(t, "gpu", gpus=[known], interval_seconds=10.0)
        if type_ == "gpus":
            return at(t, "gpu", gpus=[FULL | {"index": n, "uuid": f"GPU-{n}"} | one for n, one in enumerate(given)])
        return at(t, type_, **given)


def played(*told: Told, clock: float | None = None) -> tui.Snapshot:
    """What is read of these lines of the event files, at the moment `clock` or the last one."""
    store = tui.Store()
    read = [engine.parsing.parse_line(json.dumps({"run": "r", **event}).encode()) for event in told]
    assert None not in read, [event for event, as_read in zip(told, read, strict=True) if as_read is None]
    store.feed(event for event in read if event is not None)
    return store.snapshot(None if clock is None else BEGAN + clock)


# ---- GPUs -------------------------------------------------------------------------------------------

LEASES = {"moderate": "free", "processes": "bob's night\x1b work since 14:05", "strangers alone": "stuck: it ended"}


def test_the_cards_of_gpus(golden: Golden, not_at_utc: None) -> None:
    parts, usual = list[str](), ""
    for name, (told, _) in Script("gpus.txt").blocks.items():
        now = played(at(0.0, "phase", phase="training"), *told)
        gpu = replace(now.gpus[0], lease=LEASES.get(name, ""))
        drawn = [tui.card(gpu, now.elapsed, width, height, RICH) for width, height in ((40, 1), (100, 1), (46, 7))]
        shown = "".join(
            map(text, [*drawn, tui.gpu_details.whole(gpu, 78, 12, RICH), [[(tui.kinds([gpu], False).plain, "")]]])
        )
        parts += [f"---- {name}\n", differing(shown, usual)]
        usual = usual or shown
    golden("drawing/gpus.txt", "".join(parts))


def test_the_devices_of_a_run(golden: Golden, not_at_utc: None) -> None:
    parts, usual = list[str](), ""
    for name, (told, _) in Script("devices.txt").blocks.items():
        now = played(at(0.0, "phase", phase="training"), *told)
        drawn = [tui.card(gpu, now.elapsed, 60, 1 if now.gpus[1:] else 8, RICH, True) for gpu in now.gpus]
        drawn += [[tui.gpu_details.host_line(now, width, RICH, alone)] for width, alone in ((110, False), (60, True))]
        if not now.gpus:
            drawn += [tui.gpu_details.no_gpu(now, width) for width in (60, 24)]
            drawn += [tui.gpu_details.host(now, 80, 4, RICH)]
        charted = [*tui.charts.plots(now), *(tui.charts.of_machine(now, 1, tui.Charts()) if now.gpus[1:] else ())]
        drawn += [[tui.title(plot, 70, RICH)] for plot in charted if "GPU" in plot.title and plot.title[-1] in "yr"]
        parts += [f"---- {name}: {tui.kinds(now.gpus, now.outcome is not None).plain}\n"]
        shown = "".join(map(text, drawn))
        parts += [differing(shown, usual if len(now.gpus) == 1 else "")]
        usual = usual or shown
    golden("drawing/devices.txt", "".join(parts))


# ---- runs -------------------------------------------------------------------------------------------


EARLIER = tui.earlier_starts.usual([
    {"starting": 0.3, "importing": 6.0, "configuring": 0.2, "building": 1.0, "compiling": 4.0},
    {"starting": 0.3, "importing": 0.5, "configuring": 0.2, "building": 1.2, "compiling": 5.0},
    {"starting": 0.3, "importing": 28.0, "configuring": 0.2, "building": 1.1, "compiling": 4.5},
])  # fmt: skip


def state(now: tui.Snapshot) -> str:
    joins, breaks = [f"{t:.1f} s at step {step:.0f}" for t, step in now.joins], sorted(now.line("loss").breaks)
    return (
        f"{now.elapsed:.1f} s, {now.phase} for {now.phase_seconds:.1f} s; from {now.pace.begin:.1f} s on; an epoch: "
        f"{now.pace.steps_per_epoch} steps, a step: {now.pace.samples_per_step} samples; joins {joins}, breaks {breaks}"
    )


def test_the_live_view_of_a_run(golden: Golden) -> None:
    """Of each kind of state the first is shown whole, and of the others what differs from it."""
    parts, usual = list[str](), dict[str, str]()
    for name, (told, clock) in Script("runs.txt").blocks.items():
        now = played(*told, clock=clock) if told else replace(played(), phase=tui.phases.READING)
        drawn = [tui.head.rows(tui.head.RunName("cnn: epochs=3", "20260921-cnn", "images", 3), "", now, 100, RICH)]
        drawn += [
            tui.head.message_rows(now, 76, 6, RICH, "a"),
            [[(line, "")] for line in tui.worker_lines(now.workers)],
        ]
        drawn += [[tui.phases.failure(now, 90, RICH)], tui.head.result_rows(now, 90)] if now.outcome else []
        if tui.phases.is_due(now):
            drawn += [tui.phases.rows(now, EARLIER, 90, 12, RICH)]
        else:
            drawn += [[tui.phases.phase_line(now, width) for width in (100, 50)]]
            drawn += [[tui.title(plot, 90, RICH) for plot in tui.charts.on_one_axis(now, tui.Charts())[:5]]]
        drawn += [[[(row.text, "")] for row in tui.rows([], [], now.epochs, RICH)], [[(state(now), "")]]]
        shown = "".join(text(rows) for rows in drawn if rows)
        kind = "ended" if now.outcome else "starts" if tui.phases.is_due(now) else "trains"
        parts += [f"---- {name}\n", differing(shown, usual.get(kind, ""))]
        usual |= {kind: usual.get(kind, shown)} if told else {}
    golden("drawing/runs.txt", "".join(parts))


# ---- charts -----------------------------------------------------------------------------------------


def long_run(script: Script) -> list[Told]:
    """Of 900 s with three epochs, evaluations, a checkpoint, the best epochs, and a resume after a pause of an hour."""
    told = list(script.named["LONG"])
    for second in range(13, 913, 10):
        later = 3600 * (second > 610)
        step = (second - 13) // 3 - (40 if later else 0)
        loss = None if second == 203 else 2.5 * 0.99 ** (step / 3)
        told.append(at(
            second + later, "progress", step=step, epoch=1 + step // 100, samples_per_second=9_000.0 + second,
            input_wait=second / 2000, step_ms_p50=100.0 + second % 7, step_ms_p95=120.0 + second % 30, window_loss=loss,
            metrics={"accuracy": step / 400}, learning_rate=0.002 * 0.98 ** (step / 3),
        ))  # fmt: skip
    return sorted(told, key=lambda event: event["t"])


# What is done to the visible part and the cursor of charts, one after the other.
MOVES: dict[str, Any] = {
    "the first move": lambda view: view.move(-1, 60),
    "ten columns to the left": lambda view: view.move(-10, 60),
    "closer, twice": lambda view: [view.zoom(0.5) for _ in "12"],
    "the cursor far to the left": lambda view: view.move(-40, 60),
    "to the first point": lambda view: view.place(view.whole[0]),
    "beyond the end": lambda view: view.place(10 * view.whole[1]),
    "all": lambda view: view.all(),
    "closer around the newest": lambda view: view.zoom(0.25),
    "the mouse comes": lambda view: view.hover((view.whole[0] + view.whole[1]) / 3),
    "the mouse leaves": lambda view: view.hover(None),
    "a range is dragged": lambda view: view.__dict__.update(dragged=(0.7 * view.whole[1], 0.5 * view.whole[1])),
    "and selected": lambda view: [view.__dict__.update(dragged=None), view.select(0.7 * view.whole[1], -5.0)],
    "closer at the begin": lambda view: [view.place(view.whole[0]), view.zoom(0.5)],
    "closer at the end": lambda view: [view.place(view.whole[1]), view.zoom(0.5)],
    "wider than is left": lambda view: [view.place(view.whole[1]), view.zoom(0.25), view.zoom(2.0, view.visible.low)],
    "as close as possible": lambda view: [view.zoom(0.5, 0.4 * view.whole[1]) for _ in range(20)],
    "farther than all": lambda view: [view.zoom(2.0) for _ in range(20)],
    "at the resume": lambda view: view.place(0.657 * view.whole[1]),
    "between two epochs": lambda view: view.place(0.6 * view.whole[1]),
}
# What is shown of charts that then get newer points.
CHOICES: dict[str, Any] = {
    "closer around the newest": lambda view: view.zoom(0.25),
    "closer, and then a range up to the newest": lambda view: [view.zoom(0.25), view.select(700.0, view.last)],
    "closer at the begin": lambda view: view.zoom(0.25, 0.0),
}
AXES = {"auto": slice(None), "step": slice(2), "epoch": slice(-2, None), "samples": slice(4)}
# Charts as pictures: the place of the chart, width, height, glyphs, and the settings.
PICTURES: tuple[tuple[int, int, int, Any, Told], ...] = (
    (1, 60, 12, RICH, {}), (1, 60, 9, RICH, {"fill": False, "smoothing": 0.9}), (1, 60, 8, PLAIN, {"x_axis": "epoch"}),
    (1, 50, 8, RICH, {"x_axis": "step", "logarithmic": "on"}), (2, 40, 6, RICH, {"x_axis": "samples"}),
    (3, 40, 4, RICH, {}), (0, 40, 14, PLAIN, {}), (0, 40, 6, RICH, {"logarithmic": "on", "smoothing": 0.6}),
    (5, 50, 7, RICH, {}), (9, 50, 6, RICH, {}),
)  # fmt: skip


def test_charts_their_cursor_and_their_visible_part(golden: Golden) -> None:
    now, parts = played(*long_run(Script("runs.txt"))), list[str]()
    for place, width, height, glyphs, settings in PICTURES:
        plot = tui.charts.on_one_axis(now, tui.Charts(**settings))[place]
        parts += [f"---- {settings}\n", text(tui.draw(plot, width, height, glyphs)[0])]
    for x_axis, moves in AXES.items():
        drawn, view = tui.Charts(x_axis), tui.Viewport()
        for name, move in list(MOVES.items())[moves]:
            view.suit(tui.charts.on_one_axis(now, drawn))
            move(view)
            plots = tui.charts.on_one_axis(now, drawn, view.window)
            rows = [tui.charts.row(now, plots, view, 110, RICH, "0", alone) for alone in (False, True)]
            if view.cursor is not None:
                near = (view.visible.high - view.visible.low) / 60
                rows += [row for plot in plots[:2] for row in tui.cursor.rows(plot, view.cursor, near, 110, RICH)]
            low, high = view.window or view.whole
            parts += [f"---- {x_axis}, {name}: {low:.4g} to {high:.4g}, {view.closer:.4g} times\n", text(rows)]
        table = tui.cursor.table(tui.charts.on_one_axis(now, drawn, (0.42 * view.whole[1], 0.44 * view.whole[1]))[1])
        parts += [f"---- {x_axis}, the values\n{table.expandtabs(12)}\n"]
    more = played(*long_run(Script("runs.txt")), at(4_660.0, "progress", step=295, epoch=3))
    for name, choose in CHOICES.items():
        view = tui.Viewport()
        for read in (now, more):
            view.suit(tui.charts.on_one_axis(read, tui.Charts()))
            if read is now:
                choose(view)
            parts += [f"---- {name}: {view.visible.low:.4g} to {view.visible.high:.4g} of {view.whole[1]:.4g}\n"]
    places, means, lows, highs = (array("d", values) for values in ((1.0, 2.0), (5.0, 6.0), (4.0, 6.0), (5.5, 6.0)))
    merged = tui.series_Line(places, means, each=2, low=lows, high=highs)
    plot = tui.Plot("loss", "", (tui.Curve("", merged),), x_unit="step", x_end=2.0, final=True)
    parts += ["---- merged readings\n", *(text(tui.cursor.rows(plot, at, 0.1, 60, RICH)) for at in places)]
    # Phases near each other; at its last step while it goes on; steps again; a gap, and readings before it trains.
    for name, place in (("NEAR", 1), ("FEW STEPS", 1), ("STEPS AGAIN", 1), ("A GAP", 5)):
        now = played(*Script("runs.txt").named[name])
        for x_axis in ("auto", "step"):
            plot = tui.charts.on_one_axis(now, tui.Charts(x_axis))[place]
            parts += [f"---- {name.lower()}, {x_axis}\n", text(tui.draw(plot, 60, 6, RICH)[0])]
    golden("drawing/charts.txt", "".join(parts))


ENDS = (0.0, 0.4, 5.0, 17.0, 61.0, 3_700.0, 200_000.0)
RANGES = ((0, 1), (0, 0), (5, 5), (-3, 7), (0.001, 0.0034), (9_990, 10_010), (1e5, 3e6), (-2e9, 5e9), (1e-8, 1e4))


def test_the_axes_of_a_chart(golden: Golden) -> None:
    """Labels of the horizontal axis by its unit and end, and of the vertical by the values and the height."""
    parts = list[str]()
    for unit, end, final in product(("time", "step", "epoch", "samples"), ENDS, (False, True)):
        line = tui.series_Line(array("d", [0.0, end]), array("d", [0.0, 1.0]))
        plot = tui.Plot("", "", (tui.Curve("", line),), x_unit=unit, x_end=end, final=final)
        parts += [f"{unit:<8}{end:<9g}{'ended' if final else '':<6}{text(tui.draw(plot, 70, 5, RICH)[0][-1:])}"]
    for (low, high), tall, logarithmic, bounds in product(RANGES, (5, 9, 16), (False, True), ("free", "zero")):
        if low >= 0 and (bounds == "free" or not logarithmic):
            curve = tui.Curve("", tui.series_Line(array("d", [0.0, 9.0]), array("d", [low, high])))
            plot = tui.Plot("", "", (curve,), bounds, x_end=9.0, logarithmic=logarithmic)
            rows = tui.draw(plot, 30, tall, RICH)[0][1 : tall - (tall > 4)]
            labels = " ".join(row[0][0].strip() or "." for row in reversed(rows))
            parts += [f"{low:g} to {high:g}, {bounds}{', log' * logarithmic}, {tall} rows: {labels}\n"]
    golden("drawing/axes.txt", "".join(parts))


# The numbers of charts and GPUs, and the rows for which messages, the summary, the head and the error ask.
DEMANDS = ((6, 0, 0, 0, 3, 0), (6, 0, 2, 0, 4, 0), (9, 1, 0, 0, 3, 0), (9, 2, 4, 5, 5, 4), (9, 8, 0, 3, 5, 0),
           (9, 8, 12, 6, 5, 6), (5, 0, 9, 3, 3, 9), (0, 1, 0, 0, 3, 0))  # fmt: skip
SIZES = ((60, 12), (78, 22), (95, 30), (96, 29), (118, 38), (198, 58))


def test_how_the_live_view_divides_the_screen(golden: Golden) -> None:
    parts = list[str]()
    for demand, (width, height) in product(DEMANDS, SIZES):
        for zoom in ("", *(("charts", "log") if (width, demand) == (118, DEMANDS[3]) else ())):
            found = tui.layout.share_out(width, height, tui.layout.Demand(*demand), zoom)
            shown = {name: value for name, value in vars(found).items() if value}
            cards = shown.pop("cards")
            told = ", ".join(f"{name} {number}" for name, number in shown.items())
            parts += [f"{demand} {width}x{height} {zoom}: {told}; {cards.columns} cards of {cards.tall}"]
            parts += [f"{', all' * cards.all_of_it}, below {cards.detail}\n"]
    golden("drawing/layouts.txt", "".join(parts))


QUEUED = {
    "the second": Waiting("r4 cnn", 2, needs="1 GPU", since=BEGAN, count=3, when="in about 4:10", why="GPU 0 is used"),
    "after another": Waiting("r4 cnn", 1, after="r3 mlp", since=BEGAN + 99.0, why="waits for r3 mlp \x1b to end " * 3),
    "held": Waiting("r4 cnn", 1, held=True, since=BEGAN, when="soon", why="by ann"),
    "of Slurm": Waiting("r4 cnn", None, since=BEGAN, why="held by Slurm", held=True),
}


def test_a_run_in_the_queue(golden: Golden) -> None:
    parts = list[str]()
    for (name, waiting), is_new in product(QUEUED.items(), (True, False)):
        rows = tui.phases.waiting_rows(waiting, BEGAN + 75.0, 60, is_new)
        parts += [f"---- {name}, {'new' if is_new else 'begun before'}\n", text(row for row in rows if row)]
    golden("drawing/queued.txt", "".join(parts))


def test_the_charts_of_compared_runs(golden: Golden) -> None:
    script, parts = Script("runs.txt"), list[str]()
    read = {name.lower(): played(*told) for name, told in script.named.items()} | {"long": played(*long_run(script))}
    for names in (["long", "short"], ["means", "short", "first"], ["one gpu", "two gpus"], ["long"] * 9, ["first"]):
        runs = [
            tui.charts.Named(
                f"r{n} {name}", f"r{n}", n % 8, read[name], {"samples_per_second": 100.0 * n, "metrics.loss": n}
            )
            for n, name in enumerate(names)
        ]
        plots = tui.charts.compared_plots(runs, tui.Charts(smoothing=0.6))
        parts += [f"---- {', '.join(names)}: {', '.join(tui.charts.axes(runs))}\n", *(text([tui.title(plot, 100, RICH)])
                  + (f"{seen}\n" if (seen := tui.charts.hardly_seen(plot)) else "") for plot in plots)]  # fmt: skip
        parts += [
            text(tui.draw(plot, 60, 9, RICH)[0]) for plot in tui.charts.compared_plots(runs, tui.Charts("epoch"))[:1]
        ]
    golden("drawing/compared.txt", "".join(parts))


def compared_run(home: Path, name: str, told: Told) -> engine.Run:
    """A recorded run with these fields in its result, and in the event with which it began to train."""
    settings, outcome = tuple(told.get("settings", ())), told.get("outcome", "ok")
    run = recorded.write(home, name=name, gpus=0, seconds=14, outcome=outcome, settings=settings)
    lines = [json.loads(line) for line in run.file("events.jsonl").read_text().splitlines()]
    lines = [event | told.get("started", {}) if event["type"] == "started" else event for event in lines]
    run.file("events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in lines))
    changes = {f"train.{name}": (None, value) for name, value in told.get("changes", {}).items()}
    run.file("origin.json").write_text(engine.titles.record("cnn", "", changes))
    if outcome is not None:
        speed = {"outcome": outcome, "samples_per_second": told.get("speed", 1000.0), "metrics": {"loss": 0.5}}
        run.file("result.json").write_text(json.dumps(speed | told.get("result", {})))
    return run


def test_comparisons(home: Path, golden: Golden) -> None:
    parts = list[str]()
    for number, (name, (told, _)) in enumerate(Script("comparisons.txt").blocks.items()):
        runs = [compared_run(home, f"{number}-{letter}", one) for letter, one in zip("abcd", told, strict=False)]
        found = engine.compare(engine.LineUp(tuple(runs)))
        whole, brief = (tui.comparison.remarks(found, width) for width in (0, 78))
        speeds = tui.comparison.speeds(found, [f"r{at}" for at in range(len(runs))])
        less = ", ".join(row.label for row in found.figures if row.more_is_better is False)
        names = tui.comparison.distinct_names(tui.comparison.distinct(found.titles), found.names)
        parts += [f"---- {name}; of {less} less is better\n"]
        parts += [f"{', '.join(names)}\n"] if "changes" in told[0] else []
        parts += [f"{' | '.join(cells).rstrip(' |')}\n" for cells in tui.comparison.table_rows(found)[2:]]
        parts += [f"- {line}\n" for line in [*whole, *(f"in brief: {line}" for line in brief if line not in whole)][1:]]
        parts += [text(tui.table_rows(speeds, 70, RICH))] if speeds and any("speed" in one for one in told) else []
    golden("drawing/comparisons.txt", "".join(parts))


@pytest.mark.parametrize(("size", "keys"), [((120, 19), "right right"), ((80, 19), "")])  # too low for curves
async def test_the_screen_of_a_comparison(size: tuple[int, int], keys: str, home: Path, golden: Golden) -> None:
    told, _ = Script("comparisons.txt").blocks["losses below 0, and a perplexity, with repeats"]
    runs = [compared_run(home, f"20260921-1{n}0000-cnn", one) for n, one in enumerate(told)]
    async with Tiny(lambda: tui.CompareScreen(runs)).run_test(size=size) as pilot:
        await wait_for(pilot, "differences are from")
        await pilot.press(*keys.split())
        file = f"screens/compared-{size[0]}x{size[1]}.txt"
        golden(file, await arrived(pilot, golden.expected(file)))


# ---- logs -------------------------------------------------------------------------------------------


def test_logs(golden: Golden) -> None:
    """Lines as TensorFlow 2.21 and Keras 3.15 wrote them, shortened, and some more."""
    log = (HERE / "played" / "log.txt").read_text(encoding="utf-8").splitlines()
    parts = [f"{look.style or 'plain'}{' noise' * look.noise} {f'{look.t - BEGAN:.1f} s' * bool(look.t)}: {line}\n"
             for line, look in zip(log, map(tui.judged, log), strict=True)]  # fmt: skip
    epochs, late = played(*Script("runs.txt").named["ENDED"]).epochs, [0.0] * 12 + [BEGAN + 25.0] * (len(log) - 12)
    resumed = [engine.RESUMED, *log[:2], engine.RESUMED, *log[9:11]]
    shown = {
        "folded": tui.rows(log, late, epochs, RICH, "space"),
        "unfolded, narrow": tui.rows(log[8:18], late[8:18], epochs, PLAIN, fold=False, width=50),
        "no key": tui.rows(log[:3], [0.0] * 3, epochs[:1], PLAIN, width=16),
        "resumed": tui.rows(resumed, [0.0] * 6, epochs, RICH, "space", resumes=(BEGAN, BEGAN + 21.0, BEGAN + 33.0)),
        "resumed, not known yet": tui.rows(resumed, [0.0] * 6, epochs, RICH, fold=False, resumes=(BEGAN + 23.0,)),
        "only those with EPOCH, wrapped": tui.wrapped(tui.only(tui.rows(log, late, epochs, RICH), "EPOCH"), 30),
        "wrapped at 30": tui.wrapped(tui.rows(log[10:11] + log[-2:], late[:3], (), RICH), 30),
    }
    for name, rows in shown.items():
        parts += [f"---- {name}\n", *(f"{row.style or 'plain':<6} {row.text}\n" for row in rows)]
    golden("drawing/logs.txt", "".join(parts))


# What is written to a log, a piece at a time.
WRITTEN = ("begun\nhal", "f\n", "step 1\rstep 2\r\n\ttab \x1b[31mred\n", "", "\xff\n" * 3, "last, not ended")


def test_the_log_of_a_run_is_read_as_it_is_written(home: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded.write(home, gpus=0, seconds=14, outcome=None, engine_pid=os.getpid(), log="")
    reader, parts, known = tui.RunReader(run, clock=lambda: BEGAN + 14), list[str](), 0
    for piece in WRITTEN:
        with run.file("engine.log").open("ab") as file:
            file.write(piece.encode("latin-1"))
        reader.poll()
        log, arrived = reader.picture.log, [t > 0 for t in reader.picture.log_arrived]
        parts += [f"---- {piece!r}: {reader.picture.log_count} lines\n"]
        parts += [f"{'new' if new else 'old'} {line}\n" for line, new in zip(log[known:], arrived[known:], strict=True)]
        known = len(log)
    monkeypatch.setattr(tui.reader, "LOG_BYTES", 28)  # which are read of a log that is longer
    again = tui.RunReader(run, clock=lambda: BEGAN + 14)
    again.poll()
    parts += ["---- the end\n", *(f"old {line}\n" for line in again.picture.log)]
    golden("drawing/log-read.txt", "".join(parts))


# ---- the driver -------------------------------------------------------------------------------------


class Driver:
    """Stands for NVML with so many GPUs, the clock of its reader and what ends it: it answers by readings.

    Each has the seconds that each GPU takes (below 0 nothing can be read), the GPUs that are lost, and the errors.
    """

    def __init__(self, readings: list[Told], gpus: int) -> None:
        self.readings, self.gpus, self.now = readings, gpus, 100.0
        self.lost: dict[int, float] = {}
        self.stuck, self.slow, self.is_over = list[float](), False, False
        self.reader: Any = None

    def __call__(self, **_: Any) -> Driver:
        if self.readings[0]["takes"] < 0:
            self.readings.pop(0)
            raise engine.NvmlUnavailable("the NVIDIA driver is not loaded")
        return self

    @property
    def count(self) -> int:
        return self.gpus

    def read(self, slow: bool, stopping: Callable[[], bool]) -> list[engine.Gpu]:
        self.slow, self.stuck = slow, []
        self.lost = {index: self.lost.get(index, self.now) for index in self.readings[0]["lost"]}
        for _ in range(self.gpus):
            if stopping():
                break
            self.now += self.readings[0]["takes"]
            self.stuck.append(self.reader.stuck_seconds)
        return [
            engine.Gpu(
                n, f"GPU-{n}", "T4", lost_since=self.lost.get(n), missing="it fell off" if n in self.lost else None
            )
            for n in range(self.gpus)
        ]

    def errors(self) -> list[engine.DriverError]:
        return [engine.DriverError(*error) for error in self.readings.pop(0)["errors"]]

    def close(self) -> None: ...

    def monotonic(self) -> float:
        return self.now

    # ---- the end of the reader

    def is_set(self) -> bool:
        return self.is_over

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.is_over = not self.readings or not self.gpus


def test_what_the_reader_of_the_driver_tells(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = list[str]()
    for name, (readings, gpus) in Script("drivers.txt").blocks.items():
        driver = Driver(readings, int(gpus or 0))
        monkeypatch.setattr(engine.sampler, "Nvml", driver)
        monkeypatch.setattr(engine.sampler, "time", driver)
        parts += [f"---- {name}\n"]

        def tell(event: engine.Event, driver: Driver = driver, parts: list[str] = parts) -> None:
            if isinstance(event, engine.Warn):
                said = f"{event.kind}: {event.message}" + f"\n         {event.hint}" * bool(event.hint)
            else:
                said = f"{event.missing or f'{len(event.gpus)} GPUs'}, every {event.interval_seconds} s"  # type: ignore[attr-defined]
                said += ", all of their figures" * driver.slow
                said += f"; the driver was waited for {max(driver.stuck):.1f} s" if driver.stuck else ""
            if not parts[-1].endswith(f" s {said}\n"):  # the same again says nothing
                parts.append(f"{driver.now - 100:6.1f} s {said}\n")

        reader = driver.reader = engine.GpuReader(tell, 1.0)
        reader._done = driver  # type: ignore[assignment]
        reader.run()
        kept = reader.errors_since(100.15, [f"GPU-{n}" for n in range(2)])
        parts += [f"kept: {line}\n" for line in kept]
    golden("drawing/driver.txt", "".join(parts))


# ---- the screen of all GPUs -------------------------------------------------------------------------


class Machine:
    """Stands for the readers of the driver and of the host: all of the script is told at once."""

    script: Sequence[Told] = ()
    stuck_seconds = 0.0
    now = BEGAN

    def __init__(self, tell: Any = None, *_: Any, **__: Any) -> None:
        self._tell = tell

    def start(self) -> None:
        for told in self.script:
            Machine.now = told["t"]
            self._tell(engine.parsing.recalled(dict(told)))

    def stop(self) -> None: ...

    def read(self) -> engine.Event:
        return engine.parsing.recalled(dict(at(0.0, "host")))


HOLDERS = {
    "GPU-0": engine.Holder("GPU-0", "ann", 7, what="digits"), "MIG-b": engine.Holder("MIG-b", "bob", 8),
    "GPU-2": engine.Holder("GPU-2", stuck="its run has ended"),
}  # fmt: skip
RUNNING = SimpleNamespace(
    name="r7 cnn", liveness=SimpleNamespace(trainer=True), process=lambda role: SimpleNamespace(pid=5303)
)
# The size, a block of devices.txt, its first GPUs, the run that goes on, for how long the driver has not answered; and
# the keys that lead from each screen to the next.
SCREENS: dict[str, tuple[tuple[int, int], str, int, Any, float, dict[str, str]]] = {
    "eight": (SMALL, "eight, of all kinds", 8, None, 0.0, {
        "": "", "-last": "up", "-processes": "P down", "-chart": "escape @45,6 down enter"}),
    "eight-wide": (LARGE, "eight, of all kinds", 8, None, 0.0, {"": "end down down down"}),
    "two": (SMALL, "eight, of all kinds", 2, RUNNING, 0.0, {
        "": "down", "-chart": "enter right_square_bracket left"}),
    "none": (SMALL, "no driver", 0, None, 0.0, {"": ""}),
    "no-nvml": (SMALL, "no driver", 0, RUNNING, 0.0, {"": "", "-processes": "P"}),
    "stuck": (SMALL, "nothing yet", 0, None, 7.4, {"": ""}),
}  # fmt: skip


@pytest.mark.parametrize("name", SCREENS)
async def test_the_screens_of_a_machine(
    name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch, not_at_utc: None
) -> None:
    size, block, gpus, run, stuck_seconds, ways = SCREENS[name]
    told = [event for event in Script("devices.txt").blocks[block][0] if event["type"] == "gpu"]
    first = [event | {"gpus": event["gpus"][:gpus]} for event in told]
    later = [event | {"t": BEGAN + 40.0, "interval_seconds": 2.5} for event in first if gpus]
    monkeypatch.setattr(Machine, "script", first + later)
    monkeypatch.setattr(Machine, "stuck_seconds", stuck_seconds)
    monkeypatch.setattr(engine.sampler, "GpuReader", Machine)
    monkeypatch.setattr("gputui.engine.telemetry.host.Host", Machine)
    monkeypatch.setattr(tui.machine, "time", SimpleNamespace(time=lambda: Machine.now, monotonic=lambda: 5.0))
    monkeypatch.setattr(tui.machine, "newest_runs", lambda: [run] if run else [])
    monkeypatch.setattr(engine.gpu_use, "holder", HOLDERS.get)
    monkeypatch.setattr(engine.chips, "has_device_nodes", lambda: name == "no-nvml")
    monkeypatch.setattr(engine.chips, "is_wsl", lambda: False)
    async with Tiny(tui.GpusScreen).run_test(size=size) as pilot:
        await wait_for(pilot, "34 %")  # of the host: a key has its effect once all has been read
        for shot, keys in ways.items():
            for key in keys.split():
                if key.startswith("@"):
                    await pilot.click(offset=tuple(map(int, key[1:].split(","))))  # type: ignore[arg-type]
                else:
                    await pilot.press(key)
            file = f"screens/gpus-{name}{shot}.txt"
            golden(file, await arrived(pilot, golden.expected(file)))
