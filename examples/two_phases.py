"""Fine-tuning in two phases: first a new last layer on a frozen backbone, then all layers with a low learning rate.

gputui --preset two-phases.yaml                # writes frozen.keras
gputui --preset two-phases-unfrozen.yaml       # continues from its weights
"""

from pathlib import Path

import keras
import numpy as np
from keras import layers

SIZE = 32
FROZEN = Path("frozen.keras")  # in the folder of the presets, where gputui runs this code


def make_images(samples, seed=0):
    """Noisy stripes, the class is their direction: horizontal, vertical or one of the two diagonals."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, samples)
    across, down = np.array([(0, 1), (1, 0), (1, 1), (1, -1)])[y].T[:, :, None, None]
    rows, columns = np.mgrid[0:SIZE, 0:SIZE]
    waves = np.sin(0.8 * (across * columns + down * rows) + rng.uniform(0, 6, (samples, 1, 1)))
    x = 0.5 + 0.2 * waves[..., None] + rng.normal(0, 0.15, (samples, SIZE, SIZE, 3))
    return x.clip(0, 1).astype("float32"), y.astype("int32")


def make_backbone(weights):
    """A backbone without its last layer: `random` needs no download, `imagenet` is what you would fine-tune."""
    if weights == "imagenet":
        return keras.applications.MobileNetV2((SIZE, SIZE, 3), include_top=False, pooling="avg", weights=weights)
    return keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(16, 5, strides=2, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
        ]
    )


def classifier(context, trainable):
    backbone = make_backbone(context.args["weights"])
    backbone.trainable = trainable
    inputs = keras.Input((SIZE, SIZE, 3))
    # training=False: batch normalization keeps its means in both phases, as small batches of new images would spoil
    # them.
    features = backbone(layers.Rescaling(2.0, offset=-1.0)(inputs), training=False)
    return keras.Model(inputs, layers.Dense(4, dtype="float32")(features))


def parts(context, model, callbacks):
    """The model is not compiled, so that train.optimizer and train.learning_rate of each preset apply."""
    return {
        "model": model,
        "train": make_images(context.args["samples"]),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
        "callbacks": callbacks,
    }


def frozen(context):
    return parts(context, classifier(context, trainable=False), [keras.callbacks.ModelCheckpoint(FROZEN)])


def unfrozen(context):
    if not FROZEN.exists():
        raise FileNotFoundError(f"{FROZEN}: gputui --preset two-phases.yaml writes it")
    model = classifier(context, trainable=True)
    model.load_weights(FROZEN)  # the optimizer begins again, as its learning rate is another
    return parts(context, model, [])
