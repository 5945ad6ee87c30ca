"""Trainings whose story is recorded: no weight ever changes, so that each loss is the same on every CPU.

Of row i (from 1) x is i, and y is i % 2. `workload.args` say what is returned, and what a callback does and when.
"""

import builtins
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import ops

LOGS = []
COSTS = (5.0, 3.0, 3.5, 2.0, 2.5, 2.0, 9.0, 1.0)


def squares(y, predicted):
    """The gradient is 0."""
    flat = ops.reshape(predicted, (-1,))
    return ops.square(ops.stop_gradient(flat) - ops.reshape(y, (-1,))) + 0.0 * flat


class Pages(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return -(-len(self.x) // 4)

    def __getitem__(self, index):
        return self.x[4 * index : 4 * index + 4], self.y[4 * index : 4 * index + 4]


class Cost(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["cost"] = COSTS[epoch]


class Does(keras.callbacks.Callback):
    """Does `what` after the step `at`, or at the end of an epoch or an evaluation (from 1)."""

    def __init__(self, what, step=0, epoch=0, test=0):
        super().__init__()
        self.what, self.step, self.epoch, self.test, self.tested = what, step, epoch, test, 0

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.step:
            self.act()

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == self.epoch:
            self.act()

    def on_test_batch_end(self, batch, logs=None):
        self.tested += 1
        if self.tested == self.test:
            self.act()

    def act(self):
        if self.what == "end":
            self.model.stop_training = True
        elif self.what == "raise":
            raise KeyError("nothing of this name")
        elif self.what == "exit":
            sys.exit(3)
        elif self.what == "nan":
            self.model.layers[0].kernel.assign([[np.nan]])
        else:
            builtins.stop.request(self.what)


def roles(kind, x, y, context):
    samples = tf.data.Dataset.from_tensor_slices((x, y))

    def batches():
        for at in range(0, len(x), 4):
            yield x[at : at + 4], y[at : at + 4]

    def forever():
        while True:
            yield from batches()

    def stopping():
        yield x[:4], y[:4]
        builtins.stop.request("stopped")
        yield x[4:], y[4:]

    if kind == "counted":  # x is larger by the number of the batch, over all epochs
        number = tf.Variable(0.0)
        return samples.batch(context.global_batch_size).map(lambda x, y: (x + number.assign_add(1.0), y))
    kinds = {
        "arrays": (x, y), "samples": samples, "batches": batches, "forever": forever, "stopping": stopping,
        "pages": Pages(x, y), "dataset": samples.batch(context.global_batch_size),
        "shuffled": samples.shuffle(9, seed=3).batch(context.global_batch_size),
    }  # fmt: skip
    return kinds[kind]


def story(context):
    args = dict(context.args)
    count, held_out, tested = args.pop("rows", 10), args.pop("validation", ""), args.pop("test", "")
    x = np.arange(1.0, count + 1, dtype="float32")[:, None]
    y = (np.arange(1, count + 1) % 2).astype("float32")
    layers = [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(args.pop("layers", 1))]
    model = keras.Sequential([keras.Input((1,)), *layers])
    compiled, losses = args.pop("compiled", False), {"loss": squares, "metrics": ["mae"]}
    if compiled:
        model.compile("sgd", **losses)
    cost, does = args.pop("cost", False), args.pop("does", [])
    callbacks = [*([Cost()] if cost else []), *(Does(**each) for each in does)]
    if args.pop("csv", False):
        LOGS.append(keras.callbacks.CSVLogger("log.csv"))
        callbacks += LOGS
    parts = {"model": model, "train": roles(args.pop("data", "arrays"), x, y, context), "callbacks": callbacks}
    if "sample_weight" in args:
        args["sample_weight"] = np.array(args["sample_weight"], "float32")
    if held_out:
        parts["validation"] = roles(held_out, x[:6], y[:6], context)
    if tested:
        parts["test"] = roles(tested, x[:5], y[:5], context)
    if args.pop("mapped", False):
        parts["map"] = lambda x, y: (2 * x, y)
    return parts | ({} if compiled else losses) | args
