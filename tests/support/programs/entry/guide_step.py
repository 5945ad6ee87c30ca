"""The training step of Keras' own guide: each metric by its name, of which compile's are a dict in themselves."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)


class CustomModel(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        trainable_vars = self.trainable_variables
        gradients = tape.gradient(loss, trainable_vars)
        self.optimizer.apply(gradients, trainable_vars)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


def made_model():
    inputs = keras.Input(shape=(32,))
    model = CustomModel(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model


def train_data(batch_size):
    rng = np.random.default_rng(0)
    x, y = rng.random((640, 32), "float32"), rng.random((640, 1), "float32")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)


def build(context):
    return made_model(), train_data(context.global_batch_size)
