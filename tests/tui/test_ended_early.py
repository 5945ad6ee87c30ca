"""How the end of a training is noticed, and what it is called, on the screen and by the command."""

from __future__ import annotations

import os
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.runs import Run, events, part_of_sweep
from gputui.engine.runs.parsing import dated, recalled
from gputui.tui.base.glyphs import RICH
from gputui.tui.drawing.live import head
from gputui.tui.drawing.rows import plain
from gputui.tui.printing.run_progress import BarView, LineView
from gputui.tui.reading import newest_runs, run_list
from gputui.tui.reading.run.reader import Onward
from gputui.tui.reading.run.snapshot import Snapshot
from rich.console import Console

from tests.support import recorded


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
    shown = plain(head.rows(head.RunName("some", "r", ""), "", now, 80, RICH)[0])
    assert ("done early, by a callback" in shown) == early


def test_the_last_lines_say_why_a_run_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def last_lines(outcome: events.Outcome, **summary: Any) -> list[str]:
        out = StringIO()
        view = LineView(Run(tmp_path), Console(file=out, width=200))
        unknown = dict.fromkeys(
            ("samples_per_second", "step_ms_p50", "step_ms_p95", "input_wait", "loss", "eta_seconds")
        )
        view.show(dated(events.Progress(epoch=1, epochs=3, step=80, steps=90, metrics={}, **unknown), 1.0))
        view.show(events.Finished(outcome=outcome, summary=summary))
        return [line for line in out.getvalue().splitlines()[1:] if line and not line.startswith("epochs ")]

    where = f"everything is in {tmp_path}"
    fault = {"kind": "data", "message": "no such folder: /data", "hint": "look at workload.data"}
    assert last_lines("error", error=fault) == [f"failed: {fault['message']}; {where}"]
    assert capsys.readouterr().err == f"{fault['message']}\n{fault['hint']}\n"
    best = [{"option": "train.early_stop", "epoch": 7, "figure": "val_loss", "value": 0.25}]
    assert last_lines("ok", ended_by="early_stop", epochs=12, best=best) == [
        "stopped early after epoch 12: val_loss has not improved for 5 epochs; best 0.25 in epoch 7", f"done; {where}",
    ]  # fmt: skip


def test_runs_that_go_on_are_followed_until_they_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states: dict[str, str] = {}
    asked: list[str] = []

    def state(run: Run) -> str:
        asked.append(run.id)
        return states[run.id]

    monkeypatch.setattr(Run, "state", property(state))
    monkeypatch.setattr(newest_runs, "LOOKED_AT", 2)
    monkeypatch.setattr(run_list, "last_progress", lambda run: {"step": 3, "steps": 4})
    reader = run_list.RunningRuns()

    def write(day: int, now: str) -> Run:
        run = recorded.write(home, name=f"2026090{day}-100000-run{day}", seconds=20, gpus=0, outcome=None)
        states[run.id] = now
        return run

    def ids() -> tuple[list[str], list[tuple[str, str]]]:
        now = reader.read()
        return [run.id[-1] for run in now.running], [(of.id[-1], of.state) for of in now.ended]

    first, second = write(1, "running"), write(2, "ok")
    assert ids() == (["1"], [])
    asked.clear()
    assert ids() == (["1"], [])
    assert second.id not in asked, "what has ended is not looked at again"
    third = write(3, "stopping")
    assert ids() == (["3", "1"], [])
    assert reader.read().done == 0.75
    states[first.id] = "stopped"
    assert ids() == (["3"], [("1", "stopped")])
    assert ids() == (["3"], [])
    states[second.id] = "running"  # it is resumed
    os.utime(second.file("status.json"), (1.0, 1.0))
    assert ids() == (["3", "2"], [])
    states[second.id] = "crashed"
    assert ids() == (["3"], [("2", "crashed")])
    trial = write(4, "running")
    trial.file(part_of_sweep.FILE).write_text(part_of_sweep.content("a-sweep", None, {}, 1))
    assert ids() == (["4", "3"], [])
    states[trial.id] = "ok"
    assert ids() == (["3"], []), "nobody wants a message for each trial of a sweep"
    shutil.rmtree(third.path)
    assert ids() == ([], [])


def test_the_time_of_a_running_run_is_that_of_its_newest_event(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    onward = Onward()
    onward.take([recalled({"t": t, "type": "phase", "phase": "training"}) for t in (7.0, 9.0, 8.0)])
    now[0] += 2.0
    onward.take([])
    assert onward.now() == 11.0
