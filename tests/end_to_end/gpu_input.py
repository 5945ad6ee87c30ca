"""Trains on stand-in GPUs in a process of its own, and prints what the tests of the input on GPUs compare, as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.fakegpu import FakeGpu
from tests.support.training import Training, built, options

SMALL = ("model=mlp", "width=0.05", "data=digits", "batch_size=64", "epochs=2", "steps_per_epoch=4")
MEMORY_MB = 512  # of each GPU
HOLD = "hold"  # while this file is in the folder, nothing that the GPUs are given ends


def told(fakegpu: FakeGpu, folder: Path, *parts: str, settings: str = "") -> dict[str, Any]:
    """What the process has printed of these of its parts, on GPUs with these settings."""
    settings = f"hold={folder / HOLD};{settings}"
    environment = os.environ | fakegpu.environment(folder / "gpus", 2, MEMORY_MB, settings)
    command = [sys.executable, "-m", "tests.end_to_end.gpu_input", str(folder), *parts]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Trainings:
    """One after the other on the same devices."""

    def __init__(self, folder: Path) -> None:
        from tests.doors.trainer import devices

        self.devices, self.folder = devices.configure(options("strategy.kind=mirrored")), folder
        # Kept: an iterator that is dropped waits for TensorFlow's tuning thread, for up to a minute.
        self._built: list[Training] = []
        self.kept: list[Any] = []

    def built(self, *settings: str) -> Training:
        import keras

        wanted = options(*SMALL, *settings)
        keras.utils.set_random_seed(wanted.train.seed)
        self._built.append(built(self.folder / f"run{len(self._built)}", self.devices, wanted))
        return self._built[-1]

    def losses(self, *settings: str) -> list[float]:
        """Of each epoch, training and, where there is one, validation."""
        return _losses(self.built(*settings).train())

    def resumed(self, *settings: str) -> tuple[list[float], list[float]]:
        """The losses of a training, and of one that goes on from the middle of its second epoch."""
        before = self.built(*settings, "checkpoint=6", "keep=9").train()
        after = self.built(*settings)
        shutil.copytree(before.run.file("checkpoints"), after.run.file("checkpoints"))
        after.loop.run(6)
        return _losses(before), _losses(after)


def _losses(training: Training) -> list[float]:
    told = [event["metrics"] for event in training.events("epoch")]
    return [metrics[name] for metrics in told for name in ("loss", "val_loss") if name in metrics]


def ways(trainings: Trainings) -> dict[str, Any]:
    """The losses of trainings that differ only in how batches come to the GPU."""
    mirrored = ("strategy.kind=mirrored", "batch_size=32", "validation_split=0")
    ahead, resumed = trainings.resumed(
        "augment=light", "cast=device", "prefetch_to_device=auto", "steps_per_execution=2"
    )
    return {
        "single": [trainings.losses("augment=light", "prefetch_to_device=off"), ahead],
        "resumed": [ahead[2:], resumed],
        "mirrored": [
            trainings.losses(*mirrored, "prefetch_to_device=off"),
            trainings.losses(*mirrored, "prefetch_to_device=3", "cast=device"),
        ],
    }


def copying(trainings: Trainings) -> dict[str, Any]:
    """Results and verdicts of trainings whose batches are copied in the step, as bytes, and ahead of it."""
    within = ("prefetch_to_device=off",)
    return {
        "within": judged(trainings, *within),
        "bytes": judged(trainings, *within, "cast=device"),
        "ahead": judged(trainings, "prefetch_to_device=auto"),
    }


def running_ahead(trainings: Trainings) -> dict[str, int]:
    """How many calls of a step return while the GPU ends nothing, without the clock of its input and with it."""
    import keras
    import tensorflow as tf

    from tests.doors.trainer import FitData, GraphClock, constant, devices, train_function

    class Products(keras.Model):  # type: ignore[misc]
        """A step of a product; Keras' own copies the batch size to the GPU, and waits."""

        def __init__(self) -> None:
            super().__init__()
            self.w = self.add_weight(shape=(64, 64))

        def train_step(self, data: Any) -> dict[str, Any]:
            return {"loss": tf.reduce_mean(tf.matmul(data[0], tf.convert_to_tensor(self.w.value)))}

    wanted = options("strategy.kind=one_device")
    distribution = devices.build_strategy(wanted, trainings.devices)
    assert distribution is not None
    with distribution.scope():
        model = Products()
        model.compile(optimizer="sgd", jit_compile=False)
    batches = tf.data.Dataset.from_tensors((tf.ones((8, 64)), tf.ones((8,)))).repeat()
    clocks = [GraphClock(deterministic=True), GraphClock(deterministic=False, first_only=True)]
    runs = train_function.training(model, clocks)
    found: dict[str, int] = {}
    for name, run, expected in (("plain", runs[0], 2), ("clocked", runs[1], 0)):
        before = _settled_bytes()
        iterator = iter(FitData(wanted, distribution, trainings.devices).training(batches))
        trainings.kept.append(iterator)
        float(run(iterator, constant(1))[0]["loss"])
        _settled_bytes(before + 2 * 8 * 65 * 4)  # two batches wait on the GPU
        found[name] = _returned_while_held(lambda: run(iterator, constant(1)), expected, trainings.folder / HOLD)  # noqa: B023
    return found


def _returned_while_held(call: Callable[[], Any], expected: int, hold: Path) -> int:
    """How many calls have returned when as many as are expected have, and more had the time to."""
    returned: list[Any] = []

    hold.touch()
    calling = threading.Thread(target=lambda: returned.extend(call() for _ in range(3)))
    calling.start()
    until = time.monotonic() + 60
    while len(returned) < expected and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.5)
    found = len(returned)
    hold.unlink()
    calling.join()
    return found


def memory(trainings: Trainings) -> dict[str, Any]:
    """How many batches iterators of training and validation data hold on a GPU, the one that was drawn among them; and
    the time of a copy that does not fit there.
    """
    import tensorflow as tf

    from tests.doors.trainer import FitData, devices, step_costs

    too_large, size = tf.TensorSpec([None, MEMORY_MB * 1024**2], tf.uint8), 16 * 1024
    found: dict[str, Any] = {"seconds": step_costs.transfer_seconds(too_large, 1, trainings.devices.names[:1])}
    batches = tf.data.Dataset.from_tensors(tf.zeros((1, size), tf.uint8)).repeat()
    for kind in ("single", "mirrored"):
        wanted = options(f"strategy.kind={kind}", "prefetch_to_device=auto")
        distribution = devices.build_strategy(wanted, trainings.devices) or tf.distribute.get_strategy()
        data = FitData(wanted, distribution, trainings.devices)
        for name, iterated, most in (("training", data.training, 3), ("validation", data.validation, 2)):
            before = _settled_bytes()
            iterator = iter(iterated(batches))
            trainings.kept.append((iterator, next(iterator)))
            found[f"{kind} {name}"] = round((_settled_bytes(before + most * size) - before) / size)
    return found


def _settled_bytes(expected: int = 0) -> int:
    """What TensorFlow holds on the first GPU, when that has not changed for a while; as much as is expected is waited
    for.
    """
    import tensorflow as tf

    told: list[int] = []
    until = time.monotonic() + 60
    while len(told) < 7 or len(set(told[-7:])) > 1 or (told[-1] < expected and time.monotonic() < until):
        told.append(int(tf.config.experimental.get_memory_info("GPU:0")["current"]))
        time.sleep(0.05)
    return told[-1]


def judged(trainings: Trainings, *settings: str) -> dict[str, Any]:
    from tests.doors.engine import diagnosis

    training = trainings.built(*settings, "epochs=1", "steps_per_epoch=30", "validation_split=0").announce().train()
    training.loop.built.report.finish("ok", 0)
    (started,) = training.events("started")
    return {
        **(training.run.result or {}),
        "kind": training.loop.data.spec[0].dtype.name,
        "device_batches": started["actual"]["device_batches"],
        "diagnosis": asdict(diagnosis.of_run(training.run)),
    }


def micro_batches(trainings: Trainings) -> dict[str, list[int]]:
    """The peaks of a GPU's memory over a training step whose batch is computed as a whole and in 4 parts, beyond what
    is there before and after it; with and without metrics, which have a state, and compiled or not.
    """
    import keras
    import tensorflow as tf

    from tests.doors.trainer import micro_batches

    found: dict[str, list[int]] = {}
    rows = tf.ones((1024, 16)), tf.ones((1024, 1))
    for name, metrics, compiled in (("loss alone, not compiled", [], False), ("metrics, compiled", ["mae"], True)):
        layers = [keras.layers.Activation("tanh") for _ in range(10)]
        model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1024), *layers, keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=metrics)
        taken = found[name] = []
        for parts in (1, 4):
            step = tf.function(micro_batches.split_training(model, parts, compiled=compiled), autograph=False)
            step(rows)  # also makes what stays
            before = _settled_bytes()
            tf.config.experimental.reset_memory_stats("GPU:0")
            float(step(rows)["loss"])
            taken.append(int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) - before)
    return found


def first_convolution(trainings: Trainings) -> dict[str, Any]:
    """The result of a training whose first convolution takes memory of its own, its events, and its diagnosis."""
    from tests.doors.engine import collector

    settings = ("model=cnn", "epochs=1", "steps_per_epoch=3", "validation_split=0")
    training = trainings.built(*settings).announce().train()
    training.loop.built.report.finish("ok", 0)
    result, told = training.run.result or {}, training.events("allocator")
    return {"result": result, "allocator": told, "memory_peak": collector.read(training.run).memory_peak}


PARTS = {
    "memory": memory,
    "ahead": running_ahead,
    "ways": ways,
    "copying": copying,
    "micro_batches": micro_batches,
    "first_convolution": first_convolution,
}

if __name__ == "__main__":
    these = Trainings(Path(sys.argv[1]))
    print(json.dumps({part: PARTS[part](these) for part in sys.argv[2:]}), flush=True)
    os._exit(0)
