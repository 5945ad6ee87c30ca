"""Text: the vocabulary is learnt from the samples, and the words become numbers inside the input pipeline."""

import keras
import numpy as np
from keras import layers

GOOD, BAD = ["fine", "great", "good", "warm"], ["bad", "cold", "poor", "sad"]


def make_texts(samples=300):
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, samples)
    texts = [" ".join(rng.choice([*(GOOD if label else BAD), "the", "a", "day"], 6)) for label in labels]
    return np.array(texts, dtype=object), labels.astype("float32")


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


def build(context):
    texts, labels = make_texts()
    vectorize = layers.TextVectorization(max_tokens=100, output_sequence_length=8)
    vectorize.adapt(texts)

    def numbers(text, label):
        return vectorize(text), label

    model = make_model(vectorize.vocabulary_size())
    train, validation = (texts[60:], labels[60:]), (texts[:60], labels[:60])
    return {"model": model, "train": train, "validation": validation, "map": numbers}
