"""How the speed grows with replicas, and whether several copies on one device pay."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    EventWriter,
    Gpu,
    Machine,
    Measurement,
    Options,
    Preset,
    Record,
    Run,
    copies,
    events,
    folder,
    improved_preset,
    options_json,
    presets,
    proof_sentences,
    rounds,
)
from tests.doors.engine import proof_request as request
from tests.doors.engine import proof_request_Request as Request
from tests.doors.tui import tui_cli as cli
from tests.support.front_door import gputui, opened, until
from tests.support.proving import HERE, Planted, PlantedBench
from tests.support.proving import forked_trials as forked_trials

PRESET = """\
workload: {entry: "train.py:build"}
input: {batch_size: 32}
train: {validation_split: 0}
"""
CODE = """\
import keras, numpy as np
def build(context):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    return {"model": model, "loss": "mse", "train": (np.zeros((512, 4), "float32"), np.zeros(512))}
"""


def told(record: Record) -> dict[str, Any]:
    return dict(json.loads(record.path.read_text()))


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trials")
@pytest.mark.nightly
def test_scaling_is_measured_from_the_command_line_and_goes_on_after_a_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real trainings over two logical devices; how fast they are is not looked at."""
    (tmp_path / "small.yaml").write_text(PRESET)
    (tmp_path / "train.py").write_text(CODE)
    given = ["--preset", "small.yaml", "--set", "logical_devices=2"]
    with opened("scaling", *given, "--seconds", "0.1", "--anyway", "--json", cwd=tmp_path) as viewer:
        proof = until(lambda: next(iter(folder.proofs()), None))
        until(lambda: len((proof.data.get("scaling") or {}).get("points", [{}])[0].get("trials", ())) >= 1)
        os.kill(proof.data["pid"], signal.SIGKILL)
        viewer.communicate(timeout=120)
    assert proof.state == "crashed"
    done = gputui("scaling", "--resume", "--anyway", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    one, two = data["scaling"]["points"]
    assert one["trials"][0]["run"] == "01-1", "the trial before the kill counts"
    assert [len([row for row in point["trials"] if row["outcome"] == "ok"]) for point in (one, two)] == [3, 3]
    assert {row["replicas"] for row in two["trials"]} == {2}
    assert (one["global_batch_size"], two["global_batch_size"]) == (32, 64)
    assert two["efficiency"] == pytest.approx(two["speedup"] / 2)
    assert cli.run(["proof"]) == 0
    assert "2 replicas train" in capsys.readouterr().out
    cli.run(["tune", "--resume", proof.id])
    assert "is a measurement of scaling, and gputui tune --resume goes on with a search" in capsys.readouterr().err
    for given_name in ([], [proof.id]):
        assert cli.run(["scaling", "--resume", *given_name]) == 2
        refused = capsys.readouterr().err
        assert refused.startswith(f"{proof.id} has ended; gputui proof "), "the latest is complete"


SMALL = "workload: {model: mlp, width: 0.1}\ninput: {batch_size: 32}\n"


def with_gpu(gigabytes: int = 24) -> Machine:
    return dataclasses.replace(HERE, cpus=8, gpus=(Gpu(0, "GPU-0", "a GPU", (9, 0), gigabytes * 2**30),))


def test_only_the_seconds_count_in_which_all_copies_trained(tmp_path: Path) -> None:
    """The first trains alone at 100 steps/s until the second has warmed up; then each makes 40 steps/s."""
    first = reported(tmp_path / "1", {0: (0, None), 1: (90, 1.0), 2: (190, 1.0), 4: (270, 1.0), 6: (350, 1.0)})
    second = reported(tmp_path / "2", {1: (0, None), 2: (10, 1.0), 4: (90, 1.0), 8: (250, 1.0)})
    assert copies.together([first, second]) == (1002.0, 1006.0, 80 * 32, 80)
    alone = reported(tmp_path / "3", {7: (0, 1.0), 9: (90, 1.0)})
    begin, end, *speeds = copies.together([first, alone])
    assert end < begin
    assert speeds == [0, 0]
    assert copies.together([first, reported(tmp_path / "4", {0: (1, None)})]) == (0, 0, 0, 0)


def reported(path: Path, steps: Mapping[int, tuple[int, float | None]]) -> Run:
    """The run that has reported these steps and speeds, by seconds after 1,000."""
    path.mkdir()
    writer = EventWriter(path / "events.jsonl", path.name)
    for seconds, (step, speed) in steps.items():
        writer.emit(
            events.Progress(
                epoch=1, epochs=1, step=step, steps=9999, samples_per_second=speed, step_ms_p50=None,
                step_ms_p95=None, input_wait=None, loss=None, metrics={}, eta_seconds=None, samples=32 * step,
            ),
            1000.0 + seconds,
        )  # fmt: skip
    writer.close()
    return Run(path)


Speeds = Callable[[int], float]  # of all copies, by their number


def measured_copies(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    speeds: Speeds,
    common_seconds: float = 5.0,
    oom_from: int = 99,
    here: Machine = HERE,
) -> Record:
    def as_planted(runs: Sequence[Run]) -> tuple[float, float, float, float]:
        return 0.0, common_seconds if len(runs) > 1 else 5.0, speeds(len(runs)), speeds(len(runs)) / 32

    def figures(options: Options, before: int) -> Planted:
        count = here.cpus // threads if isinstance(threads := options.device.intra_op_threads, int) else 1
        return Planted(speeds(1), outcome="oom" if count >= oom_from else "ok")

    monkeypatch.setattr(copies, "together", as_planted)
    asked = copies.copies_settings(presets.defaults(), here, [2, 3])
    made = request.of_opened("scaling", presets.defaults(), scaling=asked)
    made = Request.read(written(path, made))
    record, bench = folder.empty_record(path, made), PlantedBench(path / "trials", figures)
    rounds.measure(Measurement(made, record, bench, here))
    record.state = "done"
    record.write()
    return record


def written(path: Path, made: Request) -> Path:
    path.mkdir()
    (path / "request.json").write_text(made.to_json())
    return path / "request.json"


def in_folder(folder: Path, preset: Preset) -> Run:
    """A run's folder with its options."""
    folder.mkdir(parents=True)
    (folder / options_json.FILE).write_text(options_json.to_json(preset.options))
    return Run(folder)


def test_the_queue_follows_what_was_measured_on_these_gpus(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "proofs").mkdir(parents=True)
    preset, models, one = presets.defaults(), ["a GPU"], home / "proofs/20261127-010101-scaling"
    own = in_folder(home / "runs/own", preset)
    assert copies.measured(own, 3, models) == "not measured: gputui scaling --copies 1,2,3"
    assert measured_copies(home / "proofs/on-the-cpu", monkeypatch, lambda count: 1000.0 * count).changes_kept == {}
    record = measured_copies(one, monkeypatch, {1: 1000.0, 2: 1500.0, 3: 1505.0}.__getitem__, here=with_gpu())
    assert record.changes_kept == {"run.per_gpu": 2, "device.visible": "free:1"}
    step_ms = told(record)["scaling"]["points"][1]["trials"][0]["step_ms"]
    assert step_ms == pytest.approx(2 * 1000 * 32 / 1500), "of each of the two copies"
    assert proof_sentences.result(record).endswith(
        "; each has 75 % of the speed of one alone; with run.per_gpu=2 the queue puts so many runs on a GPU"
    )
    record.machine = {"gpus": models}
    record.write()
    assert copies.measured(own, 2, models) == f"{one.name} has measured it"
    assert copies.measured(own, 3, models) == f"{one.name} has measured that 2 pay most"
    for state in ("running", "stopped"):  # the last rounds may change it
        record.state = state
        record.write()
        assert copies.measured(own, 2, models).startswith("not measured")
    record.state = "done"
    record.write()
    for given, added in (("free:1", {}), ("free:2", {}), ("fits:1", {"device.visible": "free:1"}),
                         ("[0]", {"device.visible": "free:1"})):  # fmt: skip
        options = presets.defaults([f"device.visible={given}"]).options
        assert copies.changes_for_queue(record, options) == {"run.per_gpu": 2} | added, given
    assert copies.measured(own, 2, ["another GPU"]).startswith("not measured")
    assert copies.measured(in_folder(home / "runs/other", presets.defaults(["batch_size=7"])), 2, models).startswith(
        "not measured"
    )
    improved_preset.save(folder.find(one.name), home / "shared.yaml")
    saved = (home / "shared.yaml").read_text()
    shared = presets.resolve(str(home / "shared.yaml"), ["train.learning_rate=0.5"])
    assert shared.options.run.per_gpu == 2
    assert copies.measured(in_folder(home / "runs/shared", shared), 2, models) == f"{one.name} has measured it"
    assert "2 copies at once on one GPU train 1.50 times as many samples" in saved.partition("\n")[0]
    record = measured_copies(home / "proofs/slower", monkeypatch, lambda count: 1000.0 / count, here=with_gpu())
    assert record.changes_kept == {}
    record.machine = {"gpus": models}
    record.write()
    assert copies.measured(own, 2, models) == "slower has measured that sharing does not pay"


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.usefixtures("forked_trials")
def test_copies_are_measured_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real trainings at once; how fast they are is not looked at."""
    (tmp_path / "small.yaml").write_text(SMALL)
    given = ("--preset", "small.yaml", "--copies", "2", "--seconds", "1", "--anyway", "--json")
    done = gputui("scaling", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)["scaling"]["points"]
    assert (one["copies"], two["copies"]) == (1, 2)
    good: list[dict[str, Any]] = [trial for trial in two["trials"] if trial["outcome"] == "ok"]
    assert good, two
    assert all(trial["samples_per_second"] > 0 for trial in good)
    trials = next(iter(folder.proofs())).trials
    assert len(trials) >= 9, "each copy has a run of its own"
    assert cli.run(["scaling", "--preset", "quickstart", "--copies", "2", "--keep", "global"]) == 2
    assert "leave out --replicas and --keep" in capsys.readouterr().err
