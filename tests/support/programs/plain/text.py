"""Text: the vocabulary is learnt from the samples, and the words become numbers inside the input pipeline."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

GOOD, BAD = ["fine", "great", "good", "warm"], ["bad", "cold", "poor", "sad"]


def make_texts(samples=300):
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, samples)
    texts = [" ".join(rng.choice([*(GOOD if label else BAD), "the", "a", "day"], 6)) for label in labels]
    return np.array(texts), labels.astype("float32")


def make_model(words):
    model = keras.Sequential(
        [
            keras.Input((8,), dtype="int64"),
            layers.Embedding(words, 16, mask_zero=True),
            layers.GlobalAveragePooling1D(),
            layers.Dense(16, activation="relu"),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
    return model


def main():
    batch_size, epochs = 32, 2
    texts, labels = make_texts()
    vectorize = layers.TextVectorization(max_tokens=100, output_sequence_length=8)
    vectorize.adapt(texts)

    def numbers(text, label):
        return vectorize(text), label

    model = make_model(vectorize.vocabulary_size())
    data = tf.data.Dataset.from_tensor_slices((texts, labels))
    train, validation = data.skip(60), data.take(60)
    train = train.shuffle(240).map(numbers).batch(batch_size).prefetch(2)
    validation = validation.map(numbers).batch(batch_size)
    model.fit(train, validation_data=validation, epochs=epochs)


if __name__ == "__main__":
    main()
