"""Data of keras.utils.*_from_directory and timeseries_dataset_from_array: as in Keras' fit, and what is not exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.support.cases import all_hold
from tests.support.own import Write
from tests.trainer.test_own_iterables import warned

PROGRAM = """
import keras, numpy as np, tensorflow as tf

def of(*layers):
    made = keras.Sequential(layers)
    made.compile("adam", "mse")
    return made

def images(**more):
    data = keras.utils.image_dataset_from_directory("images", image_size=(8, 8), seed=1, verbose=False, **more)
    assert data.class_names == ["a", "b"]
    return data

def sounds():
    data = keras.utils.audio_dataset_from_directory(
        "sounds", batch_size=5, output_sequence_length=16, seed=1, verbose=False
    )
    return data.map(lambda x, y: (x[..., 0], y))

def texts():
    data = keras.utils.text_dataset_from_directory("texts", label_mode="binary", batch_size=5, seed=1, verbose=False)
    return data.map(lambda x, y: (tf.cast(tf.strings.length(x), tf.float32)[:, None], y))

def series():
    numbers = np.arange(60, dtype="float32")
    return keras.utils.timeseries_dataset_from_array(numbers, numbers[4:] / 60, 4, batch_size=8, shuffle=True, seed=1)

def build(context):
    return RETURNED
"""
IMAGES = "of(keras.Input((8, 8, 3)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(1))"
DATA = {
    "images(batch_size=5)": IMAGES,
    "sounds()": "of(keras.Input((16,)), keras.layers.Dense(1))",
    "texts()": "of(keras.Input((1,)), keras.layers.Dense(1))",
    "series()": "of(keras.Input((4,)), keras.layers.Dense(1))",
}


def write_files(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        for number in range(6):
            tf.io.write_file(f"{folder}/texts/{name}/{number}.txt", "word " * number)
            image = rng.integers(0, 255, (8, 8, 3)).astype("uint8")
            tf.io.write_file(f"{folder}/images/{name}/{number}.png", tf.io.encode_png(image))
            sound = rng.normal(size=(16, 1)).clip(-1, 1).astype("float32")
            tf.io.write_file(f"{folder}/sounds/{name}/{number}.wav", tf.audio.encode_wav(sound, 8000))


def losses_of_keras(model: str, made: str) -> list[float]:
    names: dict[str, Any] = {}
    keras.utils.set_random_seed(7)
    exec(PROGRAM.replace("RETURNED", "None") + f"\nmodel, data = {model}, {made}", names)
    history = names["model"].fit(names["data"], epochs=3, shuffle=False, verbose=0)
    return list(history.history["loss"])


def test_what_keras_reads_from_folders_trains_as_in_keras(own: Write, tmp_path: Path) -> None:
    write_files(tmp_path)
    with all_hold() as cases:
        for data, model in DATA.items():
            with cases.case(data):
                text = PROGRAM.replace("RETURNED", f"{model}, {data}")
                training = own(text, "epochs=3", "checkpoint=epoch")
                assert warned(training, "data_state") == []
                assert training.train().losses() == losses_of_keras(model, data)
        with cases.case("single samples"):
            samples = "images(batch_size=None, shuffle=False)"
            text = PROGRAM.replace("RETURNED", f"{{'model': {IMAGES}, 'train': {samples}, 'map': None}}")
            training = own(text, "epochs=1", "checkpoint=epoch", "batch_size=5")
            assert warned(training, "data_state") == []
            assert training.loop.built.pipeline.train_samples == 12
