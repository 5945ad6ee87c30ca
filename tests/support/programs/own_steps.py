"""Models with training steps of their own, most of which draw. Each function is a program, for workload.entry."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


def data(rows=120, columns=4):
    return np.random.default_rng(0).normal(size=(rows, columns)).astype("float32")


class Stepped(keras.Model):
    """Its steps tell the mean of a loss."""

    def __init__(self):
        super().__init__()
        self.mean = keras.metrics.Mean("loss")

    @property
    def metrics(self):
        return [self.mean]

    def applied(self, tape, loss, weights, optimizer=None):
        (optimizer or self.optimizer).apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return self.told(loss)

    def told(self, loss):
        self.mean.update_state(loss)
        return {"loss": self.mean.result()}


class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs):
        mean, log_variance = inputs
        epsilon = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * epsilon


class VAE(keras.Model):
    def __init__(self, size, latent=2):
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(16, activation="relu")])
        self.mean, self.log_variance = layers.Dense(latent), layers.Dense(latent)
        self.sampling = Sampling()
        self.decoder = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(size)])
        self.reconstruction_tracker = keras.metrics.Mean(name="reconstruction")
        self.kl_tracker = keras.metrics.Mean(name="kl")

    @property
    def metrics(self):
        return [self.reconstruction_tracker, self.kl_tracker]

    def call(self, x):
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        return self.decoder(self.sampling([mean, log_variance])), mean, log_variance

    def train_step(self, x):
        with tf.GradientTape() as tape:
            decoded, mean, log_variance = self(x, training=True)
            reconstruction = ops.mean(ops.square(x - decoded))
            kl = -0.5 * ops.mean(1 + log_variance - ops.square(mean) - ops.exp(log_variance))
            loss = reconstruction + 0.01 * kl
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.reconstruction_tracker.update_state(reconstruction)
        self.kl_tracker.update_state(kl)
        return {"loss": reconstruction, "kl": self.kl_tracker.result()}


def vae(context):
    """A variational autoencoder with a layer that draws, which is built in its first step."""
    model = VAE(size=12)
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    return model, tf.data.Dataset.from_tensor_slices(data(320, 12)).batch(context.global_batch_size)


class Guide(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


def guide(context):
    """The step of Keras' own guide: each metric by its name, of which compile's are a dict in themselves."""
    keras.utils.set_random_seed(7)
    inputs = keras.Input(shape=(32,))
    model = Guide(inputs, layers.Dense(1)(inputs))
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    x = data(640, 32)
    return model, tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(context.global_batch_size)


class GAN(Stepped):
    def __init__(self):
        super().__init__()
        self.discriminator = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(1)])
        self.generator = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(4)])
        self.draws = keras.random.SeedGenerator(3)
        self.entropy = keras.losses.BinaryCrossentropy(from_logits=True)

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

    def train_step(self, real):
        size = tf.shape(real)[0]
        both = tf.concat([self.generator(keras.random.normal((size, 3), seed=self.draws)), real], axis=0)
        labels = tf.concat([tf.ones((size, 1)), tf.zeros((size, 1))], axis=0)
        labels += 0.05 * keras.random.uniform(tf.shape(labels))  # Keras' global generator
        with tf.GradientTape() as tape:
            loss = self.entropy(labels, self.discriminator(both))
        self.applied(tape, loss, self.discriminator.trainable_weights, self.d_optimizer)
        with tf.GradientTape() as tape:
            made = self.generator(keras.random.normal((size, 3), seed=self.draws))
            loss = self.entropy(tf.zeros((size, 1)), self.discriminator(made))
        return self.applied(tape, loss, self.generator.trainable_weights, self.g_optimizer)


def gan(context):
    """Two optimizers, and random numbers of the model's own generator and of Keras'."""
    model = GAN()
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9), keras.optimizers.SGD(0.05, momentum=0.9))
    return model, data()


class Diffusion(Stepped):
    def __init__(self):
        super().__init__()
        self.normalizer = layers.Normalization()
        self.network = keras.Sequential([keras.Input((5,)), layers.Dense(16, "relu"), layers.Dense(4)])
        self.ema_network = keras.models.clone_model(self.network)

    def loss_of(self, network, x, training):
        x = self.normalizer(x, training=training)
        noise, times = keras.random.normal(tf.shape(x)), keras.random.uniform((tf.shape(x)[0], 1))
        noisy = tf.concat([x * tf.cos(times) + noise * tf.sin(times), times], axis=1)
        return tf.reduce_mean(tf.square(noise - network(noisy, training=training)))

    def train_step(self, x):
        with tf.GradientTape() as tape:
            loss = self.loss_of(self.network, x, True)
        told = self.applied(tape, loss, self.network.trainable_weights)
        for weight, average in zip(self.network.weights, self.ema_network.weights, strict=True):
            average.assign(0.9 * average + 0.1 * weight)
        return told

    def test_step(self, x):
        return self.told(self.loss_of(self.ema_network, x, False))


def diffusion(context):
    """Noise and times drawn in each step, and a second network that follows the first as an average."""
    x, model = data(), Diffusion()
    model.normalizer.adapt(x)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9, weight_decay=1e-4))
    return model, x, x[:40]


class Distiller(Stepped):
    """It has no call."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = (
            keras.Sequential([layers.Dense(units, "relu"), layers.Dropout(0.2), layers.Dense(3)]) for units in (4, 16)
        )
        self.teacher.trainable = False

    def train_step(self, data):
        x, y = data
        taught = tf.nn.softmax(self.teacher(x, training=False))
        with tf.GradientTape() as tape:
            told = self.student(x, training=True)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, told, from_logits=True))
            loss += tf.reduce_mean(keras.losses.kl_divergence(taught, tf.nn.softmax(told)))
        return self.applied(tape, loss, self.student.trainable_variables)


def distillation(context):
    """A student learns from a frozen teacher."""
    x, model = data(), Distiller()
    model.compile(optimizer=keras.optimizers.SGD(0.02, momentum=0.9))
    return model, (x, (x[:, 0] > 0).astype("int32") + (x[:, 1] > 0))


class Embedder(Stepped):
    def __init__(self):
        super().__init__()
        self.embed = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(3)])
        self.seen = tf.Variable(0, trainable=False)

    def call(self, inputs):
        return ops.normalize(self.embed(inputs), axis=-1)

    def train_step(self, data):
        x, y = data
        self.seen.assign_add(1)
        swing = tf.numpy_function(lambda: np.float32(np.random.uniform(0.5, 1.5)), [], tf.float32)
        x += 0.3 * tf.ensure_shape(swing, ()) * noise.normal(tf.shape(x)) / tf.cast(self.seen, tf.float32)
        alike = tf.cast(y[:, None] == y[None, :], tf.float32)
        with tf.GradientTape() as tape:
            embedded = self(x, training=True)
            loss = tf.reduce_mean(tf.square(tf.matmul(embedded, embedded, transpose_b=True) - alike))
        return self.applied(tape, loss, self.trainable_variables)


def metric(context):
    """The step draws noise from a tf.random.Generator of the module, and from NumPy."""
    global noise
    noise = tf.random.Generator.from_seed(5)
    x, model = data(), Embedder()
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9))
    return model, (x, (x[:, 0] > 0).astype("int32"))


def of_actions():
    return keras.Sequential([keras.Input((4,)), layers.Dense(8, "relu"), layers.Dense(3)])


class Agent(Stepped):
    def __init__(self):
        super().__init__()
        self.values, self.target = of_actions(), of_actions()
        self.target.set_weights(self.values.get_weights())
        self.steps = tf.Variable(0, trainable=False)

    def call(self, state):
        return self.values(state)

    def train_step(self, data):
        state, action, reward, after, ended = data
        best = tf.argmax(self.values(after), axis=1)
        expected = reward + 0.9 * (1 - ended) * tf.gather(self.target(after), best, batch_dims=1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(expected - tf.gather(self.values(state), action, batch_dims=1)))
        told = self.applied(tape, loss, self.values.trainable_variables)
        self.steps.assign_add(1)
        is_due = tf.cast(self.steps % 7 == 0, tf.float32)
        for old, new in zip(self.target.weights, self.values.weights, strict=True):
            old.assign(is_due * new + (1 - is_due) * old)
        return told


def five_parts(context):
    """Batches of five parts, for double Q-learning whose target network follows every seventh step."""
    state, action = data(105), np.random.default_rng(1).integers(0, 3, 105)
    parts = state, action, state.sum(axis=1), state[::-1].copy(), (state[:, 0] > 1).astype("float32")
    model = Agent()
    model.compile(optimizer=keras.optimizers.Adam(1e-2))
    return model, tf.data.Dataset.from_tensor_slices(parts).batch(context.global_batch_size)


class Averaged(Stepped):
    def __init__(self):
        super().__init__()
        normalised = layers.BatchNormalization(synchronized=True)
        self.network = keras.Sequential([keras.Input((4,)), layers.Dense(8), normalised, layers.Dense(1)])

    def call(self, x, training=False):
        return self.network(x, training=training)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            errors = tf.square(self(x, training=True)[:, 0] - y)
            loss = tf.nn.compute_average_loss(errors)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return self.told(errors)

    def test_step(self, data):
        x, y = data
        return self.told(tf.square(self(x)[:, 0] - y))


def over_replicas(context):
    """Statistics of the whole batch; the last batch has an odd number of rows."""
    x, model = data(105), Averaged()
    model.compile(optimizer=keras.optimizers.SGD(0.01))
    return model, (x, x.sum(axis=1)), (x[:50], x[:50].sum(axis=1))
