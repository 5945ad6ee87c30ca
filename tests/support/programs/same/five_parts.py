"""Batches of five parts, for a step of double Q-learning whose target network follows every seventh step."""

import keras
import numpy as np
import tensorflow as tf


def network():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])


class Agent(keras.Model):
    def __init__(self):
        super().__init__()
        self.values, self.target = network(), network()
        self.target.set_weights(self.values.get_weights())
        self.steps = tf.Variable(0, trainable=False)
        self.error = keras.metrics.Mean(name="loss")

    def call(self, state):
        return self.values(state)

    @property
    def metrics(self):
        return [self.error]

    def train_step(self, data):
        state, action, reward, after, ended = data
        best = tf.argmax(self.values(after), axis=1)
        expected = reward + 0.9 * (1 - ended) * tf.gather(self.target(after), best, batch_dims=1)
        with tf.GradientTape() as tape:
            values = tf.gather(self.values(state), action, batch_dims=1)
            loss = tf.reduce_mean(tf.square(values - tf.stop_gradient(expected)))
        weights = self.values.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.steps.assign_add(1)
        is_due = tf.cast(self.steps % 7 == 0, tf.float32)
        for old, new in zip(self.target.weights, self.values.weights, strict=True):
            old.assign(is_due * new + (1 - is_due) * old)
        self.error.update_state(loss)
        return {"loss": self.error.result()}


def build(context):
    rng = np.random.default_rng(1)
    state = rng.normal(size=(105, 4)).astype("float32")
    action, reward = rng.integers(0, 3, 105), rng.normal(size=105).astype("float32")
    parts = state, action, reward, state[::-1].copy(), (reward > 1).astype("float32")
    data = tf.data.Dataset.from_tensor_slices(parts)
    model = Agent()
    model.compile(optimizer=keras.optimizers.Adam(1e-2))
    return model, data.batch(context.global_batch_size)
