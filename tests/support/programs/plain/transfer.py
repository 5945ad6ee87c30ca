"""Transfer learning: a network of keras.applications, frozen, under a new head, stopped when it learns no more."""

import keras
import numpy as np
from keras import layers


def make_data(samples=96):
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, samples)
    x = rng.integers(0, 255, (samples, 32, 32, 3)).astype("float32")
    x[..., 0] += 40.0 * y[:, None, None]
    return x, y


def make_model():
    whole = keras.applications.MobileNet((32, 32, 3), alpha=0.25, include_top=False, weights=None)
    base = keras.Model(whole.input, layers.GlobalAveragePooling2D()(whole.get_layer("conv_pw_2_relu").output))
    base.trainable = False
    inputs = keras.Input((32, 32, 3))
    x = layers.RandomFlip("horizontal")(inputs)
    x = keras.applications.mobilenet.preprocess_input(x)
    x = base(x, training=False)
    return keras.Model(inputs, layers.Dense(3)(layers.Dropout(0.2)(x)))


def main():
    batch_size, epochs = 16, 4
    (x, y), (x_test, y_test) = make_data(), make_data(32)
    model = make_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    stopping = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=100.0, restore_best_weights=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    model.fit(x, y, batch_size, epochs, validation_data=(x_test, y_test), callbacks=[stopping])


if __name__ == "__main__":
    main()
