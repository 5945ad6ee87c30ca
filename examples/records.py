"""TFRecord files through a pipeline of one's own: the code batches, so that it follows the context.

gputui --preset records.yaml
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

FEATURES = {
    "values": tf.io.FixedLenFeature([10], tf.float32),
    "price": tf.io.FixedLenFeature([], tf.float32),
}


def make_records(folder, files=4, samples=100):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(files):
        with tf.io.TFRecordWriter(str(folder / f"part-{number}.tfrecord")) as writer:
            for values in rng.normal(size=(samples, 10)):
                example = tf.train.Example()
                example.features.feature["values"].float_list.value.extend(values)
                example.features.feature["price"].float_list.value.append(values[:3].sum())
                writer.write(example.SerializeToString())


def parse(records):
    found = tf.io.parse_example(records, FEATURES)
    return found["values"], found["price"]


def build(context):
    folder = Path(context.args["folder"])
    if not folder.is_dir():
        make_records(folder)
    files = tf.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=4)
    train = (
        records.shuffle(400, seed=context.seed)
        .batch(context.global_batch_size, drop_remainder=True)
        .map(parse, num_parallel_calls=context.map_parallel_calls)
    )
    model = keras.Sequential(
        [keras.Input((10,)), layers.Dense(32, activation="relu"), layers.Dense(1, dtype="float32")]
    )
    return {
        "model": model,
        "train": train,  # batched here: input.prefetch and the like still apply
        "samples": 400,  # interleave does not know how many records there are
        "loss": "mse",
        "callbacks": [keras.callbacks.EarlyStopping("loss", patience=3)],
    }
