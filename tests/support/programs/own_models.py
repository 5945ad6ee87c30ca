"""Models of users' own, compiled and changed in ways of their own. Each function is a program, for workload.entry."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


def data(rows=105):
    x = np.random.default_rng(1).normal(size=(rows, 4)).astype("float32")
    return x, x.sum(axis=1)


def small(**compiled):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(8, "relu"), layers.Dense(1)])
    model.compile("adam", "mse", **compiled)
    return model


COUNT = {"epochs": 0}

# ---- that are refused ---------------------------------------------------------------------------


def limited_epochs(context):
    keras.config.set_max_epochs(1)
    return small(), data()


def own_strategy(context):
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        return small(), data()


class OwnTrainFunction(keras.Sequential):
    def make_train_function(self, force=False):
        @tf.function
        def steps(iterator):
            x, y = next(iterator)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True)[:, 0] - y))
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}

        self.train_function = steps


def own_train_function(context):
    model = OwnTrainFunction([layers.Dense(1)])
    model.compile("adam", "mse")
    return model, data()


class Unfreeze(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.layers[0].trainable = True
            self.model.make_train_function(force=True)


def train_function_made_again(context):
    return {"model": small(), "train": data(), "callbacks": [Unfreeze()]}


def python_in_an_eager_step(context):
    """Its steps run eagerly, as for a loss whose weight is a Python number that each step changes."""
    return small(run_eagerly=True), data()


# ---- that train ---------------------------------------------------------------------------------


def functions_run_eagerly(context):
    """As for debugging."""
    tf.config.run_functions_eagerly(True)
    return small(), data(35), data(20)


def floatx_float64(context):
    """Weights, data and figures have 64 bits."""
    keras.config.set_floatx("float64")
    assert context.precision in ("float32", "float64")
    model = small()
    assert model.weights[0].dtype == "float64"
    x = np.random.default_rng(1).normal(size=(65, 4))
    return model, (x, np.sin(x.sum(1, keepdims=True)))


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.classes = layers.Dense(8, "relu"), layers.Dense(3, "softmax")

    def call(self, x):
        return self.classes(self.hidden(x))


def output_of_16_bits(context):
    """The last layer of a model in mixed precision."""
    model, (x, _) = Classifier(), data()
    model.compile("adam", "sparse_categorical_crossentropy")
    return model, (x, x[:, :3].argmax(axis=1))


def weights_of_some_classes(context):
    """For only one of three."""
    model, (x, _) = Classifier(), data()
    y = x[:, :3].argmax(axis=1)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return {"model": model, "train": (x, y), "validation": (x[:50], y[:50]), "class_weight": {0: 2.0}}


class Best(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.best.assign(float("inf"))


class Masked(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = layers.Dense(8), layers.Dense(1)
        self.mask = self.add_weight(shape=(8,), trainable=False, name="mask")
        self.best = self.add_weight(shape=(), initializer=keras.initializers.Constant(np.inf), trainable=False)
        self.mask.assign(np.where(np.arange(8) < 5, 0.0, -np.inf))

    def call(self, x):
        return self.out(ops.softmax(self.hidden(x) + self.mask))

    def train_step(self, data):
        logs = super().train_step(data)
        self.best.assign(ops.minimum(self.best, logs["loss"]))
        return {**logs, "best": self.best.value}


def infinite_by_design(context):
    """Weights that hold infinity: the best loss of the epoch so far, and a mask."""
    model = Masked()
    model.compile(keras.optimizers.Adam(0.02), "mse")
    return {"model": model, "train": data(), "validation": data(40), "callbacks": [Best()]}


class Critic(keras.callbacks.Callback):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y, self.critic = x, y, small(metrics=["mae"])

    def on_epoch_end(self, epoch, logs=None):
        error = (self.model.predict_on_batch(self.x)[:, 0] - self.y) ** 2
        loss, _ = [self.critic.train_on_batch(self.x, error) for _ in range(5)][-1]
        self.model.gate.assign(1 / (1 + float(loss)))


class Gated(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = layers.Dense(8, "relu"), layers.Dense(1)
        self.gate = self.add_weight(shape=(), initializer="ones", trainable=False, name="gate")

    def call(self, x):
        return self.out(self.hidden(x) * self.gate)


def second_model(context):
    """A callback trains another compiled model, whose slots are created at its first batch."""
    model = Gated()
    model.compile(keras.optimizers.Adam(0.02), "mse")
    return {"model": model, "train": data(), "validation": data(40), "callbacks": [Critic(*data(20))]}


class Swap(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch >= 1:
            self.model.get_layer("base").trainable = True
            self.model.get_layer("head").trainable = False


def unfrozen_later(context):
    """A schedule unfreezes the base, and freezes the head: Keras trains on as it has traced its step."""
    base = keras.Sequential([keras.Input((4,)), layers.Dense(8, "relu"), layers.BatchNormalization()], name="base")
    base.trainable = False
    head = [layers.Dense(6, "relu", name="head"), layers.Dropout(0.2), layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), base, *head])
    model.compile(keras.optimizers.Adam(0.02), "mse")
    return {"model": model, "train": data(), "validation": data(40), "callbacks": [Swap()]}


class Scaled(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.dropped, self.out = layers.Dense(8, "tanh"), layers.Dropout(0.1), layers.Dense(1)
        self.weight, self.rates = 0.1, []

    def call(self, x, training=False):
        return self.out(self.dropped(self.hidden(x), training=training))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return super().compute_loss(x, y, y_pred, sample_weight, training) + self.weight * ops.mean(ops.square(y_pred))


class Changing(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.weight = 1.0 + epoch
        self.model.dropped.rate = 0.1 * (1 + epoch)
        self.model.optimizer.clipnorm = 0.5 - 0.1 * epoch

    def on_train_batch_end(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.02 / (1 + batch)

    def on_epoch_end(self, epoch, logs=None):
        x, y = data(20)
        self.model.rates.append(self.model.weight)
        logs["extra"] = self.model.train_on_batch(x, y)
        logs["rates"] = sum(self.model.rates)


def changed_by_callback(context):
    """Python attributes that the traced steps have read, a rate by the number of the batch, and one more step on other
    data after each epoch.
    """
    model = Scaled()
    model.compile(keras.optimizers.Adam(0.02), "mse")
    return {"model": model, "train": data(), "validation": data(40), "callbacks": [Changing()]}


class Falling(keras.callbacks.Callback):
    def __init__(self, factor):
        super().__init__()
        self.factor, self.fall, self.losses, self.lowest = 1.0, factor, [], None

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(logs["loss"])
        self.lowest = np.array([min(self.losses)])
        self.factor *= self.fall
        self.model.optimizer.learning_rate *= self.factor + 0.1 * len(self.losses) * min(self.lowest[0], 1)


def kept_by_callbacks(context):
    """In attributes, of two callbacks of one class, and in variables of functions around them and of the module."""
    seen, rate = [], 0.01

    def ended(epoch, logs):
        nonlocal rate
        seen.append(logs["loss"])
        COUNT["epochs"] += 1
        rate += 0.01 * min(seen) * COUNT["epochs"]
        model.optimizer.learning_rate = rate

    model = small()
    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=ended), Falling(0.7), Falling(0.9)]
    return {"model": model, "train": data(), "callbacks": callbacks}


def average(context):
    """An optimizer keeps an exponential moving average of the weights, and ends with it as the weights."""
    model = small()
    model.compile(keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.9), "mse")
    return model, data(120), data(120)


def multi_input(context):
    """Two inputs and two outputs, a loss for each, and weights for the samples."""
    rng = np.random.default_rng(1)
    x = {"numbers": rng.normal(size=(400, 6)), "words": rng.integers(0, 50, size=(400, 8))}
    urgent = (x["numbers"][:, 0] > 0).astype("float32")
    y = {"urgent": urgent, "group": (x["words"][:, 0] % 3).astype("int32")}
    weights = np.where(urgent > 0, 2.0, 1.0).astype("float32")
    numbers, words = keras.Input((6,), name="numbers"), keras.Input((8,), name="words", dtype="int32")
    embedded = layers.GlobalAveragePooling1D()(layers.Embedding(50, 8)(words))
    hidden = layers.Dropout(0.1)(layers.Dense(16, activation="relu")(layers.concatenate([numbers, embedded])))
    outputs = {
        "urgent": layers.Dense(1, activation="sigmoid", name="urgent")(hidden),
        "group": layers.Dense(3, name="group")(hidden),
    }
    model = keras.Model([numbers, words], outputs)
    of_group = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    losses = {"urgent": "binary_crossentropy", "group": of_group}
    model.compile(optimizer="adam", loss=losses, metrics={"group": ["accuracy"]})
    return model, (x, y, {"urgent": weights, "group": weights})


def transfer(context):
    """A network of keras.applications, frozen, under a new head, stopped when it learns no more."""
    whole = keras.applications.MobileNet((32, 32, 3), alpha=0.25, include_top=False, weights=None)
    base = keras.Model(whole.input, layers.GlobalAveragePooling2D()(whole.get_layer("conv_pw_2_relu").output))
    base.trainable = False
    inputs = keras.Input((32, 32, 3))
    x = keras.applications.mobilenet.preprocess_input(layers.RandomFlip("horizontal")(inputs))
    model = keras.Model(inputs, layers.Dense(3)(layers.Dropout(0.2)(base(x, training=False))))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 96)
    x = rng.integers(0, 255, (96, 32, 32, 3)) + 40.0 * y[:, None, None, None]
    stopping = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=100.0, restore_best_weights=True)
    return {"model": model, "train": (x, y), "validation": (x[:32], y[:32]), "callbacks": [stopping]}
