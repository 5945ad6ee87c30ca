"""Trials side by side, each on a GPU of its own, on stand-ins for GPUs (support/fakegpu)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakegpu import FakeGpu

pytest_plugins = ("tests.support.fakegpu.fixture",)

PROGRAM = """\
import json, sys
from pathlib import Path
from gputui.engine import presets
from gputui.engine.job import this_machine
from gputui.engine.runs.events import Started
from gputui.engine.runs.events import EVENTS_FILE
from gputui.engine.runs.event_reading import read_events
from gputui.engine.trials.trial_runner import Stop, TrialRunner
from gputui.engine.tune.candidates.search_trials import TrialRequest, SideBySide
from gputui.engine.tune.candidates.search_trials import Trials
folder, here = Path(sys.argv[1]), this_machine.read()
preset = presets.resolve("quickstart", ["model=mlp", "width=0.05", "train.seed=1", "xla=off", "validation_split=0"])
bench = TrialRunner(folder / "trials", folder, 1, 0.5, here, Stop())
side_by_side = SideBySide(Trials(bench, (), lambda: 0.0, 600.0, 10.0), here)
places = side_by_side.places(preset)
found = side_by_side.measure([TrialRequest(preset, "g", 0.5, repeat) for repeat in (1, 2)], places)
none = {one: len(side_by_side.places(presets.resolve("quickstart", [one]))) for one in sys.argv[2:]}
read = [read_events(bench.run_of(trial).path, [EVENTS_FILE]).of(Started)[0] for trial in found]
gpus = [place.gpu for place in places]
print(json.dumps([gpus, [trial.outcome for trial in found], [one.gpus for one in read], none]))
"""


def measured(fakegpu: FakeGpu, folder: Path, *settings: str) -> list[Any]:
    environment = os.environ | fakegpu.environment(folder / "gpus", gpus=2, settings="kernel_us=100")
    program = [sys.executable, "-c", PROGRAM, str(folder), *settings]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=200)
    return list(json.loads(done.stdout))


@pytest.mark.slow
def test_two_trials_at_once_train_each_on_its_own_gpu(fakegpu: FakeGpu, home: Path, tmp_path: Path) -> None:
    elsewhere = ("device.visible=1", "strategy.kind=mirrored", "device.visible=none")
    places, outcomes, used, none = measured(fakegpu, tmp_path, *elsewhere)
    assert places == ["GPU-0000-0", "GPU-0000-1"]
    assert outcomes == ["ok", "ok"]
    assert used == [["GPU-0000-0"], ["GPU-0000-1"]]
    assert none == dict.fromkeys(elsewhere, 0), "these may not or do not train on one of several GPUs"
