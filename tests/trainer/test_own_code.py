"""A user's own training through workload.entry, in this process: what is handed over, what applies, what is refused."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tests.doors.trainer import TrainerError, training_loop
from tests.support.own import Write
from tests.support.training import Training

HEAD = """
import keras, numpy as np, tensorflow as tf
rng = np.random.default_rng(0)
x, y = rng.normal(size=(100, 4)).astype("float32"), rng.normal(size=(100, 1)).astype("float32")

def model(compiled=True):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "relu"), keras.layers.Dense(1)])
    if compiled:
        made.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    return made

def dataset():
    return tf.data.Dataset.from_tensor_slices((x, y))
"""
SHORT = ("epochs=1", "batch_size=10", "validation_split=0")


def source(body: str) -> str:
    return HEAD + "\ndef build(context):\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())


def refused(own: Write, body: str, *settings: str) -> TrainerError:
    with pytest.raises(TrainerError) as raised:
        own(source(body), *SHORT, *settings).train()
    return raised.value


def not_applied(training: Training) -> dict[str, str]:
    """Option -> why, as the `started` event has it; each is a warning, too."""
    training.announce()
    told = {item["option"]: item["why"] for item in training.events("started")[0]["not_applied"]}
    assert {event["option"] for event in training.events("warning") if event["kind"] == "not_applied"} == set(told)
    return told


# ---- what may be handed over --------------------------------------------------------------------

DATA = {
    "arrays": "{'model': model(False), 'train': (x, y), 'loss': 'mse'}",
    "arrays-validation": "model(), (x, y), (x[:20], y[:20])",
    "arrays-weighted": "model(), (x, y, np.ones(100))",
    "mapped": "{'model': model(), 'train': dataset(), 'map': lambda a, b: (a * 2, b)}",
    "unbatched": "{'model': model(), 'train': dataset(), 'map': None, 'validation': dataset().take(25)}",
    "batched": "model(), dataset().batch(context.global_batch_size), dataset().batch(30)",
}


@pytest.mark.parametrize(
    ("name", "samples", "last", "xla"),
    [pytest.param("arrays-weighted", 100, 10, "true", marks=pytest.mark.nightly), ("batched", 90, 5, "false")],
)
def test_replicas_share_each_batch(name: str, samples: int, last: int, xla: str, own: Write) -> None:
    # Batches of 10 for each of two replicas; 100 samples end with a whole batch, 90 with a smaller one.
    settings = ("epochs=2", "validation_split=0", "batch_size=10", "strategy.kind=mirrored", "steps_per_execution=2")
    text = source(f"return {DATA[name]}").replace("(100", f"({samples}")
    training = own(text, *settings, f"xla={xla}").train()
    assert training.loop.step == 10
    assert len(training.losses()) == 2
    sizes = [batch[0].shape[0] for batch in training.loop.built.pipeline.stream().take(10)]
    assert sizes == [10] * 8 + [last] * 2


@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_the_model_is_saved_as_plain_keras_reads_it(own: Write) -> None:
    training = own(source(f"return {DATA['arrays']}"), *SHORT, "schedule=cosine")
    assert training.loop.built.own is not None
    training.loop.built.own.save(training.loop.built.report, training.run.file("model.keras"))
    again = keras.models.load_model(training.run.file("model.keras"))
    x = np.ones((3, 4), "float32")
    np.testing.assert_allclose(again(x).numpy(), training.loop.built.model(x).numpy(), rtol=1e-6)
    assert training.loop.built.model.compiled


def test_the_code_is_told_the_settings(own: Write) -> None:
    body = """
print(context.args["units"] + 1)
want = (10, 20, 2, None, 1, 7, "mixed_bfloat16", 3)
have = (context.batch_size, context.global_batch_size, context.replicas, context.steps_per_epoch, context.epochs,
        context.seed, context.precision, context.map_parallel_calls)
assert have == want, have
assert keras.mixed_precision.global_policy().name == context.precision
return model(), (x, y)
"""
    own(source(body), *SHORT, "args={units: 3}", "strategy.kind=mirrored", "policy=mixed_bfloat16", "parallel_calls=3")


def test_an_uncompiled_model_gets_the_options_optimizer_and_a_compiled_one_keeps_its_own(own: Write) -> None:
    settings = (*SHORT, "optimizer=adamw", "learning_rate=0.25", "xla=true", "steps_per_execution=5")
    ours = own(source(f"return {DATA['arrays']}"), *settings).loop.built.model
    assert type(ours.optimizer) is keras.optimizers.AdamW
    assert float(ours.optimizer.learning_rate) == 0.25
    training = own(source(f"return {DATA['arrays-validation']}"), *settings)
    theirs = training.loop.built.model
    assert type(theirs.optimizer) is keras.optimizers.SGD
    assert float(theirs.optimizer.learning_rate) == pytest.approx(0.05)
    for model in (ours, theirs):
        assert (model.jit_compile, model.steps_per_execution) == (True, 5)
    why = "your code has chosen the optimizer"
    assert not_applied(training) == {"train.optimizer": why, "train.learning_rate": why}  # no split is asked for


# ---- what applies -------------------------------------------------------------------------------


def test_a_map_runs_once_a_sample_with_a_cache_and_each_pass_without(own: Write) -> None:
    body = """
import builtins
builtins.loaded = []
def load(a, b):
    tf.py_function(lambda v: builtins.loaded.append(1), [a[0]], [])
    return a, b
return {'model': model(), 'train': dataset(), 'map': load}
"""
    import builtins

    for cache, calls in (("off", 200), ("memory", 100)):
        settings = (f"cache={cache}", "prefetch=off", "parallel_calls=off", "across_epochs=true")
        pipe = own(source(body), *SHORT, *settings).loop.built.pipeline
        for _ in pipe.stream().take(20):
            pass
        assert len(builtins.loaded) == calls  # type: ignore[attr-defined]
    del builtins.loaded  # type: ignore[attr-defined]


def test_images_are_augmented_by_the_option_and_by_the_users_own_function(own: Write) -> None:
    body = """
images = rng.uniform(size=(40, 8, 8, 3)).astype("float32")
made = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
return {'model': made, 'train': (images, y[:40]), 'loss': 'mse', 'augment': context.args.get('own') and brighter}
"""
    text = source(body).replace("def build", "def brighter(a, b):\n    return a + 1.0, b\n\ndef build")
    common = (*SHORT, "shuffle=off", "parallel_calls=off")

    def first(*settings: str) -> Any:
        training = own(text, *common, *settings)
        assert not_applied(training) == {}
        return next(iter(training.loop.built.pipeline.stream()))[0].numpy()

    plain, light, mine = first(), first("augment=light"), first("args={own: true}")
    assert not np.allclose(plain, light)
    np.testing.assert_allclose(mine, plain + 1.0, rtol=1e-6)


# ---- going on -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mapped", "batched"])
def test_a_resumed_stream_goes_on_with_the_batches_that_would_have_come(name: str, own: Write) -> None:
    pipe = own(source(f"return {DATA[name]}"), *SHORT, "shuffle=40", "cache=memory").loop.built.pipeline
    whole = [batch[0].numpy() for batch in pipe.stream().take(25)]
    for at in (3, 10, 14):
        beyond = -(-at // 10) * 10 if name == "batched" else 25  # the rest of an epoch is a fit of its own
        beyond = 25 if beyond == at else beyond
        for ours, expected in zip(pipe.stream(at).take(beyond - at), whole[at:beyond], strict=True):
            np.testing.assert_array_equal(ours[0].numpy(), expected)


# ---- callbacks ----------------------------------------------------------------------------------

TELLING = """
import builtins
class Telling(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        builtins.told = []
    def on_train_begin(self, logs=None): builtins.told.append("train")
    def on_train_end(self, logs=None): builtins.told.append("end")
    def on_epoch_begin(self, epoch, logs=None): builtins.told.append(f"epoch {epoch}")
    def on_epoch_end(self, epoch, logs=None):
        builtins.told.append(sorted(logs))
        builtins.inside.append(builtins.heartbeat.in_user_code)
        self.model.stop_training = epoch == 1
    def on_test_begin(self, logs=None): builtins.told.append("test")
class Steps(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None): builtins.told.append(batch)
"""


def test_callbacks_are_told_as_keras_would_and_may_end_the_training(
    own: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    import builtins

    monkeypatch.setattr(training_loop, "BEAT_SECONDS", 0.0)
    parts = "'model': model(), 'train': (x, y), 'validation': (x, y), 'callbacks': [Telling(), Steps()]"
    body = TELLING + f"return {{{parts}}}"
    training = own(source(body), "epochs=50", "batch_size=50")
    heartbeat, inside = training.loop.built.report.heartbeat, list[bool]()
    monkeypatch.setattr(builtins, "heartbeat", heartbeat, raising=False)
    monkeypatch.setattr(builtins, "inside", inside, raising=False)
    training.train()
    logs = ["loss", "mae", "val_loss", "val_mae"]
    one = [0, 1, "test", logs]
    assert builtins.told == ["train", "epoch 0", *one, "epoch 1", *one, "end"]  # type: ignore[attr-defined]
    del builtins.told  # type: ignore[attr-defined]
    assert training.loop.step == 4
    # What the engine sees of it, which takes a training without completed steps for a hang.
    assert inside == [True, True]
    assert not heartbeat.in_user_code
    calls = 1 + 2 + 4 + 2 + 2 + 2 + 1  # training, epochs, batches, evaluations (begin and end), epochs, training
    assert heartbeat.count > calls, "the second evaluation, which compiles nothing, gives signs of its own"


# ---- what is refused ----------------------------------------------------------------------------


CUSTOM = """
class Custom(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
    def call(self, inputs):
        return self.dense(inputs)
    def train_step(self, data):
        return RETURNED
made = Custom()
made.compile("sgd")
return made, dataset().batch(10)
"""


def test_a_validation_that_would_fail_after_the_first_epoch_is_refused(own: Write) -> None:
    """A loss that a layer adds when it is called is found."""
    steps = CUSTOM.replace("return RETURNED", "return {'loss': tf.reduce_mean(self(data[0]))}")
    validated = steps.replace("return made, dataset()", "return made, dataset().batch(10), dataset()")
    fault = refused(own, validated)
    assert "Custom cannot be evaluated: it has a train_step of its own, but neither a test_step" in fault.message
    assert "return no validation data" in fault.hint
    added = "self.add_loss(tf.reduce_mean(inputs)); return self.dense"
    adds = validated.replace("return self.dense", added)
    assert own(source(adds), *SHORT).train().loop.built.pipeline.validation_batches


def test_xla_over_replicas_is_refused_for_a_training_step_of_their_own(own: Write) -> None:
    fault = refused(own, CUSTOM.replace("RETURNED", "{'loss': 0.0}"), "xla=true", "strategy.kind=mirrored")
    assert "Custom has a train_step of its own, which XLA cannot compile over several replicas" in fault.message
    assert "compile.xla=false" in fault.hint


def test_a_model_of_theirs_that_is_not_finite_is_told_what_to_change_in_their_code(own: Write) -> None:
    fault = refused(own, "return model(), (x * np.inf, y)", "nan_check_steps=1")
    assert fault.kind == "nan"
    assert fault.hint.startswith("in your code lower the optimizer's learning rate")
