"""The preset and the program that `gputui init` writes, as a start for a user's own code."""

from __future__ import annotations

from pathlib import Path

from ..files.places import SHIPPED_EXAMPLES
from ..options import SCHEMA_VERSION

PRESET = """\
# What is trained, and how. Change a value here, or for one run with: gputui --preset preset.yaml --set batch_size=128
# Options that are not named here have their defaults. gputui options lists all options, gputui options batch_size
# explains one of them, and gputui guide says what train.py can do. For an editor that checks and completes this file:
# gputui presets schema > schema.json, and a first line # yaml-language-server: $schema=schema.json
schema_version: {version}
description: My training

workload:
  entry: "train.py:build"     # the function that gives gputui the model and the data
  args: {{units: 64}}           # the function finds these in context.args

input:
  batch_size: 32              # samples in one step, on each GPU
  cache: memory               # keep the loaded samples in memory; off if they do not fit
  shuffle: 2000               # size of the shuffle buffer; off: keep the order

train:
  epochs: 5
  optimizer: adam
  learning_rate: 0.003
  seed: 1                     # the same random numbers in each run; null: others

# Settings that often speed up training on a GPU; gputui diagnose latest says what limits a run's speed.
# precision: {{policy: mixed_bfloat16}}
# compile: {{xla: true, steps_per_execution: 10}}
# strategy: {{kind: mirrored}}  # all GPUs

run:
  checkpoint: epoch           # gputui resume continues from the last one
"""

PROGRAM_FILE = "train.py"
PROGRAM = '''\
"""A Keras training: `gputui --preset preset.yaml` runs build, `python train.py` runs main."""

import keras
import numpy as np
from keras import layers


def make_data(samples=2000):
    """Points in two rings, one ring for each class: put your own arrays here."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, samples)
    angle, radius = rng.uniform(0, 2 * np.pi, samples), 1.0 + y + rng.normal(0, 0.2, samples)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return x.astype("float32"), y.astype("float32")


def make_model(units):
    return keras.Sequential(
        [
            keras.Input((2,)),
            layers.Dense(units, activation="relu"),
            layers.Dense(units, activation="relu"),
            layers.Dense(1, activation="sigmoid"),
        ]
    )


def build(context):
    """Called by gputui. The model is not compiled: the preset's options choose how it learns."""
    x, y = make_data()
    return {
        "model": make_model(context.args.get("units", 64)),
        "train": (x[400:], y[400:]),
        "validation": (x[:400], y[:400]),
        "loss": "binary_crossentropy",
        "metrics": ["accuracy"],
    }


def main():
    x, y = make_data()
    model = make_model(64)
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(x[400:], y[400:], batch_size=32, epochs=5, validation_data=(x[:400], y[:400]))


if __name__ == "__main__":
    main()
'''


def write(folder: Path, example: str | None = None) -> list[Path]:
    """A preset and a program, or the shipped `example` with further presets. A train.py that exists is left as it is.
    FileExistsError if another file exists: then nothing is written. Raises other OSErrors.
    """
    contents = {"preset.yaml": PRESET.format(version=SCHEMA_VERSION), PROGRAM_FILE: PROGRAM}
    if example is not None:
        later = sorted(path.name for path in SHIPPED_EXAMPLES.glob(f"{example}-*.yaml"))
        names = (f"{example}.yaml", f"{example.replace('-', '_')}.py", *later)
        contents = {name: (SHIPPED_EXAMPLES / name).read_text(encoding="utf-8") for name in names}
    elif (folder / PROGRAM_FILE).is_file():
        del contents[PROGRAM_FILE]
    texts = {folder / name: text for name, text in contents.items()}
    for path in texts:
        if path.exists() or path.is_symlink():
            raise FileExistsError(path)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    return list(texts)
