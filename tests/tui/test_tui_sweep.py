"""The screen of a sweep: the settings by their metric, their trials, and the metric over each swept option."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.job import this_machine
from gputui.engine.proof import folder
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run, part_of_sweep, runs_folder, titles
from gputui.tui import cli
from gputui.tui.screens.dialogs import SEEN_AFTER_SECONDS
from gputui.tui.screens.proof.sweep import SweepScreen
from gputui.tui.screens.proof.sweep_dialog import SweepDialog
from gputui.tui.screens.runs.run_table import RunsTable
from gputui.tui.screens.runs.screen import RunsScreen

from tests.support import recorded
from tests.support.form_pilot import TWO_GPUS, form, opened
from tests.support.swept import Simulated, request_of, swept
from tests.support.tiny import Tiny, lines_of, text_of, wait_for


def loss(changes: Mapping[str, Any], seed: int, epoch: int) -> float | None:
    """The higher rate learns better, and the highest diverges."""
    rate = changes["train.learning_rate"]
    return None if rate > 0.005 else 1 - 100 * rate + 1 / epoch + random.Random(f"{rate} {seed}").gauss(0, 0.01)


@pytest.fixture
def proof(home: Path) -> Proof:
    """A sweep that has ended."""
    path = home / "proofs" / "20261126-120000-small"
    path.mkdir(parents=True)
    request = request_of(["learning_rate=1e-3,3e-3,1e-2"], seeds=2)
    (path / "request.json").write_text(request.to_json())
    swept(request, Simulated(loss), path)
    text = (path / "proof.json").read_text()
    (path / "proof.json").write_text(text.replace('"state": "running"', '"state": "done"'))
    return Proof(path)


async def test_a_sweep_is_shown_with_each_setting_and_its_trials(
    proof: Proof, home: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    async with Tiny(lambda: SweepScreen(proof)).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "learning_rate=0.003 beats learning_rate=0.001")
        lines = text_of(pilot.app).splitlines()
        rows = [line.split()[0] for line in lines if line.startswith(" learning_rate=0.0") and "beats" not in line]
        assert rows == ["learning_rate=0.003", "learning_rate=0.001", "learning_rate=0.01"], "the best one first"
        assert any("failed" in line for line in lines if line.startswith(" learning_rate=0.01 "))
        assert sum(" proof " in line for line in lines) == 5
        await pilot.pause()
        assert lines_of(pilot.app) == snapshot
        await pilot.resize_terminal(120, 40)
        shown = await wait_for(pilot, "mean val_loss over each swept option")
        await pilot.pause()
        assert lines_of(pilot.app) == snapshot
        assert re.search(r"learning_rate=0\.003 .* [├─•┤]+ +┊? .*\n learning_rate=0\.001 .* │ .*•.*\n", shown), "bars"
        assert re.search(r"learning_rate=0\.01 .* │ [┊ ]* failed", shown)
        await pilot.press("down", "down")
        await wait_for(pilot, "failed: val_loss is not a finite number")
        assert "Curves" not in text_of(pilot.app), "the runs of these trials do not exist"
        for number in (1, 2):
            recorded.write(home, name=f"{proof.id}-00{number}")  # of the second best setting, and of the best
        assert (runs_folder() / f"{proof.id}-001").is_dir()
        failed = runs_folder() / f"{proof.id}-003"
        failed.mkdir()
        end = {"type": "epoch", "t": 1.0, "step": 1, "metrics": {"val_loss": 1.0}, "seconds": 1.0}
        lines = [json.dumps(end | {"epoch": epoch}) for epoch in (1, 2)]
        (failed / "events.jsonl").write_text("\n".join([*lines, ""]))
        await wait_for(pilot, "val_loss (3 trials, faint: 1 ended early)")
        pilot.app.screen.refresh_bindings()
        await wait_for(pilot, "Curves")
        compared: list[list[Run]] = []
        monkeypatch.setattr(pilot.app, "open_compare", compared.append)
        await pilot.press("c")
        await wait_for(pilot, lambda: compared)
        assert [run.id[-3:] for run in compared[0]] == ["002", "001", "003"], "the best one first"


async def test_a_screen_that_misses_its_widgets_names_the_keys_that_need_none(proof: Proof) -> None:
    async with Tiny(lambda: SweepScreen(proof)).run_test(size=(120, 40)) as pilot:
        await wait_for(pilot, "mean val_loss over each swept option")
        await pilot.app.screen.query_one("#detail").remove()
        keys_now = pilot.app.screen.active_bindings
        assert "escape" in keys_now
        assert "right_square_bracket" not in keys_now


async def test_with_three_options_each_setting_is_a_line_through_its_values(home: Path) -> None:
    path = home / "proofs" / "20261126-130000-small"
    path.mkdir(parents=True)
    over = ["learning_rate=1e-3,3e-3,1e-2", "batch_size=16,32", "weight_decay=0,0.1"]
    request = request_of(over, proof_seeds=0)
    (path / "request.json").write_text(request.to_json())
    swept(request, Simulated(loss), path)
    async with Tiny(lambda: SweepScreen(Proof(path))).run_test(size=(120, 40)) as pilot:
        lines = (await wait_for(pilot, "Other picture")).splitlines()
        head = next(at for at, line in enumerate(lines) if re.search("learning_rate +batch_size +weight_decay", line))
        picture = lines[head + 1 : -1]
        ends = [next(at for at, line in enumerate(picture) if line.rstrip().endswith(of)) for of in ("1.7", "1.9")]
        assert ends[0] < ends[1], "the best metric is on top"
        places = [next(at for at, line in enumerate(picture) if line.startswith(f"{of:>9} ")) for of in (0.01, 0.001)]
        assert places[0] < places[1], "higher values are further up"
        await pilot.press("right_square_bracket")
        await wait_for(pilot, "mean val_loss over each swept option")
        await pilot.press("left_square_bracket")
        await wait_for(pilot, lambda: "mean val_loss" not in text_of(pilot.app))
        await pilot.resize_terminal(80, 24)
        await wait_for(pilot, "mean val_loss over each swept option")
        shown = text_of(pilot.app)
        assert "Other picture" not in shown
        assert re.search(r"\n 0\.003, 16, 0 .* 1\.\d+ .* - +- +[│•]", shown), (
            "values alone, so that there is room for bars"
        )


def trained(home: Path, proof: Proof, *numbers: int) -> list[Run]:
    """The runs of some trials of the sweep; the last one has failed."""
    made = []
    for number in numbers:
        outcome: Any = "error" if number == numbers[-1] else "ok"
        run = recorded.write(home, name=f"{proof.id}-{number:03}", gpus=0, seconds=20, outcome=outcome)
        run.file(part_of_sweep.FILE).write_text(json.dumps({"sweep": proof.id}))
        titles.retag(run, ["sweep-20261126-120000"])
        made.append(run)
    return made


async def test_in_the_runs_a_sweep_is_one_row_that_opens(
    proof: Proof, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = recorded.write(home, name="20260921-100000-alone", gpus=0, seconds=20)
    trials = [run.id for run in trained(home, proof, 1, 2, 3)]
    async with opened((80, 24)) as pilot:
        await pilot.press("f4")
        shown = await wait_for(pilot, "sweep 16 of 16, best 1.7")
        screen, table = pilot.app.screen, pilot.app.screen.query_one(RunsTable)
        assert isinstance(screen, RunsScreen)

        def rows() -> list[str]:
            return list(screen.shown)

        assert set(rows()) == {proof.id, alone.id}
        assert "4 of 4 runs" in shown
        table.move_cursor(row=rows().index(proof.id))
        await pilot.press("enter")
        await wait_for(pilot, "learning_rate=0.003 seed")
        at = rows().index(proof.id)
        assert (set(rows()[at + 1 : at + 4]), table.current_key) == (set(trials), proof.id)
        assert "p Sweep" in text_of(pilot.app)
        await pilot.press("down", "left")
        await wait_for(pilot, lambda: len(rows()) == 2)
        assert table.current_key == proof.id, "closed from one of its trials"
        await pilot.press("right")
        await wait_for(pilot, lambda: len(rows()) == 5)
        await pilot.press("right", "left", "space")
        await wait_for(pilot, "3 marked")
        assert set(screen.marked) == set(trials)
        assert "hidden" not in text_of(pilot.app)
        await pilot.press("space", "d")
        await wait_for(pilot, "Delete 3 runs")
        await pilot.pause(SEEN_AFTER_SECONDS)
        await pilot.press("d")
        await wait_for(pilot, lambda: rows() == [alone.id])
        await pilot.press("u")
        await wait_for(pilot, lambda: set(rows()) == {proof.id, alone.id})
        await pilot.press("slash", *"failed")
        await wait_for(pilot, lambda: rows() == [proof.id, trials[-1]])
        assert "1 of 4 runs" in text_of(pilot.app), "the filter finds trials in a closed sweep"
        await pilot.press("escape")
        await wait_for(pilot, lambda: len(rows()) == 2)
        compared: list[list[Run]] = []
        monkeypatch.setattr(pilot.app, "open_compare", compared.append)
        table.move_cursor(row=rows().index(proof.id))
        await pilot.press("c")
        await wait_for(pilot, lambda: compared)
        assert [run.id[-3:] for run in compared[0]] == ["002", "001", "003"], "the best one first"
        await pilot.press("p")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, SweepScreen))
    capsys.readouterr()
    assert cli.run(["runs"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert ["sweep 16 of 16" in line and "#sweep-20261126-120000" in line for line in lines] == [True, False]
    assert cli.run(["runs", "--last", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.split() == lines[0].split(), "with the size of all its trials"
    for words, count in (
        (("--tag", "sweep-20261126-120000"), 3), (("--state", "failed"), 1), (("--state", "done"), 3)
    ):  # fmt: skip
        assert cli.run(["runs", *words]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1 + count, words
    assert cli.run(["runs", "--json"]) == 0
    sweeps = [json.loads(line)["sweep"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(map(str, sweeps)) == [proof.id] * 3 + ["None"]


async def test_a_sweep_of_what_the_form_holds_is_started_from_the_palette(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Proof] = []

    def start(proof: Proof) -> subprocess.Popen[bytes]:
        """Without its process, which would train."""
        started.append(proof)
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        return ended

    monkeypatch.setattr(folder, "start", start)
    monkeypatch.setattr(this_machine, "read", lambda: TWO_GPUS)
    async with opened((80, 24)) as pilot:
        form(pilot).put({"input.batch_size": "48"}, "larger")
        await pilot.press("ctrl+p")
        await wait_for(pilot, "Search for")
        await pilot.press(*"sweep")
        await wait_for(pilot, "Sweep: find the settings that learn best")
        await pilot.press("enter")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, SweepDialog))
        shown = await wait_for(pilot, "3 settings: 3 trainings, then 10 for the proof; 2 at once; how long is not")
        assert "sweep           learning_rate=0.00067,0.002,0.006" in shown
        assert "parallel        not given" in shown, "everything fits into 80 x 24"
        await pilot.pause(SEEN_AFTER_SECONDS)
        await pilot.press("down", *"lerning=1,2", "enter")
        await wait_for(pilot, "--over lerning: ")
        assert pilot.app.screen.focused is pilot.app.screen.query_one("#over1")
        await pilot.press("ctrl+u", *"batch_size=16,32", "down", "down", "down")
        await pilot.press("ctrl+u", *"0", "enter")
        await wait_for(pilot, "seeds: 0 does not fit: give a whole number from 1 to 100")
        await pilot.press("backspace", "2", "enter")
        await wait_for(pilot, lambda: started)
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, SweepScreen))
        asked = started[0].request
        assert asked.sweep is not None
        assert {axis.key: axis.values for axis in asked.sweep.axes} == {
            "train.learning_rate": [0.00067, 0.002, 0.006],
            "input.batch_size": [16, 32],
        }
        assert (asked.sweep.seeds, asked.sweep.parallel, asked.sweep.minutes) == (2, 2, 60)
        assert asked.baseline().options.input.batch_size == 48
        await pilot.press("escape")
        await wait_for(pilot, lambda: pilot.app.screen is form(pilot))
        form(pilot).action_sweep()
        await wait_for(pilot, "6 settings with 2 seeds: 12 trainings")  # what was chosen the last time
