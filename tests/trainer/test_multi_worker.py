"""Several machines train together: their workers are processes of this machine, connected over its loopback."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
from gputui.engine import presets
from gputui.engine.runs import Run, checkpoint_files

from tests.support.cluster import connected, epochs, program, told, workers_of
from tests.support.forking import Forks, Program, trainer_of
from tests.support.front_door import until

pytestmark = pytest.mark.slow

# `python leaving.py FOLDER TIMES`: the second worker waits TIMES times for the other one at the end, and is gone then.
LEAVING = """
import json, os, sys, time
from pathlib import Path

from gputui.engine.runs import Run
from gputui.engine.trainer.cluster import tensorflow_cluster
from gputui.engine.trainer.setup import devices

from tests.support.training import options

settings = options("strategy.kind=multi_worker", "model=mlp")
agreed, joined = tensorflow_cluster.meet(settings, Run(Path(sys.argv[1])), print, lambda: None)
devices.configure(agreed, joined)
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    joined.exchange.leave()
else:
    for _ in range(int(sys.argv[2])):
        joined.exchange.wait()
    time.sleep(0.5)  # the other one has the values
os._exit(0)
"""
SHORT = ("train.epochs=3", "optimizer=sgd", "learning_rate=0.05", "train.seed=3")


def test_three_workers_train_what_one_machine_trains(forks: Forks, tmp_path: Path) -> None:
    """The same global batch: 170 samples in batches of 48, and a rest of 26 that is no multiple of 3.

    And the same learning rate: a third of it, scaled by the number of replicas.
    """
    settings = (*program(tmp_path), *SHORT, "run.save_model=true", "run.checkpoint=epoch")
    runs, programs = workers_of(3, *settings, "batch_size=16", "steps_per_execution=3",
                               "learning_rate=0.016666666666666666", "learning_rate_scaling=linear")  # fmt: skip
    alone, single = trainer_of(presets.defaults([*settings, "batch_size=48"]))
    forks.run(single, *programs)
    for run in runs:
        assert epochs(run) == epochs(runs[0]), "all report the figures of all"
        for epoch, figures in epochs(alone).items():
            # The same sums in another order; replicas of an uneven rest count alike, 8, 9 and 9 samples.
            assert epochs(run)[epoch] == pytest.approx(figures, rel=0.01), epoch
    started = [told(run, "started")[0] for run in runs]
    assert [one["worker"] for one in started] == [0, 1, 2]
    assert [[worker["run"] for worker in one["workers"]] for one in started] == [[run.id for run in runs]] * 3
    assert {(one["replicas"], one["global_batch_size"], one["steps"]) for one in started} == {(3, 48, 12)}
    assert all("by element" in one["actual"]["sharding"] for one in started)
    assert [one["actual"]["learning_rate"] for one in started] == [pytest.approx(0.05)] * 3
    for name in ("model.keras", "checkpoints"):
        assert [run.file(name).exists() for run in runs] == [True, False, False]


def test_a_killed_worker_is_named_and_all_resume_to_the_same_losses(forks: Forks, tmp_path: Path) -> None:
    rules = ("early_stop=val_loss", "early_stop_patience=2", "early_stop_restore=true", "keep_best=val_accuracy",
             "keep_best_count=2", "schedule=reduce_on_plateau", "plateau_patience=1", "save_model=true")  # fmt: skip
    settings = (*SHORT, *rules, "run.checkpoint=4", "batch_size=16")
    (tmp_path / "whole").mkdir()
    whole, unbroken = workers_of(2, *program(tmp_path / "whole", "build_own_state"), *settings)
    (tmp_path / "fate").write_text(json.dumps([1, 9, signal.SIGKILL]))
    runs, programs = workers_of(2, *program(tmp_path, "build_own_state"), *settings)
    assert forks.codes(*programs, *unbroken) == [1, -signal.SIGKILL, 0, 0]
    error = the_error(runs[0])
    assert error["kind"] == "peer_lost"
    assert "worker 1 (127.0.0.1:" in error["message"]
    assert "--resume-if-any" in error["hint"]
    (tmp_path / "fate").unlink()
    forks.run(*connected(programs))
    assert [told(run, "started")[-1]["resumed_at_step"] for run in runs] == [8, 8]
    for run in runs:
        assert epochs(run)[3] == epochs(whole[0])[3], "exactly, with what each worker has of its own"
    for name in ("fate-end-0", "fate-end-1"):  # what their callbacks have counted, and the best weights
        assert (tmp_path / name).read_text() == (tmp_path / "whole" / name).read_text()
    for resumed, unbroken_run in zip(runs, whole, strict=True):
        result, expected = resumed.result or {}, unbroken_run.result or {}
        assert (result["ended_by"], result["best"]) == (expected["ended_by"], expected["best"])
        assert len(result["best"]) == 2
    kept = [item["file"] for item in (runs[0].result or {})["best"][0]["files"]]
    assert len(kept) == 2
    for file in (*kept, "model.keras"):
        pair = (keras.models.load_model(run.file(file)).get_weights() for run in (runs[0], whole[0]))
        assert all(np.array_equal(*weights) for weights in zip(*pair, strict=True)), file
    assert not runs[1].file("best").exists(), "the chief alone writes"


def test_a_frozen_chief_and_a_worker_that_never_comes_are_named(forks: Forks, tmp_path: Path) -> None:
    """Two clusters at the same time, for in both most of the time is waited; the frozen chief ends when it goes on."""
    (tmp_path / "fate").write_text(json.dumps([0, 5, signal.SIGSTOP]))
    settings = (*program(tmp_path, "build_small"), *SHORT)
    runs, programs = workers_of(2, *settings, "steps_per_execution=3", "train.epochs=30", "batch_size=16")
    (left, _), (only, _) = workers_of(2, *settings)
    only.environment["GPUTUI_PEER_SECONDS"] = "0.5"
    codes: list[int] = []
    training = threading.Thread(target=lambda: codes.extend(forks.codes(*programs, only)))
    training.start()
    try:
        until(lambda: runs[1].result is not None or not training.is_alive(), 300)
        os.kill(told(runs[0], "started")[0]["pid"], signal.SIGCONT)
        training.join(120)
    finally:
        if training.is_alive():
            os.kill(told(runs[0], "started")[0]["pid"], signal.SIGKILL)
    training.join()
    assert codes == [1, 1, 1]
    assert math.isfinite(epochs(runs[1])[1]["loss"])
    assert "worker 0 (127.0.0.1:" in the_error(runs[1])["message"]
    error = the_error(runs[0])
    assert error["kind"] == "suspended"
    assert error["message"].startswith("worker 0 (127.0.0.1:")
    assert ", this one, was suspended for" in error["message"]
    error = the_error(left)
    assert error["kind"] == "peer_missing"
    assert "worker 1 (127.0.0.1:" in error["message"]
    assert any("waiting for worker 1" in event["detail"] for event in told(left, "phase"))


def test_a_worker_whose_engine_is_killed_is_named_by_the_others(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "fate").write_text(json.dumps([1, 3, 0]))
    settings = ("policy=mixed_bfloat16", "global_clip_norm=0.5", "steps_per_execution=2", "train.epochs=2000",
                "run.checkpoint=epoch")  # fmt: skip
    runs, programs = workers_of(2, *program(tmp_path, "build_small"), *SHORT, *settings)
    forks.run(*programs)
    chief, other = (run.result or {} for run in runs)
    assert (chief["outcome"], other["outcome"]) == ("error", "crashed")
    assert chief["error"]["message"].startswith("the engine of worker 1 (127.0.0.1:")
    assert other["error"]["message"].startswith("the engine of this run was killed")
    assert chief["steps"] == other["steps"], "all stop together, with a checkpoint"
    assert checkpoint_files.whole_step(runs[0].file("checkpoints")) == chief["steps"]
    (tmp_path / "fate").write_text(json.dumps([1, 3, signal.SIGTERM]))
    forks.run(*connected(programs))
    for run in runs:
        assert told(run, "started")[-1]["resumed_at_step"] == chief["steps"]
        assert (run.result or {})["outcome"] == "stopped"


def test_a_checkpoint_that_the_chiefs_disk_refuses_is_tried_again_by_all(forks: Forks, tmp_path: Path) -> None:
    """Asked to stop at the end of an epoch, whose checkpoint could not be written: all are at the same step still."""
    settings = (*program(tmp_path, "build_small"), *SHORT, "train.epochs=2000", "run.checkpoint=epoch")
    code = tmp_path / "train.py"
    code.write_text(code.read_text().replace("on_train_batch_end(self, batch", "on_epoch_end(self, epoch"))
    (tmp_path / "fate").write_text(json.dumps([1, 2, signal.SIGTERM]))
    runs, programs = workers_of(2, *settings)
    runs[0].file("checkpoints").touch()  # in place of the folder
    forks.run(*programs)
    assert [(run.result or {})["outcome"] for run in runs] == ["stopped", "stopped"]
    refused = [event["message"] for event in told(runs[0], "warning") if event["kind"] == "checkpoint"]
    assert len(refused) == 1, refused
    assert "no checkpoint of step" in refused[0]


def test_three_workers_stop_together_in_an_evaluation_when_one_is_asked_to(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "fate").write_text(json.dumps([2, 3, signal.SIGTERM]))
    settings = ("train.epochs=2000", "run.checkpoint=epoch", "batch_size=16")
    runs, programs = workers_of(3, *program(tmp_path), *SHORT, *settings)
    code = tmp_path / "train.py"
    changed = code.read_text().replace("on_train_batch_end(self, batch", "on_test_batch_begin(self, batch")
    kill = "os.kill(os.getpid(), number)"
    assert kill in changed
    heard = f"({kill}, time.sleep(1))"  # by a thread of the trainer, before the batch that follows
    code.write_text(changed.replace(kill, heard).replace("import json,", "import time, json,"))
    forks.run(*programs)
    results = [run.result or {} for run in runs]
    assert [result["outcome"] for result in results] == ["stopped"] * 3
    assert {result["steps"] for result in results} == {checkpoint_files.whole_step(runs[0].file("checkpoints"))} == {12}
    asked = [[event["message"] for event in told(run, "warning") if event["kind"] == "peer_stopped"] for run in runs]
    assert [len(messages) for messages in asked] == [1, 1, 0]
    assert all(messages[0].startswith("worker 2 (127.0.0.1:") for messages in asked[:2])
    for run in runs:
        assert set(epochs(run)) == {1, 2}, "a resumed run repeats the evaluation of the third"


def the_error(run: Run) -> dict[str, str]:
    result = run.result
    assert result is not None
    assert result["outcome"] == "error", result
    return dict(result["error"])


def test_the_end_of_a_worker_fails_the_others_unless_all_have_come_to_their_end(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text(LEAVING)
    here = str(Path(__file__).parents[2])
    pairs = []
    for times in (0, 1):
        words = [str(tmp_path / "leaving.py"), str(tmp_path), str(times)]
        logs = [str(tmp_path / f"log{times}-{index}") for index in (0, 1)]
        pairs += connected([Program(here, log, words, path=[here]) for log in logs])
    assert forks.codes(*pairs) == [1, 0, 0, 0]
