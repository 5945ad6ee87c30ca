"""Trains on stand-in GPUs in a process of its own, and prints what the tests of the input on GPUs compare, as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.fakegpu import FakeGpu
from tests.support.training import Training, built, options

SMALL = ("model=mlp", "width=0.1", "data=digits", "batch_size=64", "epochs=2", "steps_per_epoch=4")
MEMORY_MB = 512  # of each GPU


def told(fakegpu: FakeGpu, folder: Path) -> dict[str, Any]:
    """What the process has printed. The copy of a batch of floats (16 KiB) to a GPU takes 40 ms, a kernel 0.2 ms."""
    settings = "kernel_us=200;copy_gbs=0.0004"
    environment = os.environ | fakegpu.environment(folder / "gpus", 2, MEMORY_MB, settings)
    command = [sys.executable, "-m", "tests.support.gpu_input", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Trainings:
    """One after the other on the same devices."""

    def __init__(self, folder: Path) -> None:
        from gputui.engine.trainer.setup import devices

        self.devices, self._folder = devices.configure(options("strategy.kind=mirrored")), folder
        # Kept: an iterator that is dropped waits for TensorFlow's tuning thread, for up to a minute.
        self._built: list[Training] = []
        self.kept: list[Any] = []

    def built(self, *settings: str) -> Training:
        import keras

        wanted = options(*SMALL, *settings)
        keras.utils.set_random_seed(wanted.train.seed)
        self._built.append(built(self._folder / f"run{len(self._built)}", self.devices, wanted))
        return self._built[-1]

    def losses(self, *settings: str) -> list[float]:
        """Of each epoch, training and validation."""
        return _losses(self.built(*settings).train())

    def resumed(self, *settings: str) -> tuple[list[float], list[float]]:
        """The losses of a training, and of one that goes on from the middle of its second epoch."""
        before = self.built(*settings, "checkpoint=6", "keep=9").train()
        after = self.built(*settings)
        shutil.copytree(before.run.file("checkpoints"), after.run.file("checkpoints"))
        after.loop.run(6)
        return _losses(before), _losses(after)


def _losses(training: Training) -> list[float]:
    return [event["metrics"][name] for event in training.events("epoch") for name in ("loss", "val_loss")]


def ways(trainings: Trainings) -> dict[str, Any]:
    """The losses of trainings that differ only in how batches come to the GPU."""
    mirrored = ("strategy.kind=mirrored", "batch_size=32")
    ahead, resumed = trainings.resumed("prefetch_to_device=auto", "steps_per_execution=2")
    return {
        "single": [trainings.losses("prefetch_to_device=off"), ahead],
        "resumed": [ahead[2:], resumed],
        "mirrored": [
            trainings.losses(*mirrored, "prefetch_to_device=off"),
            trainings.losses(*mirrored, "prefetch_to_device=3", "cast=device"),
        ],
        "bytes": [trainings.losses("augment=light"), trainings.losses("augment=light", "cast=device")],
    }


def copying(trainings: Trainings) -> dict[str, Any]:
    """Results and verdicts of trainings whose batches are copied in the step, as bytes, and ahead of it."""
    within = ("prefetch_to_device=off",)
    return {
        "within": judged(trainings, *within),
        "bytes": judged(trainings, *within, "cast=device"),
        "ahead": judged(trainings, "prefetch_to_device=auto"),
    }


def running_ahead(trainings: Trainings) -> dict[str, list[float]]:
    """Milliseconds that each of eight calls of a step holds the host, without the clock of its input and with it."""
    import keras
    import tensorflow as tf
    from gputui.engine.trainer.fit import train_function
    from gputui.engine.trainer.fit.executions import constant
    from gputui.engine.trainer.fit.fit_data import FitData
    from gputui.engine.trainer.measure.graph_clock import GraphClock
    from gputui.engine.trainer.setup import strategy

    class Products(keras.Model):  # type: ignore[misc]
        """A step of forty products one after the other; Keras' own copies the batch size to the GPU, and waits."""

        def __init__(self) -> None:
            super().__init__()
            self.w = self.add_weight(shape=(64, 64))

        def train_step(self, data: Any) -> dict[str, Any]:
            x, w = data[0], tf.convert_to_tensor(self.w.value)
            for _ in range(40):
                x = tf.tanh(tf.matmul(x, w))
            return {"loss": tf.reduce_mean(x)}

    wanted = options("strategy.kind=one_device")
    distribution = strategy.build(wanted, trainings.devices)
    assert distribution is not None
    with distribution.scope():
        model = Products()
        model.compile(optimizer="sgd", jit_compile=False)
    batches = tf.data.Dataset.from_tensors((tf.ones((8, 64)), tf.ones((8,)))).repeat()
    iterator = iter(FitData(wanted, distribution, trainings.devices).training(batches))
    clocks = [GraphClock(deterministic=True), GraphClock(deterministic=False, first_only=True)]
    found: dict[str, list[float]] = {}
    for name, run in zip(("plain", "clocked"), train_function.training(model, clocks), strict=True):
        float(run(iterator, constant(1))["loss"])
        time.sleep(0.3)  # until two batches wait on the device
        logs, found[name] = {}, []
        for _ in range(8):
            begin = time.perf_counter()
            logs = run(iterator, constant(1))
            found[name].append(1000 * (time.perf_counter() - begin))
        float(logs["loss"])
    return found


def memory(trainings: Trainings) -> dict[str, Any]:
    """How many batches iterators of training and validation data hold on a GPU, the one that was drawn among them; and
    the time of a copy that does not fit there.
    """
    import tensorflow as tf
    from gputui.engine.trainer.fit.fit_data import FitData
    from gputui.engine.trainer.measure import transfer
    from gputui.engine.trainer.setup import strategy

    too_large, size = tf.TensorSpec([None, MEMORY_MB * 1024**2], tf.uint8), 16 * 1024
    found: dict[str, Any] = {"seconds": transfer.seconds(too_large, 1, trainings.devices.names[:1])}
    batches = tf.data.Dataset.from_tensors(tf.zeros((1, size), tf.uint8)).repeat()
    for kind in ("single", "mirrored"):
        wanted = options(f"strategy.kind={kind}", "prefetch_to_device=auto")
        distribution = strategy.build(wanted, trainings.devices) or tf.distribute.get_strategy()
        data = FitData(wanted, distribution, trainings.devices)
        for name, iterated in (("training", data.training), ("validation", data.validation)):
            before = _settled_bytes()
            iterator = iter(iterated(batches))
            trainings.kept.append((iterator, next(iterator)))
            found[f"{kind} {name}"] = round((_settled_bytes() - before) / size)
    return found


def _settled_bytes() -> int:
    """What TensorFlow holds on the first GPU, when it has not changed for half a second."""
    import tensorflow as tf

    told: list[int] = []
    while len(told) < 11 or len(set(told[-11:])) > 1:
        told.append(int(tf.config.experimental.get_memory_info("GPU:0")["current"]))
        time.sleep(0.05)
    return told[-1]


def judged(trainings: Trainings, *settings: str) -> dict[str, Any]:
    from gputui.engine import diagnosis

    training = trainings.built(*settings, "epochs=1", "steps_per_epoch=40", "validation_split=0").announce().train()
    training.loop.built.report.finish("ok", 0)
    (started,) = training.events("started")
    return {
        **(training.run.result or {}),
        "kind": training.loop.data.spec[0].dtype.name,
        "device_batches": started["actual"]["device_batches"],
        "diagnosis": asdict(diagnosis.of_run(training.run)),
    }


if __name__ == "__main__":
    these = Trainings(Path(sys.argv[1]))
    held = memory(these)  # before there is anything that may be freed meanwhile
    told_now = {"memory": held, "ways": ways(these), "copying": copying(these), "ahead": running_ahead(these)}
    print(json.dumps(told_now), flush=True)
    os._exit(0)
