"""What the end of a training is called, on the screen and by the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from gputui.engine.runs import Run, events
from gputui.tui.base.glyphs import RICH
from gputui.tui.drawing import panels
from gputui.tui.drawing.rows import plain
from gputui.tui.printing.training import BarView
from gputui.tui.reading.store import Snapshot
from rich.console import Console


@pytest.mark.parametrize(
    ("outcome", "steps", "early"),
    [
        ("ok", 4500, True),
        ("ok", 135, False),
        ("stopped", 4500, False),
        ("ok", 2_000_000_000, False),
    ],
)
def test_a_training_that_a_callback_has_ended_is_told_from_one_that_is_complete(
    outcome: events.Outcome, steps: int, early: bool, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = BarView(Run(home / "runs" / "some"), Console())
    unknown = dict.fromkeys(("samples_per_second", "step_ms_p50", "step_ms_p95", "input_wait", "loss", "eta_seconds"))
    view.show(events.Progress(epoch=9, epochs=300, step=120, steps=steps, metrics={}, **unknown))
    view.show(events.EpochEnd(epoch=9, step=135, metrics={}, seconds=0.2))
    view.show(events.Finished(outcome=outcome, summary={}))
    said = "done early: a callback ended the training after step 135 of 4,500; everything is in"
    assert (said in " ".join(capsys.readouterr().out.split())) == early
    now = Snapshot(outcome=outcome, progress={"step": 135, "steps": steps})
    shown = plain(panels.head(panels.Named("some", "r", ""), "", now, 80, RICH)[0])
    assert ("done early, by a callback" in shown) == early
