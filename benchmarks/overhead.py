"""What gputui costs: a plain Keras script against `gputui --preset`, the same model, data and options.

Both run in processes of their own, in turn (A B, B A, ...), so that a machine whose speed drifts does not favour one.
The figure is the median time of an epoch with the first left out; the ratio plain / gputui of each pair is printed:
1 means that gputui costs nothing, below 1 that it is slower.

    python benchmarks/overhead.py [--pairs 5]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

EPOCHS = 4
BATCH_SIZE = 64
STEPS = {"mlp": 1920, "cnn": 320}

PLAIN = """
import json, sys, time
import keras, numpy as np, tensorflow as tf
from gputui.engine.options.validation import validated
from gputui.engine.trainer.setup import models

model_name, spe, steps, epochs, batch, digits = sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6]
keras.utils.set_random_seed(1)
with np.load(digits) as file:
    x, y = (file["x"][..., None] / 16).astype("float32"), file["y"].astype("int32")
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1024).repeat().batch(batch).prefetch(tf.data.AUTOTUNE)
model = models.build(validated({"workload": {"model": model_name}}), (8, 8, 1), 10)
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
              metrics=["accuracy"], jit_compile=False, steps_per_execution=spe)

class Clock(keras.callbacks.Callback):
    seconds = []
    def on_epoch_begin(self, epoch, logs=None):
        self.begin = time.perf_counter()
    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self.begin)

clock = Clock()
model.fit(data, epochs=epochs, steps_per_epoch=steps, verbose=0, callbacks=[clock], shuffle=False)
print(json.dumps(clock.seconds[1:]))
"""


def plain(model: str, together: int) -> float:
    """Return the median duration of an epoch of the Keras script, in seconds, without the first epoch.

    `model` is a key of STEPS, and `together` the number of steps in one call of the graph (steps_per_execution).
    """
    import gputui.engine

    digits = Path(gputui.engine.__file__).parent / "trainer/data/digits.npz"
    arguments = [model, together, STEPS[model], EPOCHS, BATCH_SIZE, digits]
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return float(statistics.median(json.loads(done.stdout.splitlines()[-1])))


def through_gputui(model: str, together: int) -> float:
    """Return the median duration of an epoch of the same training by `gputui --preset`, in seconds, without the first
    epoch.

    The parameters are those of `plain`.
    """
    settings = {
        "workload.model": model,
        "compile.steps_per_execution": together,
        "input.batch_size": BATCH_SIZE,
        "input.shuffle": 1024,
        "input.cache": "off",
        "input.drop_remainder": "true",  # every batch is full, as the script's are
        "train.epochs": EPOCHS,
        "train.steps_per_epoch": STEPS[model],
        "train.schedule": "constant",
        "train.learning_rate": 0.001,
        "train.validation_split": 0,
    }
    command = [str(Path(sys.executable).parent / "gputui"), "--preset", "quickstart", "--json"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"GPUTUI_HOME": home}
        )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return float(
        statistics.median(event["seconds"] for event in told if event["type"] == "epoch" and event["epoch"] > 1)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print("| model | steps per execution | plain ms/step | gputui ms/step | ratio of each pair | median ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model in STEPS:
        for together in (1, 16):
            times: dict[str, list[float]] = {"plain": [], "gputui": []}
            for pair in range(arguments.pairs):
                order = [("plain", plain), ("gputui", through_gputui)]
                for name, measure in order if pair % 2 == 0 else reversed(order):
                    times[name].append(measure(model, together))
            ratios = [a / b for a, b in zip(times["plain"], times["gputui"], strict=True)]
            ms = {name: 1000 * statistics.median(values) / STEPS[model] for name, values in times.items()}
            print(
                f"| {model} | {together} | {ms['plain']:.3f} | {ms['gputui']:.3f} | "
                f"{' '.join(f'{r:.3f}' for r in ratios)} | {statistics.median(ratios):.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
