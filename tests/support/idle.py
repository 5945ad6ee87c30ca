"""A training that goes on for long and hardly uses the CPU, for tests that need one which can be interfered with.

It stands still at its twentieth step as long as there is a file `hold` beside its code.
"""

from __future__ import annotations

from pathlib import Path

CODE = """
import os, time, keras, numpy as np

HOLD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hold")

class Waits(keras.callbacks.Callback):
    steps = 0
    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        time.sleep(0.03)
        while self.steps >= 20 and os.path.exists(HOLD):
            time.sleep(0.03)

def build(context):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((1000, 4), "float32")
    return {"model": model, "train": (x, x[:, :1]), "callbacks": [Waits()]}
"""
PRESET = "extends: quickstart\ndescription: Long enough\nworkload: {{entry: '{code}:build'}}\ntrain: {{epochs: 5000}}\n"


def idle(folder: Path, run: str = "{}", name: str = "idle") -> str:
    """Write the code and a preset with these options of `run` into the folder; the preset's path."""
    code, preset = folder / "idle_code.py", folder / f"{name}.yaml"
    code.write_text(CODE)
    preset.write_text(PRESET.format(code=code) + f"run: {run}\n")
    return str(preset)
