"""What people give to Keras' fit, given to gputui; data of unknown length; settings that an option makes."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.own import counting
from gputui.engine.trainer.own.user_code import UserError

from tests.support.own import Write
from tests.support.training import Training

pytestmark = pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
HEAD = """
import keras, numpy as np, tensorflow as tf
rng = np.random.default_rng(0)
x, y = rng.normal(size=(120, 4)).astype("float32"), rng.integers(0, 3, 120)
weight = rng.random(120).astype("float32")
def data(): return tf.data.Dataset.from_tensor_slices((x, y)).batch(20)
def model(**more):
    keras.utils.set_random_seed(7)
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    made.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
    )
    return made
"""
SHORT = ("epochs=4", "batch_size=20", "validation_split=0", "shuffle=off")
FORMS = {
    "class-weight": "'train': (x, y), 'class_weight': {0: 3.0, 2: 0.25}",
    "class-weight-of-batches": "'train': data(), 'class_weight': {0: 3.0, 2: 0.5}",
    "sample-weight": "'train': (x, y), 'sample_weight': weight",
    "seldom": "'train': (x, y), 'validation': (x[:50], y[:50]), 'validation_freq': 2",
    "these": "'train': (x, y), 'validation': (x[:50], y[:50]), 'validation_freq': [1, 4]",
    "later": "'train': (x, y), 'initial_epoch': 2",
}


def warned(training: Training) -> list[tuple[str, str, str]]:
    return [(event["option"], event["message"], event["hint"]) for event in training.events("warning")]


def of_keras(form: str) -> list[dict[str, float]]:
    """The metrics of each epoch of the same arguments in Keras' own fit."""
    names: dict[str, Any] = {}
    exec(HEAD, names)
    given = eval("{" + form + "}", names)
    train, validation = given.pop("train"), given.pop("validation", None)
    arguments = {"x": train} if isinstance(train, tf.data.Dataset) else {"x": train[0], "y": train[1], "batch_size": 20}
    history = names["model"]().fit(
        **arguments, **given, validation_data=validation, validation_batch_size=20, epochs=4, shuffle=False, verbose=0
    )
    told = history.history
    evaluated = {key: iter(values) for key, values in told.items() if key.startswith("val_")}
    freq = given.get("validation_freq", 1)
    epochs = []
    for index, epoch in enumerate(history.epoch):
        metrics = {key: values[index] for key, values in told.items() if key not in evaluated}
        if (epoch + 1) in freq if isinstance(freq, list) else (epoch + 1) % freq == 0:
            metrics |= {key: next(values) for key, values in evaluated.items()}
        epochs.append(metrics)
    return epochs


@pytest.mark.parametrize("name", FORMS)
def test_what_fit_takes_gives_the_figures_of_fit(name: str, own: Write) -> None:
    source = f"{HEAD}\ndef build(context):\n    return {{'model': model(), {FORMS[name]}}}\n"
    told = own(source, *SHORT).train().events("epoch")
    expected = of_keras(FORMS[name])
    assert [event["epoch"] for event in told] == list(range(5 - len(expected), 5))
    for event, metrics in zip(told, expected, strict=True):
        assert event["metrics"] == pytest.approx(metrics, rel=1e-5)


def test_class_weights_over_replicas_and_an_evaluation_of_some_batches(own: Write) -> None:
    returned = "'train': (x, y), 'validation': data().repeat(), 'validation_steps': 2, 'class_weight': {0: 3.0}"
    source = f"{HEAD}\ndef build(context):\n    return {{'model': model(), {returned}}}\n"
    training = own(source, *SHORT, "strategy.kind=mirrored").train()
    assert np.isfinite(training.losses()).all()
    module: dict[str, Any] = {}
    exec(HEAD, module)
    loss = training.loop.built.model.evaluate(module["x"][:40], module["y"][:40], verbose=0, return_dict=True)["loss"]
    assert training.events("epoch")[-1]["metrics"]["val_loss"] == pytest.approx(loss, rel=1e-4)


UNKNOWN = """
def pages():
    for start in range(0, 120, 20):
        yield x[start : start + 20], y[start : start + 20]
def build(context):
    signature = (tf.TensorSpec((None, 4)), tf.TensorSpec((None,), tf.int64))
    train = tf.data.Dataset.from_generator(pages, output_signature=signature)
    return {"model": model(), "train": train, "validation": data().unbatch().filter(lambda a, b: b < 2).batch(20)}
"""


def test_data_of_unknown_length_is_counted_once(own: Write) -> None:
    training = own(HEAD + UNKNOWN, *SHORT).train()
    assert training.loop.steps_per_epoch == 6
    assert training.loop.step == 24
    details = [event["detail"] for event in training.events("phase")]
    assert [details.count(f"counting {role}") for role in ("train", "validation")] == [1, 1]
    single = UNKNOWN.replace('"train": train', '"train": train.unbatch(), "map": None')
    mapped = own(HEAD + single, *SHORT)
    assert mapped.loop.built.pipeline.train_samples == 120


def test_a_stream_that_does_not_end_is_given_up(own: Write) -> None:
    training = own(HEAD + UNKNOWN, *SHORT)
    endless = tf.data.Dataset.range(3).repeat().filter(lambda number: True)
    with pytest.raises(UserError, match=r"train has more than \d+ elements, or no end") as refused:
        counting.counted(endless, "train", training.loop.built.report, most_seconds=0.0)
    assert refused.value.hint == "return samples beside it, or set train.steps_per_epoch"


SETS = (
    HEAD
    + """
tf.config.threading.set_intra_op_parallelism_threads(4)
tf.config.optimizer.set_jit(True)
for gpu in tf.config.list_physical_devices("CPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
def build(context):
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    return model(), (x, y)
"""
)


def test_settings_that_an_option_makes_are_told_and_break_nothing(own: Write) -> None:
    training = own(SETS, *SHORT).train()
    told = warned(training)
    assert [(option, message.partition(":")[0]) for option, message, _ in told] == [
        ("device.intra_op_threads", "set_intra_op_parallelism_threads in train.py"),
        ("compile.xla", "set_jit in train.py"),
        ("device.memory_growth", "set_memory_growth in train.py"),
        ("precision.policy", "set_global_policy in train.py"),
    ]
    assert "train.py:16 does nothing here" in told[0][1]
    assert "train.py:21 takes effect, and the run's precision.policy does not" in told[3][1]
    assert told[0][2] == "set device.intra_op_threads in the preset and remove the call"
    assert training.loop.built.model.layers[0].compute_dtype == "bfloat16"
    assert tf.config.threading.set_intra_op_parallelism_threads.__name__ == "set_intra_op_parallelism_threads"
    assert keras.mixed_precision.set_global_policy.__name__ == "set_dtype_policy"
