"""The rows of the views word for word, with the styles that judge: `__snapshots__` holds them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.runs import Run
from gputui.engine.runs.event_reading import read_events
from gputui.engine.trials.record import Record
from gputui.engine.tune.report.search_results import ranked
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.base.settings import Charts
from gputui.tui.drawing import charts, diagnosis, gpu_details, host, proof, proof_comparisons, tune, tune_memory
from gputui.tui.drawing import tune_leaderboard as leaderboard
from gputui.tui.drawing.live import head, phases
from gputui.tui.drawing.plot import cursor
from gputui.tui.drawing.plot.canvas import draw
from gputui.tui.drawing.rows import Row
from gputui.tui.reading.earlier_starts import EarlierStarts
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.reading.run.store import Store

from tests.support import recorded, recorded_proof, recorded_search
from tests.support.recorded import BEGAN
from tests.support.recorded_proof import DIAGNOSIS, HEALTHY, PROOF, STAGES
from tests.support.typed import typed

Drawn = Any
JUDGING = ("good", "warn", "bad", "light", "moderate", "heavy")
NAME = head.RunName("cnn batch_size=512", "20260921-100000-cnn", "a small network")


def text(rows: Iterable[Row]) -> str:
    """The rows with the style in front of each piece that judges."""
    lines = ("".join(f"<{style}>{piece}" if style in JUDGING else piece for piece, style in row) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def snapshot_of(run: Run, after: float) -> Snapshot:
    """What a viewer knows of a run `after` seconds from its start."""
    store = Store()
    store.feed(event for event in read_events(run.path).events if event.t <= BEGAN + after)
    return store.snapshot(BEGAN + after)


RUNS: dict[str, tuple[float, dict[str, Any]]] = {
    "compiles": (10.0, {"gpus": 2}),
    "trains": (
        41.0,
        {"gpus": 2, "mfu": 0.41, "diagnosis": DIAGNOSIS, "warnings": (("input.cast", "does nothing"),)},
    ),
    "trains on the CPU": (41.0, {"gpus": 0, "diagnosis": HEALTHY}),
    "done": (90.0, {"gpus": 4, "lost_gpu": 1}),
    "stopped": (90.0, {"gpus": 0, "outcome": "stopped"}),
    "oom": (90.0, {"gpus": 1, "outcome": "oom", "seconds": 25}),
    "crashed": (90.0, {"gpus": 0, "outcome": "crashed", "warnings": tuple((f"o{i}", f"m{i}") for i in range(5))}),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_live_view(name: str, home: Path, snapshot: Drawn) -> None:
    after, settings = RUNS[name]
    now = snapshot_of(recorded.write(home, name="run", **({"seconds": 72} | settings)), after)
    parts = []
    for width in (80, 130):
        parts += [
            f"---- {width} cells", text(head.rows(NAME, "note", now, width, PLAIN)),
            text([phases.phase_line(now, width), phases.failure(now, width, PLAIN)]),
            text(head.message_rows(now, width, 4, PLAIN, "a")),
            text(head.result_rows(now, width)) if now.summary else "",
            text([host.host_line(now, width, PLAIN)]), text(host.host(now, width, 5, PLAIN)),
        ]  # fmt: skip
    parts += [text(gpu_details.whole(gpu, 90, 14, PLAIN)) for gpu in now.gpus]
    parts += [text(gpu_details.noteworthy_rows(gpu, 60, 6, PLAIN)) for gpu in now.gpus]
    parts += [text(phases.rows(now, EarlierStarts(), 80, 12, PLAIN))] if phases.is_due(now) else []
    assert "\n".join(parts) == snapshot


PLACES = {"time": 20.0, "step": 200.0, "epoch": 0.5, "samples": 100_000.0}


def test_charts_and_their_cursor(home: Path, snapshot: Drawn) -> None:
    now = snapshot_of(recorded.write(home, name="run", gpus=2, seconds=72, mfu=0.41), 90.0)
    parts = []
    for settings in (Charts(), Charts(x_axis="step", smoothing=0.5), Charts(x_axis="epoch", logarithmic=True)):
        for plot in charts.plots(now, settings):
            rows, _scale = draw(plot, 60, 8, PLAIN)
            parts += [text(rows), text(cursor.rows(plot, PLACES[plot.x_unit], 1.0, 60, PLAIN))]
    parts += ["\n".join(cursor.table(plot).splitlines()[:4]) for plot in charts.plots(now)]
    assert "\n".join(parts) == snapshot


def test_the_diagnosis_with_its_stages(snapshot: Drawn) -> None:
    drawn = [
        f"---- {width} cells\n{text(diagnosis.rows(told, STAGES, width, PLAIN, 48.2))}"
        for told in (DIAGNOSIS, HEALTHY)
        for width in (70, 100, 150)
    ]
    assert "\n".join(drawn) == snapshot


def test_the_views_of_proofs(snapshot: Drawn) -> None:
    parts = []
    for fields in (PROOF, PROOF | recorded_proof.running(), PROOF | {"state": "failed", "error": "no room"}):
        data = typed(Record, copy.deepcopy(dict(fields)))
        for width, low in ((70, True), (110, False)):
            parts.append(f"---- {data.state}, {width} cells\n{text(proof.head(data, BEGAN + 100, width, PLAIN, low))}")
        compared = proof_comparisons.compared(data)
        parts += [text(proof_comparisons.detail(comparison, 100, 12, PLAIN)) for comparison in compared]
    assert "\n".join(parts) == snapshot


def test_the_views_of_a_search(snapshot: Drawn) -> None:
    parts = []
    for fields in (recorded_search.ENDED, recorded_search.ENDED | recorded_search.running()):
        data = typed(Record, copy.deepcopy(dict(fields)))
        for width, low in ((70, True), (110, False)):
            parts += [
                f"---- {data.state}, {width} cells", text(tune.head(data, 200.0, width, PLAIN, low)),
                text(tune.options(data, width, 9, PLAIN)), text([tune.options_line(data, width, PLAIN)]),
                text(tune.pairs(data, width, 5, PLAIN)), text([tune.pairs_line(data, width, PLAIN)]),
                text([tune.memory_line(data, width, PLAIN)]), text(draw(tune_memory.plot(data), width, 8, PLAIN)[0]),
            ]  # fmt: skip
        for candidate in ranked(data):
            cells = leaderboard.cells(candidate, data, leaderboard.widths(110), PLAIN)
            parts.append(" | ".join(text([[(cell.text, cell.style)]]) for cell in cells))
    assert "\n".join(parts) == snapshot
