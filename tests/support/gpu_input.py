"""Trains on stand-in GPUs in a process of its own, and prints what the tests of the input on GPUs compare, as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.fakegpu import FakeGpu
from tests.support.training import Training, built, options

SMALL = ("model=mlp", "width=0.1", "data=digits", "batch_size=64", "epochs=2", "steps_per_epoch=8", "optimizer=sgd")


def told(fakegpu: FakeGpu, folder: Path) -> dict[str, Any]:
    """What the process has printed. A copy of a batch to a GPU takes longer than its step."""
    environment = os.environ | fakegpu.environment(folder / "gpus", gpus=2, settings="kernel_us=200;copy_us=4000")
    command = [sys.executable, "-m", "tests.support.gpu_input", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Trainings:
    """One after the other on the same devices."""

    def __init__(self, folder: Path) -> None:
        from gputui.engine.trainer.setup import devices

        self._devices, self._folder, self._count = devices.configure(options()), folder, 0

    def built(self, *settings: str) -> Training:
        import keras

        self._count += 1
        wanted = options(*SMALL, *settings)
        keras.utils.set_random_seed(wanted.train.seed)
        return built(self._folder / f"run{self._count}", self._devices, wanted)

    def losses(self, *settings: str) -> list[float]:
        """Of each epoch, training and validation."""
        events = self.built(*settings).train().events("epoch")
        return [event["metrics"][name] for event in events for name in ("loss", "val_loss")]

    def resumed_losses(self, *settings: str) -> list[float]:
        """Of a training that goes on in the middle of the second epoch of another one."""
        before = self.built(*settings, "checkpoint=11", "keep=9").train()
        after = self.built(*settings)
        shutil.copytree(before.run.file("checkpoints"), after.run.file("checkpoints"))
        after.loop.run(11)
        return [event["metrics"][name] for event in after.events("epoch") for name in ("loss", "val_loss")]


def prefetching(trainings: Trainings) -> dict[str, Any]:
    ways = {
        "single": ("strategy.kind=single",),
        "in executions": ("steps_per_execution=3",),
        "mirrored": ("strategy.kind=mirrored", "batch_size=32"),
    }
    return {
        name: [trainings.losses(*settings, f"prefetch_to_device={count}") for count in ("off", "auto")]
        for name, settings in ways.items()
    } | {"resumed": [trainings.losses(), [0, 0, *trainings.resumed_losses()]]}


if __name__ == "__main__":
    these = Trainings(Path(sys.argv[1]))
    print(json.dumps({"prefetching": prefetching(these)}))
