"""The workers of a training on several machines as trainers on this one, connected over its loopback."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import socket
import textwrap
from contextlib import ExitStack
from pathlib import Path

from tests.doors.engine import Run, presets
from tests.support.forking import Program, trainer_of
from tests.support.front_door import happened

# A model without layers that draw random numbers; the callback ends or freezes the worker that the file names.
PROGRAM = """
import json, os, signal
import keras, numpy as np

class Fate(keras.callbacks.Callback):
    def __init__(self, path):
        super().__init__()
        self.path, self.count, self.of_this_launch = path, 0, 0

    def get_state(self):
        return {"count": self.count}

    def set_state(self, state):
        self.count = state["count"]

    def on_train_end(self, logs=None):  # what it and EarlyStopping have kept
        index = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
        with open(f"{self.path}-end-{index}", "w") as file:
            json.dump([self.count, [weight.tolist() for weight in self.model.get_weights()]], file)

    def on_train_batch_end(self, batch, logs=None):
        self.count, self.of_this_launch = self.count + 1, self.of_this_launch + 1
        if not os.path.exists(self.path):
            return
        worker, step, number = json.loads(open(self.path).read())
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == worker and self.of_this_launch == step:
            os.kill(os.getpid(), number) if number else os.close(int(os.environ["GPUTUI_LIFELINE_OF_ENGINE"]))

FATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fate")

def build_own_state(context):
    found, size = build(context, own_state=True), context.global_batch_size
    x, y = found["train"]
    def batches():
        for at in range(0, 170, size):
            yield x[at : at + size], y[at : at + size]
    return found | {"train": batches}

def build_small(context):
    found = build(context)
    return {key: found[key] for key in ("model", "train", "loss", "callbacks")}

def build(context, own_state=False):
    drawn = np.random.default_rng(5)
    x = drawn.normal(size=(200, 8)).astype("float32")
    y = (x @ drawn.normal(size=(8, 3))).argmax(1)
    layers, callbacks = [keras.Input((8,)), keras.layers.Dense(16, "relu")], [Fate(FATE)]
    if own_state:  # statistics and draws that each worker has of its own
        layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
        # The best epoch is the first, before the checkpoint.
        callbacks.append(keras.callbacks.EarlyStopping("loss", mode="max", patience=9, restore_best_weights=True))
    model = keras.Sequential([*layers, keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return {
        "model": model, "train": (x[:170], y[:170]), "validation": (x[170:], y[170:]), "loss": loss,
        "metrics": ["accuracy"], "callbacks": callbacks,
    }
"""


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, below those that the kernel gives to connections of other tests."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = random.SystemRandom().randrange(16_000, 32_000)  # others draw from the same seed
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("", port)))
                found.append(port)
    return found


def program(folder: Path, function: str = "build") -> list[str]:
    """Settings for a training of PROGRAM; `folder`/fate holds worker, step and signal (0: its engine has gone)."""
    (folder / "train.py").write_text(textwrap.dedent(PROGRAM))
    return [f"workload.entry={folder}/train.py:{function}"]


def workers_of(count: int, *settings: str) -> tuple[list[Run], list[Program]]:
    """New runs of the workers of a cluster, and their trainers."""
    preset = presets.defaults(["strategy.kind=multi_worker", *settings])
    made = [trainer_of(preset) for _ in range(count)]
    return [run for run, _ in made], connected([program for _, program in made])


def connected(programs: list[Program]) -> list[Program]:
    """The same trainers, connected at other ports."""
    workers = [f"127.0.0.1:{port}" for port in free_ports(len(programs))]
    tasks = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": at}} for at in range(len(workers))]
    told = [{"TF_CONFIG": json.dumps(task)} for task in tasks]
    return [dataclasses.replace(of, environment=of.environment | more) for of, more in zip(programs, told, strict=True)]


def epochs(run: Run) -> dict[int, dict[str, float]]:
    """The figures of each epoch; of one that was trained twice the later ones."""
    return {event["epoch"]: event["metrics"] for event in happened(run, "epoch")}
