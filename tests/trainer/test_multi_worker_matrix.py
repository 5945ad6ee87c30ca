"""Precision, XLA and steps per execution with two workers, any two of them in every way: chief and worker agree.

The workers are connected once, and train all combinations one after the other.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
from gputui.engine.runs import Run

from tests.support.cluster import connected, epochs, told
from tests.support.combinations import any_two
from tests.support.forking import Forks, Program

pytestmark = pytest.mark.slow

PRECISIONS = ("float32", "mixed_float16")
XLA = ("false", "true")
TOGETHER = (1, 3)
COMBINATIONS = any_two(PRECISIONS, XLA, TOGETHER)
# 4 steps an epoch are not divisible by 3: the last execution is a smaller one.
SMALL = ("strategy.kind=multi_worker", "model=mlp", "width=0.05", "batch_size=16", "optimizer=sgd", "learning_rate=0.5",
         "validation_split=0", "epochs=2", "steps_per_epoch=4", "train.seed=3")  # fmt: skip

# `python worker.py FOLDER`: one worker, which trains what FOLDER/combinations lists; each run is a folder of its own.
WORKER = """
import json, os, sys
from pathlib import Path

import tensorflow as tf
from gputui.engine.runs import Run
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.trainer import assembly
from gputui.engine.trainer.cluster import tensorflow_cluster
from gputui.engine.trainer.common.stopping import StopSwitch
from gputui.engine.trainer.measure.run_report import RunReport
from gputui.engine.trainer.setup import devices

from tests.support.training import options

folder = Path(sys.argv[1])
all_settings = json.loads((folder / "combinations").read_text())
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
first, joined = tensorflow_cluster.meet(options(*all_settings[0]), Run(folder), print, lambda: None)
opened = devices.configure(first, joined)
for number, settings in enumerate(all_settings):
    run = Run(folder / f"{number}-worker{index}")
    run.path.mkdir()
    report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
    opened.connected.extended._collective_key_base += 100_000  # as if each training were a process
    loop = assembly.build(options(*settings), opened, report, StopSwitch(), joined)
    loop.run(None)
    weights = [variable.numpy().tobytes() for variable in loop.built.model.trainable_variables]
    (run.path / "weights").write_bytes(b"".join(weights))
    report.writer.close()
joined.exchange.leave()
os._exit(0)  # TensorFlow may wait in its destructors
"""


def test_losses_and_weights_of_chief_and_worker_are_the_same(forks: Forks, tmp_path: Path) -> None:
    settings = [[*SMALL, f"policy={precision}", f"xla={xla}", f"steps_per_execution={together}"]
                for precision, xla, together in COMBINATIONS]  # fmt: skip
    (tmp_path / "combinations").write_text(json.dumps(settings))
    (tmp_path / "worker.py").write_text(WORKER)
    here = str(Path(__file__).parents[2])
    words = [str(tmp_path / "worker.py"), str(tmp_path)]
    forks.run(*connected([Program(here, str(tmp_path / f"log{index}"), words, path=[here]) for index in (0, 1)]))
    for number, combination in enumerate(COMBINATIONS):
        chief, worker = (Run(tmp_path / f"{number}-worker{index}") for index in (0, 1))
        figures = epochs(chief)
        assert sorted(figures) == [1, 2], combination
        assert figures == epochs(worker), combination
        assert chief.file("weights").read_bytes() == worker.file("weights").read_bytes(), combination
        assert all(math.isfinite(one["loss"]) for one in figures.values()), combination
        assert figures[2]["loss"] < figures[1]["loss"], combination
        for run in (chief, worker):
            (exchange,) = told(run, "exchange")
            assert exchange["ms"] > 0, combination
            assert exchange["bytes"] == run.file("weights").stat().st_size, combination


def test_any_two_options_meet_in_every_way() -> None:
    every = (PRECISIONS, XLA, TOGETHER)
    for two in itertools.combinations(range(3), 2):
        met = {tuple(combination[index] for index in two) for combination in COMBINATIONS}
        assert met == set(itertools.product(*(every[index] for index in two))), two
