"""From which width on each figure stands in a row: the rows on both sides of each width at which their words change."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import astuple, replace
from typing import Any

from gputui.engine.trials.record import Comparison, Record
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.drawing import compared_speeds, diagnosis, host, interval_bar, proof, proof_comparisons, sweep, tune
from gputui.tui.drawing.interval_bar import Interval
from gputui.tui.drawing.live import chart_foot, head, phases
from gputui.tui.drawing.live.layout import Demand, share_out
from gputui.tui.drawing.log_rows import epoch_text
from gputui.tui.drawing.plot.canvas import draw, title
from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.plot.viewport import Viewport
from gputui.tui.drawing.rows import Row, length, plain
from gputui.tui.reading.earlier_starts import EarlierStarts, Usual
from gputui.tui.reading.run.series import Pace
from gputui.tui.reading.run.snapshot import Epoch, Message, Snapshot, Span, Spell
from gputui.tui.widgets.gpu_cards import card

from tests.support import recorded_search
from tests.support.recorded_proof import DIAGNOSIS, PROOF, trials
from tests.support.typed import typed
from tests.tui.test_drawn_parts import BUSY, CARDS, GIB, STARTED, line
from tests.tui.test_drawn_trials import compared, swept

Drawn = Any
QUIET = ("", "value", "label", "track")  # the styles that are not written down
Draw = Callable[[int], Iterable[Row]]
_WORD = re.compile(r"[^\W_]+|(?P<sign>[^\w ])(?P=sign)*")
_WHOLE = (60, 100, 150)  # the widths at which all rows are written down


def text(row: Row) -> str:
    """The row with the style in front of each piece that stands out."""
    return "".join(piece if style in QUIET else f"<{style}>{piece}" for piece, style in row).rstrip()


def steps(drawn: Draw, widths: range = range(38, 151)) -> list[str]:
    """The rows with other words or signs than one cell before, at each width where there are some. How often a sign is
    repeated does not count, but at some widths all rows are there.
    """
    before: list[list[str]] = []
    found: list[str] = []
    for width in widths:
        rows = list(drawn(width))
        words = [[match[0].rstrip(match["sign"] or "") + (match["sign"] or "") for match in _WORD.finditer(plain(row))]
                 for row in rows]  # fmt: skip
        if words != before or width in _WHOLE:
            same = len(words) == len(before) and width not in _WHOLE
            changed = [text(row) for at, row in enumerate(rows) if not same or words[at] != before[at]]
            found.append(f"{width}: " + "\n    ".join(changed))
        before = words
    return found


def kept(snapshot: Drawn, **cases: Draw) -> None:
    assert "\n".join(row for name, drawn in cases.items() for row in (f"---- {name}", *steps(drawn))) == snapshot


def record(**fields: Any) -> Record:
    return typed(Record, copy.deepcopy(PROOF | fields))


def search(**fields: Any) -> Record:
    return typed(Record, copy.deepcopy(recorded_search.ENDED | fields))


def test_the_host(snapshot: Drawn) -> None:
    readings: dict[str, Any] = {
        "cpu": 0.5, "memory_used_bytes": 12.3 * GIB, "memory_total_bytes": 64.0 * GIB, "trainer_cpu": 3.25,
        "trainer_bytes": 4.0 * GIB, "engine_bytes": 0.1 * GIB, "io_wait": 0.125,
    }  # fmt: skip
    tensors = {"current_bytes": 1.5 * GIB, "peak_bytes": 2.0 * GIB}
    now = Snapshot(host=readings, elapsed=5.0, lines={"cpu": line(0.2, 0.9)}, tf_host=tensors, no_gpu_reason="no: (x)")
    kept(
        snapshot,
        line=lambda width: [host.host_line(now, width, PLAIN)],
        alone=lambda width: [host.host_line(now, width, PLAIN, True)],
        panel=lambda width: [(rows := host.host(now, width, 4, PLAIN))[0], rows[-1]],
        panel_alone=lambda width: [(rows := host.host(now, width, 4, PLAIN, True))[0], rows[-1]],
    )


def test_the_heads_of_proofs_and_searches(snapshot: Drawn) -> None:
    going = {"state": "running", "doing": "pair 2", "seconds": 900.0, "budget_seconds": 200.0, "gain_total": 1.9}
    ended, runs, tried, measured = record(gain_total=1.9), record(**going), search(), pairs()
    kept(
        snapshot,
        proof=lambda width: proof.head(ended, 0.0, width, PLAIN)[1:3],
        going=lambda width: proof.head(runs, PROOF["started_t"] + 99.0, width, PLAIN)[1:4],
        search=lambda width: tune.head(tried, 200.0, width, PLAIN)[1:2],
        options=lambda width: [tune.options_line(tried, width, PLAIN)],
        trials=lambda width: proof_comparisons.detail(measured, width, 9, PLAIN)[-3:],
    )


def pairs() -> Comparison:
    rows = trials(("a", 100.0), ("b", 150.0), ("b", 160.0), ("a", 99.0))
    return typed(Comparison, {"changes": {"compile.xla": True}, "decision": "kept", "trials": rows, "gain": 0.3})


def test_cards_of_gpus(snapshot: Drawn) -> None:
    slowed, parted = CARDS["slowed"], replace(CARDS["parted"], processes=())
    kept(
        snapshot,
        one_row=lambda width: shown(BUSY, width, 1),
        one_row_slowed=lambda width: shown(slowed, width, 1),
        two_rows=lambda width: shown(BUSY, width, 2),
        two_rows_slowed=lambda width: shown(slowed, width, 2),
        four_rows=lambda width: shown(BUSY, width, 4),
        whole=lambda width: card(parted, 5.0, width, 14, PLAIN, True)[6:],
    )


def shown(gpu: Any, width: int, tall: int) -> list[Row]:
    rows = card(gpu, 5.0, width, tall, PLAIN)
    assert {length(row) for row in rows} == {width}
    return rows


def test_charts_and_the_row_below_them(snapshot: Drawn) -> None:
    speed = line(*range(10), each=2.0)
    spells = (Spell("evaluating", 5.0, 6.0, 30.0), Spell("saving", 8.0, 9.0, 40.0))
    now = Snapshot(lines={"samples_per_second": speed}, pace=Pace(4.0, 20.0, 8.0), elapsed=20.0, spells=spells,
                   start=(Span("importing", "", 6.0), Span("building", "", 2.0)))  # fmt: skip
    marks: Any = {"best": (2.0,), "joins": (3.0,), "spells": ((1.0, 2.0, "e"), (4.0, 5.0, "s"))}
    time = Plot("loss", "", (Curve("", speed),), x_end=14.0, **marks)
    views = {name: Viewport() for name in ("marks", "cursor", "window", "drag")}
    views["cursor"].cursor, views["window"].window, views["drag"].dragged = 5.0, (1.0, 3.0), (1.0, 3.0)
    views["cursor"].window = (1.0, 9.0)
    curves = (Curve("train loss", speed, lesser=True, short="train"), Curve("epoch mean", speed, True, short="mean"),
              Curve("val", speed, True))  # fmt: skip
    several = Plot("loss", "s", curves, note="so far", corner="2 of 3", how=("smoothed", "log"), x_end=18.0)
    one = Plot("power", "W", (Curve("GPU 0", speed),), note="MFU 41 %", alarm="NaN", x_end=18.0)
    kept(
        snapshot,
        **{name: lambda width, view=view: [chart_foot.row(now, [time], view, width, PLAIN, "0")]
           for name, view in views.items()},
        several=lambda width: [title(several, width, PLAIN)], one=lambda width: [title(one, width, PLAIN)],
        several_in_less=lambda width: [title(several, width - 30, PLAIN)],
        axis=lambda width: draw(one, width, 12, PLAIN)[0][-1:],
    )  # fmt: skip


def test_the_labels_of_a_chart_by_its_height(snapshot: Drawn) -> None:
    speed = line(*(100.0 * n for n in range(10)), each=2.0)
    falling = line(*(10.0**-n for n in range(6)))
    zero, log = (
        Plot("speed", "", (Curve("", speed),), "zero"),
        Plot("loss", "", (Curve("", falling),), logarithmic=True),
    )
    share = Plot("busy", "", (Curve("", line(0.1, 0.9)),), "share")
    found = []
    for plot, height in itertools.product((zero, log, share, Plot("none", "", ())), range(1, 15)):
        rows, scale = draw(replace(plot, x_end=18.0), 40, height, PLAIN)
        labels = [plain(row)[:7] for row in rows[1:]]
        axis = plain(rows[-1]).split() if labels and not labels[-1].strip() else []
        found.append(f"{plot.title}, {height} rows, to {scale.high:g}: {'|'.join(labels)} {' '.join(axis)}".rstrip())
    assert "\n".join(found) == snapshot


def test_the_head_of_a_run_its_start_and_its_result(snapshot: Drawn) -> None:
    named = head.RunName("cnn xla", "20260921-100000-cnn", "small", 12)
    progress = {"step": 30, "steps": 1200, "epoch": 2, "epochs": 30, "eta_seconds": 65.0, "mfu": 0.41}
    verdict = {"verdict": "healthy", "sentence": "fine", "confidence": 0.8}
    now = Snapshot(phase="training", elapsed=3725.0, started=STARTED, first_step_seconds=4.5, progress=progress,
                   diagnosis=verdict)  # fmt: skip
    spans = (Span("importing", "", 6.25), Span("building", "", 1.0), Span("compiling", "", 10.0))
    rest = {"evaluating": Span("evaluating", "", 5.0, 3), "saving": Span("saving", "", 1.5, 1)}
    begins = Snapshot(start=spans, rest=rest, phase="compiling")
    usual = EarlierStarts(3, {"compiling": Usual(20.0, 19.0, 40.0), "evaluating": Usual(2.0, 1.0, 3.0)})
    failed = Snapshot(outcome="oom", error=Message("model.name", "no memory", "try batch_size=8"))
    summary = {"samples_per_second": 12_345.6, "step_ms": {"p50": 12.34}, "epochs": 2, "steps": 600}
    over = Snapshot(outcome="ok", summary=summary, started={"devices": ["/device:GPU:0"]})
    kept(
        snapshot,
        head=lambda width: head.rows(named, "note", now, width, PLAIN),
        line=lambda width: [phases.phase_line(begins, width)],
        start=lambda width: phases.rows(begins, usual, width, 9, PLAIN)[3:5],
        failure=lambda width: [phases.failure(failed, width, PLAIN)],
        result=lambda width: head.result_rows(over, width),
    )


def test_tables_of_a_diagnosis_of_compared_speeds_and_of_a_sweep(snapshot: Drawn) -> None:
    stages = {"stages": [{"name": name, "op": "Op", "ms_per_batch": 3.0, "parallelism": n}
                         for n, name in enumerate(("load", "map", "batch"), 1)], "buffer_fill": 0.5}  # fmt: skip
    told = {key: value for key, value in DIAGNOSIS.items() if key != "remedies"} | {"sentence": "waits"}
    told["evidence"] = [piece | {"text": "long"} for piece in told.get("evidence", ())[:1]]
    speeds = compared((0.0, 0.25, -0.1, 0.02), 0.02)
    whole = swept()
    kept(
        snapshot,
        diagnosis=lambda width: diagnosis.rows(told, {}, width, PLAIN)[1:],
        stages=lambda width: diagnosis.rows({}, stages, width, PLAIN, 5.0)[2:],
        speeds=lambda width: compared_speeds.rows(speeds, ["r0", "xla", "two", "last"], width, PLAIN),
        sweep=lambda width: sweep.over_options(whole, width, PLAIN)[:5],
    )


def test_bars_of_gains_below_their_scale(snapshot: Drawn) -> None:
    groups = {
        "both sides": (Interval(0.12, 0.04, 0.2), Interval(-0.05, -0.1, -0.01), Interval(0.015, -0.06, 0.055), None),
        "touching zero": (Interval(0.1, 0.0, 0.2), Interval(-0.1, -0.2, 0.0), Interval(0.001, 0.0005, 0.0015)),
        "gains": (Interval(2.5, 2.4, 2.6), Interval(0.3, 0.3, 0.3), Interval(0.0, 0.0, 0.0)),
        "losses": (Interval(-0.5, -0.9, -0.1), Interval(-0.02, -0.03, -0.01)),
        "nothing": (Interval(0.0, 0.0, 0.0),),
    }  # fmt: skip
    found = []
    for (name, intervals), width in itertools.product(groups.items(), (5, 6, 9, 14, 22, 40)):
        scale = interval_bar.scale_of(intervals)
        found.append(f"{name}, {width}: {interval_bar.head(scale, width + 2)}".rstrip())
        found += [f"    {plain(interval_bar.bar(each, scale, width, PLAIN))}".rstrip() for each in intervals]
    assert "\n".join(found) == snapshot


def test_the_line_of_an_epoch(snapshot: Drawn) -> None:
    metrics = {"loss": 0.5, "accuracy": 0.75, "val_loss": 0.625, "val_accuracy": None}
    one, last = Epoch(9.0, 1, 100, 61.0, metrics), Epoch(9.0, 3, 0, 0.25, {})
    kept(
        snapshot,
        first=lambda width: [[(epoch_text(one, width), "")]],
        without_number=lambda width: [[(epoch_text(last, width), "")]],
    )
    assert epoch_text(one).endswith("val_accuracy -"), "all of it without a width"


def test_the_parts_of_the_live_view_by_the_height_of_the_screen(snapshot: Drawn) -> None:
    found: list[str] = []
    names = ("messages", "summary", "charts", "devices", "host", "log", "edges")
    for width, gpus in itertools.product((70, 110, 160), (0, 1, 8)):
        before: list[str] = []
        for height in range(6, 61):
            layout = share_out(width, height, Demand(charts=6, gpus=gpus, messages=2, summary=4, error=3))
            parts = [name for name in names if getattr(layout, name)]
            parts.append(f"{layout.chart_columns} x {layout.chart_rows}")
            if parts != before:
                found.append(f"{width} x {height}, {gpus} GPUs: {', '.join(parts)}: {astuple(layout)}")
            before = parts
    assert "\n".join(found) == snapshot
