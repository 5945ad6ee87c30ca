"""A folder of images, decoded in a map function, augmented by its own function, with a compiled model.

gputui --preset images.yaml
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SIZE = 32


def make_folder(folder, samples=120):
    """Small images in place of photographs: a square on the left or on the right, one folder for each class."""
    rng = np.random.default_rng(0)
    for number in range(samples):
        side = ("left", "right")[number % 2]
        image = rng.integers(0, 90, (SIZE, SIZE, 3), dtype=np.uint8)
        top, start = rng.integers(0, SIZE - 12), 2 if side == "left" else SIZE - 14
        image[top : top + 12, start : start + 12] += 120
        path = folder / side / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(image).numpy())


def load(path, label):
    """One sample from its file: input.parallel_calls run at once, and each only once if input.cache is on."""
    image = tf.io.decode_png(tf.io.read_file(path), channels=3)
    return tf.ensure_shape(tf.cast(image, tf.float32) / 255.0, (SIZE, SIZE, 3)), label


def flip_up_down(image, label):
    """Runs again in each pass, for training samples only."""
    return tf.image.random_flip_up_down(image), label


def build(context):
    folder = Path(context.args["folder"])
    if not folder.is_dir():
        make_folder(folder)
    paths = sorted(str(path) for path in folder.glob("*/*.png"))
    labels = [float("right" in path) for path in paths]
    samples = tf.data.Dataset.from_tensor_slices((paths, labels))
    samples = samples.shuffle(len(paths), seed=1, reshuffle_each_iteration=False)  # the same order for both parts
    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(8, 5, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(1, activation="sigmoid", dtype="float32"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.005), "binary_crossentropy", metrics=["accuracy"])
    return {
        "model": model,
        "train": samples.skip(24),
        "validation": samples.take(24),
        "map": load,
        "augment": flip_up_down,
    }
