"""Sweeps with simulated trainings: values, search, halving, failures, kills, and the proof."""

from __future__ import annotations

import hashlib
import json
import math
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import (
    PROOF_LOCK,
    RUNNING,
    SEARCH,
    Entry,
    Look,
    ProofError,
    QueuedTrainings,
    Run,
    RunError,
    Stop,
    Stopped,
    SweepTrial,
    locks,
    part_of_sweep,
    presets,
    runner,
    saving,
    spawn,
    sweep_record,
    sweep_request,
    swept_values,
)
from tests.doors.engine import identity_Place as Place
from tests.doors.engine import runs_runs_folder as runs_folder
from tests.support.damage import ran
from tests.support.swept import Killed, Simulated, read_back, request_of, swept

RATES = "learning_rate=1e-3,2e-3,3e-3"


def loss(changes: Mapping[str, Any], seed: int, epoch: int) -> float:
    """The best rate is 3e-3. The noise belongs to the rate and the seed, and later epochs have lower losses."""
    rate: float = changes["train.learning_rate"]
    return 1 - 100 * rate + 0.5 / epoch + random.Random(f"{rate} {seed}").gauss(0, 0.01)


def test_an_argument_is_set_or_swept_only_if_the_preset_or_the_code_names_it(home: Path, tmp_path: Path) -> None:
    """The code may read it in a file that it imports."""
    (tmp_path / "train.py").write_text("from parts import model\ndef build(context):\n    return model(context)\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from .made import model\n")
    (tmp_path / "parts" / "made.py").write_text("def model(given): return given.args.get('width', 16)\n")
    preset = tmp_path / "own.yaml"
    preset.write_text("workload: {entry: 'train.py:build', args: {head: {units: 3}}}\n")
    for name in ("width", "head.units"):
        assert sweep_request.of_preset(presets.resolve(str(preset)), [f"args.{name}=4,16"], "val_loss", None).sweep
    why = "workload.args: neither the preset's workload.args nor the code has the name "
    for name, word, hint in (
        ("widht", "widht", ", did you mean width?"), ("head.unit", "unit", ", did you mean units?"),
        ("rate", "rate", "; if the code passes it on, add it to the preset"),
    ):  # fmt: skip
        with pytest.raises(ProofError) as fault:
            sweep_request.of_preset(presets.resolve(str(preset)), [f"args.{name}=4,16"], "val_loss", None)
        assert str(fault.value) == f"--over workload.args.{name}=4: {why}'{word}'{hint}"
    code, _, error = ran(("--preset", str(preset), "--set", "args.widht=4", "--dry-run"))
    assert (code, error.strip()) == (2, f"--set args.widht=4: {why}'widht', did you mean width?")
    (tmp_path / "train.py").write_text("from elsewhere import build\n")
    assert presets.resolve(str(preset), ["args.rate=4"]), "its code is not known"


def test_a_preset_brings_its_sweep_with_it(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    head = "schema_version: 1\nworkload: {model: mlp, data: digits}\n"
    over = "sweep:\n  over: {learning_rate: [1e-3, 3e-3], weight_decay: 0..0.1, args.units: [8, '4,4']}  # three\n"
    path.write_text(f"{head}{over}  seeds: 2\n  metric: val_accuracy\n")
    given = swept_values.parameters(str(path))
    assert given["over"] == ("learning_rate=0.001,0.003", "weight_decay=0..0.1", 'args.units=8,"4,4"')
    assert (given["seeds"], given["metric"]) == (2, "val_accuracy")
    changed = presets.resolve(str(path), ["batch_size=16"])
    saving.save(changed, path)
    assert "# three" in path.read_text(), "saving keeps the block"
    assert swept_values.parameters(str(path)) == given
    for wrong, why in (
        ("  seed: 2", "did you mean seeds"),
        ("  minutes: .nan", "a number from 0.01"),
        ("  sampler: sobol", "give grid, random or tpe"),
    ):
        path.write_text(f"{head}sweep:\n{wrong}\n")
        with pytest.raises(ProofError, match=why):
            swept_values.parameters(str(path))
    path.write_text(f"{head}sweep:\n  over: {{learning_rate: [1e-3, 3e-3]}}\n  metric: val_block\n")
    for options, figure in ((), "val_block"), (("--metric", "val_given"), "val_given"):
        assert f"--metric {figure}: " in ran(("sweep", "--preset", str(path), *options))[2]


def test_trials_of_a_sweep_have_the_same_code(home: Path, tmp_path: Path) -> None:
    used = tmp_path / "model.py"
    used.write_text("units = 64\n")
    first = Run(runs_folder() / "20261126-120000-small-001")
    first.path.mkdir(parents=True)
    record = {"folder": str(tmp_path), "files": {str(used): hashlib.sha256(b"units = 32\n").hexdigest()}}
    first.file("code.json").write_text(json.dumps(record))
    trial = SweepTrial(run="20261126-120000-small-002", changes={"train.learning_rate": 0.01}, seed=1)
    trainings = QueuedTrainings(request_of([RATES]), "20261126-120000-small")
    with pytest.raises(RunError, match=r"model.py has changed since .* was trained: all trials have the same code"):
        trainings.start(trial)
    assert not (runs_folder() / trial.run).exists()


def test_a_sweep_goes_on_after_a_restart_of_the_machine(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place.here()
    begun = []

    def popen(command: list[str], **more: Any) -> SimpleNamespace:
        begun.append((command, more))
        return SimpleNamespace(pid=1)

    monkeypatch.setattr(subprocess, "Popen", popen)
    listed = []
    for name, state, boot_id, host in (
        ("20261126-120000-a", "running", "before", place.host),
        ("20261126-120001-b", "running", place.boot_id, place.host),
        ("20261126-120002-c", "stopped", "before", place.host),
        ("20261126-120003-d", "running", "before", "another"),
        ("20261126-120004-e", "running", "before", place.host),
        ("20261126-120005-f", "running", "before", place.host),
    ):
        (home / "proofs" / name).mkdir(parents=True)
        record = {"state": state, "host": host, "boot_id": boot_id, "pid_namespace": place.pid_namespace}
        (home / "proofs" / name / "proof.json").write_text(json.dumps(record))
        (home / "proofs" / name / "request.json").write_text(
            "" if name.endswith("f") else request_of([RATES]).to_json()
        )
        run = Run(runs_folder() / f"{name}-001")
        run.path.mkdir(parents=True)
        run.file(part_of_sweep.FILE).write_text(part_of_sweep.SweepPlace(name, None, {}, 1).as_file())
        listed += [Entry(run.id, 1.0), Entry(f"{name}-other", 2.0)]
    with locks.take(home / "proofs" / "20261126-120004-e" / PROOF_LOCK):  # its user has resumed it
        assert [path.name for path in runner.go_on(listed)] == ["20261126-120000-a"]
    assert "20261126-120005-f does not go on: " in capsys.readouterr().out
    ((command, more),) = begun
    assert command[-2:] == ["gputui.engine.proof", str(home / "proofs" / "20261126-120000-a")]
    assert more["start_new_session"]
    assert more["env"][spawn.LOCK], "it holds the lock of the sweep"


def test_a_sweep_that_is_killed_anywhere_goes_on_and_trains_nothing_twice(tmp_path: Path) -> None:
    request = request_of(["learning_rate=1e-3,2e-3,3e-3,4e-3"], 3, rungs=[1], proof_seeds=2)
    whole = Simulated(loss, 3)
    (tmp_path / "whole").mkdir()
    undisturbed = swept(request, whole, tmp_path / "whole").sweep
    assert undisturbed is not None
    for kill_at in range(1, whole.calls, 5):
        path = tmp_path / str(kill_at)
        path.mkdir()
        trainings = Simulated(loss, 3)
        trainings.kill_at = kill_at
        with pytest.raises(Killed):
            swept(request, trainings, path)
        sweep = swept(request, trainings, path).sweep
        assert sweep is not None
        assert not trainings.trained_twice(sweep), kill_at
        assert len(sweep.trials) == len(undisturbed.trials), kill_at
        assert sweep.winner == undisturbed.winner, kill_at


def test_a_stopped_sweep_stops_its_trials_and_goes_on_later(tmp_path: Path) -> None:
    stop = Stop()

    class Asking(Simulated):
        has_runner = True  # it is stopped together with the sweep, and without it the queue keeps the ended runs

        def start(self, trial: SweepTrial) -> None:
            super().start(trial)
            if trial.run.endswith("003"):
                stop.ask()

        def stop(self, trial: SweepTrial) -> bool:
            self.has_runner = False
            return super().stop(trial)

        def keep_going(self) -> None:
            super().keep_going()
            self.has_runner = True

        def look(self, trial: SweepTrial) -> Look:
            assert self.calls < 1000, "it waits for ever"
            looked = super().look(trial)
            return looked if self.has_runner else Look(RUNNING)

    trainings = Asking(loss)
    request = request_of([RATES])
    with pytest.raises(Stopped):
        swept(request, trainings, tmp_path, stop)
    stopped = read_back(tmp_path).sweep
    assert stopped is not None
    assert [trial.state for trial in stopped.trials] == ["done", "done", "stopped"]
    assert "stopped before the search had ended (2 trials complete)" in sweep_record.result(stopped)
    sweep = swept(request, trainings, tmp_path).sweep
    assert sweep is not None
    assert sweep.winner == {"train.learning_rate": 0.003}
    assert [trial.state for trial in sweep.trials[:3]] == ["done"] * 3


def test_tpe_learns_from_the_trials_and_makes_no_setting_twice(tmp_path: Path) -> None:
    def bowl(changes: Mapping[str, Any], seed: int, epoch: int) -> float | None:
        rate = math.log10(changes["train.learning_rate"])
        return None if rate > -1.5 else (rate + 3) ** 2 + (0.0 if changes["train.optimizer"] == "adam" else 1.0)

    axes = [swept_values.axis("learning_rate=1e-6..1e-1", in_grid=False), swept_values.axis("optimizer=adam,sgd")]
    request = request_of([RATES], sampler="tpe", most_trials=30, proof_seeds=2)
    object.__setattr__(request.sweep, "axes", axes)
    trainings = Simulated(bowl)
    trainings.kill_at = 100
    with pytest.raises(Killed):
        swept(request, trainings, tmp_path)
    sweep = swept(request, trainings, tmp_path).sweep
    assert sweep is not None
    assert sweep.winner is not None
    assert math.log10(sweep.winner["train.learning_rate"]) == pytest.approx(-3, abs=0.3)
    searched = [trial for trial in sweep.trials if trial.part == SEARCH]
    assert len(searched) == len({sweep_record.key_of(trial.changes) for trial in searched}) == 30
    near = [abs(math.log10(trial.changes["train.learning_rate"]) + 3) < 1 for trial in searched]
    assert sum(near[10:]) > 2 * sum(near[:10]), "later settings are near the best"
