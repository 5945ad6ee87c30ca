"""Proofs, sweeps and measurements of scaling in their screens."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    Process,
    Proof,
    Run,
    folder,
    part_of_sweep,
    presets,
    proof_start,
    rounds,
    this_machine,
    titles,
    units,
)
from tests.doors.engine import proof_request_Request as Request
from tests.doors.tui import (
    SEEN_AFTER_SECONDS,
    FormScreen,
    GputuiApp,
    ProofScreen,
    RunsTable,
    SweepDialog,
    SweepScreen,
)
from tests.doors.tui import tui_cli as cli
from tests.support import recorded, recorded_proof
from tests.support.form_pilot import TWO_GPUS, form, opened
from tests.support.recorded_proof import PROOF, running, write_proof
from tests.support.swept import Simulated, request_of, swept
from tests.support.tiny import Tiny, text_of, tiny, wait_for

# ---- the screen -----------------------------------------------------------------------------------------


async def test_a_proof_that_is_gone_has_failed_is_empty_or_kept_nothing_says_so(home: Path) -> None:
    gone = write_proof(home, "20260921-140000-gone", **running(pid=2**22 + 1, start_ticks=1))
    failed = write_proof(home, "20260921-150000-failed", state="failed", error="[red]no\x1b baseline", comparisons=[])
    nothing = write_proof(home, "20260921-160000-x", preset_after=None, changes_kept={}, gain_total=None)
    (home / "proofs" / "x").mkdir(parents=True)
    async with Tiny(lambda: ProofScreen(gone)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "the proof's process has crashed")
        await pilot.app.push_screen(ProofScreen(failed))
        await wait_for(pilot, "the proof failed: [red]no? baseline")
        await pilot.app.push_screen(ProofScreen(Proof(home / "proofs" / "x")))
        await wait_for(pilot, "reading the proof")
        await pilot.press("enter", "x", "o", "s", "y")
        assert not tiny(pilot).opened
        await pilot.app.push_screen(ProofScreen(nothing))
        shown = await wait_for(pilot, "nothing was proved to make it faster")
        assert "Improved preset" not in shown
        await pilot.press("o")
        assert not tiny(pilot).opened


@pytest.fixture
def prover(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the proof's, and ends when it is asked to."""
    code = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint(flush=True)\n"
    words = ["-m", "gputui.engine.proof", str(home / "proofs" / PROOF["id"])]  # by which it is known as this proof's
    process = subprocess.Popen([sys.executable, "-c", f"{code}time.sleep(600)", *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


async def test_x_stops_it_after_a_question(home: Path, prover: subprocess.Popen[bytes]) -> None:
    proof = write_proof(home, **running(**Process.of(prover.pid).as_fields()))
    async with Tiny(lambda: ProofScreen(proof)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "x Stop")
        await pilot.press("x")
        await wait_for(pilot, "Stop the proof?")
        await pilot.press("g")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, ProofScreen))
        assert prover.poll() is None
        await pilot.press("x")
        await wait_for(pilot, "Stop the proof?")
        await pilot.press("s")
        await wait_for(pilot, lambda: prover.poll() == 7)
        await wait_for(pilot, "✗ crashed")


# ---- the list ---------------------------------------------------------------------------------------------


async def test_a_proof_under_way_stands_in_the_header_and_on_top_of_the_runs(home: Path) -> None:
    write_proof(home, **running())
    recorded.write(home, name="20260921-140000-later", seconds=30)
    async with opened((80, 24)) as pilot:
        await wait_for(pilot, "proof 2/3")
        await pilot.press("f4")
        rows = (await wait_for(pilot, "▶ 2 of 3")).splitlines()
        assert "proof of input-heavy" in rows[2]
        assert "later" in rows[3]


def point(replicas: int, speed: float, efficiency: float, first: int) -> dict[str, Any]:
    trials = recorded_proof.trials(*[(str(replicas), speed)] * 3, first=first)
    return {
        "replicas": replicas, "changes": {}, "trials": trials, "global_batch_size": 64 * replicas, "why": "",
        "samples_per_second": speed, "step_ms": 64_000 * replicas / speed, "input_wait": 0.12, "xla": False,
        "speedup": efficiency * replicas, "efficiency": efficiency, "spread": 0.011, "decision": "measured",
    }  # fmt: skip


async def test_a_measurement_of_scaling_goes_on_and_is_started_again_and_from_the_form(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone_on: list[Proof] = []
    started: list[Request] = []
    monkeypatch.setattr(proof_start, "start", lambda proof: gone_on.append(proof))
    monkeypatch.setattr(folder, "start", lambda proof: started.append(proof.request))
    monkeypatch.setattr(proof_start, "other_training", lambda *known: "")  # other tests on this machine
    settings = ("device.visible=none", "logical_devices=2", "strategy.kind=mirrored", "learning_rate=0.02")
    preset = presets.resolve("quickstart", settings)
    scaling = {"keep": "global", "shared": "", "rounds": 1, "points": [point(1, 1000.0, 1.0, 1)]}
    proof = write_proof(home, kind="scaling", scaling=scaling, comparisons=[], state="stopped", diagnosis=None)
    (proof.path / "request.json").write_text(rounds.requested(preset, (), "global").to_json())
    app = GputuiApp()
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        app.form.state.change({"device.visible": "none", "device.logical_devices": 2, "train.learning_rate": 0.02})
        app.open_proof(proof)
        await wait_for(pilot, "R Go on")
        await pilot.press("R")
        await wait_for(pilot, lambda: gone_on)
        await pilot.press("r")
        await wait_for(pilot, "with 1, 2 replicas in turn")
        await pilot.press("m")
        await wait_for(pilot, lambda: started)
        assert started[0] == proof.request
        await pilot.press("f2")
        await wait_for(pilot, lambda: isinstance(app.screen, FormScreen))
        (command,) = [one for one in app.form.commands() if one.title == "Measure scaling"]
        command.callback()
        await wait_for(pilot, "Weak scaling keeps the batch")
        await pilot.press("s")
        await wait_for(pilot, "with 1, 2 replicas in turn")
        await pilot.press("m")
        await wait_for(pilot, lambda: len(started) == 2)
        assert started[1].scaling is not None
        assert started[1].scaling.keep == "global"
        assert "learning_rate: 0.02" in started[1].preset


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


def trained(home: Path, proof: Proof, *numbers: int) -> list[Run]:
    """The runs of some trials of the sweep; the last one has failed."""
    made = []
    for number in numbers:
        outcome: Any = "error" if number == numbers[-1] else "ok"
        run = recorded.write(home, name=f"{proof.id}-{number:03}", gpus=0, seconds=20, outcome=outcome)
        run.file(part_of_sweep.FILE).write_text(json.dumps({"sweep": proof.id}))
        titles.retag(run, ["sweep-20261126-120000"])
        os.utime(run.file("preset.yaml"), (recorded.BEGAN + 60 * number,) * 2)
        made.append(run)
    return made


def test_in_the_list_of_the_command_a_sweep_is_one_line(
    proof: Proof, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.write(home, name="20260921-100000-alone", gpus=0, seconds=20)
    trained(home, proof, 1, 2, 3)
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
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(str(one["sweep"]) for one in told) == [proof.id] * 3 + ["None"]
    assert f" {units.size(sum(one['bytes'] for one in told if one['sweep']))} " in lines[0]


async def test_the_view_beside_the_list_shows_all_values_of_a_sweep(proof: Proof, home: Path) -> None:
    trained(home, proof, 1, 2)
    async with opened((120, 15)) as pilot:
        await pilot.press("f4")
        await wait_for(pilot, "sweep 16 of 16")
        table = pilot.app.screen.query_one(RunsTable)
        rows = list(pilot.app.screen.shown)  # type: ignore[attr-defined]
        table.move_cursor(row=rows.index(proof.id))
        await wait_for(pilot, "0.003 ━")
        assert re.findall(r"0\.00[13] [━─]+ +([\d.]+)", text_of(pilot.app)) == ["1.89", "1.71"], "means of two seeds"


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
        await wait_for(pilot, "Make it learn better")
        await pilot.press("enter")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, SweepDialog))
        shown = await wait_for(pilot, "3 settings: 3 trainings, then 10 for the proof; 2 at once; how long is not")
        assert "sweep           learning_rate=0.00067,0.002,0.006" in shown
        assert "parallel        -" in shown, "everything fits into 80 x 24"
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
