"""Data by name: digits (ships with gputui), Keras' downloadable sets, and synthetic data made on the fly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...files.places import KERAS_FILES, keras_folder
from ...options import Options
from ...plan import SAMPLES, split_counts
from ..common.faults import DataError
from .source import Batch, Part, Source, check_arrays, from_arrays


def digits(options: Options, seed: int) -> Source:
    """1,797 8x8 images in 10 classes; see DIGITS.md for their origin."""
    with np.load(Path(__file__).with_name("digits.npz")) as file:
        x, y = file["x"], file["y"]
    return from_arrays(x, y, options.train.validation_split, seed, 1 / 16, 10, keeps_bytes=options.bytes_to_device)


def keras_dataset(options: Options, seed: int) -> Source:
    """mnist, fashion_mnist or cifar10, downloaded once by Keras; raises DataError without a network."""
    name = options.workload.data
    try:
        (x, y), test = getattr(keras.datasets, name).load_data()
    except Exception as fault:  # noqa: BLE001 - Keras raises a bare Exception when the download fails
        raise DataError(
            f"{name} is not on this machine and cannot be downloaded ({type(fault).__name__})",
            f"put {KERAS_FILES[name][0]} into {keras_folder()}, or use workload.data=digits",
        ) from None
    y = y.reshape(-1)
    classes = check_arrays(x, y, name)
    held_out = test if options.train.validation == "test" else None
    split, keeps_bytes = options.train.validation_split, options.bytes_to_device
    return from_arrays(x, y, split, seed, 1 / 255, classes, held_out, keeps_bytes)


def synthetic(options: Options, seed: int) -> Source:
    """Samples generated from their index when needed: a pattern for each class plus noise, so that a model can learn
    it.
    """
    workload = options.workload
    samples = workload.samples or SAMPLES["synthetic"]
    train, validation = split_counts(samples, options.train.validation_split)
    shape, classes = tuple(workload.shape), workload.classes

    return Source(
        Part(tf.data.Dataset.range(train), train),
        Part(tf.data.Dataset.range(train, samples), validation),
        shape,
        classes,
        load=lambda index: synthetic_sample(index, shape, classes, seed),
    )


def synthetic_sample(index: Any, shape: tuple[int, ...], classes: int, seed: int) -> Batch:
    """A pattern for each class plus noise, so that it can be learnt."""
    label = tf.cast(index % classes, tf.int32)
    # Two seeds of two numbers each: one stream for the patterns, one for the noise.
    pattern = tf.random.stateless_uniform(shape, (seed, tf.cast(label, tf.int64)))
    noise = tf.random.stateless_uniform(shape, (seed + 1, index))
    return (pattern + noise) / 2, label
