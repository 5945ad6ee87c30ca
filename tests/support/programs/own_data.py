"""Data of users' own under a small model. Each function is a program, as workload.entry names it."""

import keras
import numpy as np
import tensorflow as tf


def linear():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def samples(rows=65):
    x = np.random.default_rng(1).normal(size=(rows, 4)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1)))


class Ramp(keras.callbacks.Callback):
    """Changes what the data reads."""

    def __init__(self, at_begin, at_end=lambda logs: None):
        super().__init__()
        self.at_begin, self.at_end = at_begin, at_end

    def on_epoch_begin(self, epoch, logs=None):
        self.at_begin(1.0 + epoch)

    def on_epoch_end(self, epoch, logs=None):
        self.at_end(logs)


# ---- shuffled -----------------------------------------------------------------------------------


def shuffled(context):
    """Nothing of it can follow the training: it is read ahead of the epochs."""
    return linear(), samples().shuffle(40, seed=3).map(lambda x, y: (x * 2, y)).batch(10)


def shuffled_and_drawn(context):
    """Each iterator of Keras' fit has another order, and the same draws."""
    data = samples().shuffle(40, seed=3)
    return linear(), data.map(lambda x, y: (x + tf.random.normal((4,), seed=5), y)).batch(10)


def shuffled_of_unknown_length(context):
    """Keras' fit begins one iterator for each epoch, which ends by a step without a batch, which counts."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.1, seed=2), keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    return model, samples().filter(lambda x, y: x[0] < 1).shuffle(40, seed=3).batch(10)


def shuffled_without_end(context):
    """Keras' fit has one iterator for all epochs."""
    return linear(), samples().shuffle(40, seed=3).batch(10).repeat()


def shuffled_validation(context):
    """Other samples in each evaluation, which follows the first and the third epoch."""
    held_out = samples().shuffle(65, seed=6).take(12).batch(5)
    return {"model": linear(), "train": samples().batch(10), "validation": held_out, "validation_freq": [1, 3]}


def shuffled_validation_over_replicas(context):
    held_out = samples().shuffle(65, seed=6).take(12).batch(4)
    return linear(), samples(60).batch(10), held_out


def shuffled_validation_steps(context):
    """Each evaluation takes the first batches."""
    held_out = samples().shuffle(65, seed=6).take(12).batch(4)
    return {"model": linear(), "train": samples().batch(10), "validation": held_out, "validation_steps": 2}


# ---- that follows the training ------------------------------------------------------------------


def ends_within_an_epoch(context):
    """An epoch has 4 steps: Keras' fit would end the training with the data."""
    return linear(), samples(100).batch(10)


def filter_by_variable(context):
    """Its length changes."""
    limit = tf.Variable(0.5, trainable=False)
    data = samples().filter(lambda x, y: tf.abs(y) < limit)
    return {"model": linear(), "train": data.batch(10), "callbacks": [Ramp(limit.assign)]}


def variable_in_map(context):
    """Changed at the begin and at the end of each epoch; the validation has the variables, too."""
    level, shift = tf.Variable(1.0, trainable=False), tf.Variable(0.0, trainable=False)
    data = samples().map(lambda x, y: (x * level + shift, y))
    ramp = Ramp(level.assign, lambda logs: shift.assign(logs["loss"]))
    held_out = data.take(15).batch(5)
    return {"model": linear(), "train": data.batch(10), "validation": held_out, "callbacks": [ramp]}


def variable_in_samples(context):
    """No cache may keep what the map makes of single samples."""
    level = tf.Variable(1.0, trainable=False)
    scaled = {"map": lambda x, y: (x * level, y), "callbacks": [Ramp(level.assign)]}
    return {"model": linear(), "train": samples(), "validation": samples(15), **scaled}


def table_filled_later(context):
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 1.0)
    fill = Ramp(lambda level: table.insert(tf.constant([0, 1], tf.int64), tf.stack([1 + level, 0.5])))
    data = samples().enumerate()
    data = data.map(lambda number, sample: (sample[0] * tf.ensure_shape(table.lookup(number % 3), ()), sample[1]))
    return {"model": linear(), "train": data.batch(10), "callbacks": [fill]}


def flipped_in_map(context):
    """A layer flips, which changes the state of its random generator."""
    flip = keras.layers.RandomFlip(seed=3)
    x = np.random.default_rng(0).normal(size=(84, 6, 6, 3)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum((1, 2, 3)))).batch(12)
    model = keras.Sequential([keras.Input((6, 6, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.001), "mse")
    return model, data.map(lambda x, y: (flip(x, training=True), y))


class Level(keras.callbacks.Callback):
    level = 1.0

    def on_epoch_begin(self, epoch, logs=None):
        Level.level = 1.0 + epoch

    def on_train_batch_begin(self, batch, logs=None):
        Level.level += 0.1

    def get_state(self):
        return {"level": Level.level}

    def set_state(self, state):
        Level.level = state["level"]


def python_in_generator(context):
    """TensorFlow does not know its length."""

    def rows():
        rng = np.random.default_rng(3)
        for size in (10, 10, 10, 10, 5):
            x = rng.normal(size=(size, 4)).astype("float32")
            yield x * Level.level, x.sum(1)

    kinds = tf.TensorSpec((None, 4)), tf.TensorSpec((None,))
    data = tf.data.Dataset.from_generator(rows, output_signature=kinds)
    data = data.apply(tf.data.experimental.assert_cardinality(5))
    return {"model": linear(), "train": data, "callbacks": [Level()]}


class Mined(keras.utils.PyDataset):
    """Orders its samples by the model's losses at the end of each epoch, in an array and a generator."""

    def __init__(self, model, x, y):
        super().__init__()
        self.model, self.x, self.y = model, x, y
        self.order, self.rng = np.arange(len(x)), np.random.default_rng(2)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        at = self.order[index * 16 : (index + 1) * 16]
        return self.x[at], self.y[at]

    def on_epoch_end(self):
        loss = (self.model.predict(self.x, verbose=0) - self.y) ** 2
        self.order[:] = np.argsort(-loss[:, 0])
        self.rng.shuffle(self.order[:70])


def mined_samples(context):
    """Sequences of one length, for a model of any length."""
    inputs, each = keras.Input((None, 4)), keras.layers.TimeDistributed(keras.layers.Dense(3, "relu"))
    pooled = keras.layers.GlobalAveragePooling1D()(each(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled))
    model.compile(keras.optimizers.SGD(0.01), "mse")
    x = np.random.default_rng(1).normal(size=(128, 5, 4)).astype("float32")
    held_out = Mined(model, x[:80], x[:80].sum((1, 2))[:, None])
    return {"model": model, "train": Mined(model, x, x.sum((1, 2))[:, None]), "validation": held_out}
