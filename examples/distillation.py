"""Distillation: a small student learns from the labels and from the predictions of a larger teacher.

gputui --preset distillation.yaml              # writes teacher.keras
gputui --preset distillation-student.yaml      # writes student.keras; needs Keras 3.12 or later
"""

from pathlib import Path

import keras
import numpy as np
from keras import layers

TEACHER = Path("teacher.keras")  # in the folder of the presets, where gputui runs this code
LENGTH, CLASSES = 64, 4


def make_waves(samples, seed):
    """Noisy waves, the class is their frequency."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, samples)
    phase = rng.uniform(0, 2 * np.pi, (samples, 1))
    x = np.sin(2 * np.pi * (y[:, None] + 1) * np.linspace(0, 1, LENGTH) + phase)
    return (x + rng.normal(0, 0.8, x.shape)).astype("float32")[..., None], y.astype("int32")


def network(units):
    return keras.Sequential(
        [
            keras.Input((LENGTH, 1)),
            layers.Conv1D(units, 9, activation="relu"),
            layers.MaxPooling1D(4),
            layers.Conv1D(2 * units, 5, activation="relu"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(CLASSES, dtype="float32"),  # logits
        ]
    )


def parts(context, model, callback):
    return {
        "model": model,
        "train": make_waves(context.args["samples"], seed=0),
        "validation": make_waves(400, seed=1),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
        "callbacks": [callback],
    }


def teacher(context):
    return parts(context, network(32), keras.callbacks.ModelCheckpoint(TEACHER))


class SaveStudent(keras.callbacks.Callback):
    """Saves the student alone after each epoch; the model that is trained has the teacher in it as well."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.student.save("student.keras")


def student(context):
    if not TEACHER.exists():
        raise FileNotFoundError(f"{TEACHER}: gputui --preset distillation.yaml writes it")
    model = keras.distillation.Distiller(
        teacher=keras.models.load_model(TEACHER),
        student=network(4),
        distillation_losses=keras.distillation.LogitsDistillation(
            temperature=context.args["temperature"],
            loss=keras.losses.KLDivergence(),  # the default, a text, is computed from logits in place of probabilities
        ),
        student_loss_weight=context.args["label_weight"],  # 1: learns from the labels alone, 0: from the teacher alone
    )
    return parts(context, model, SaveStudent())
