"""A user's own training through workload.entry, in this process: what is handed over, what applies, what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.fit import evaluation

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
    "generated": "{'model': model(), 'train': dataset().filter(lambda a, b: True).batch(10), 'samples': 100}",
    "tensors": "model(), (tf.constant(x), tf.constant(y))",
}


@pytest.mark.parametrize("returned", DATA.values(), ids=DATA)
def test_whatever_is_handed_over_trains(returned: str, own: Write) -> None:
    training = own(source(f"return {returned}"), *SHORT, "prefetch=off").train()
    assert training.loop.step == 10
    assert np.isfinite(training.losses()[0])
    assert ("val_loss" in training.events("epoch")[0]["metrics"]) == (
        "[:20]" in returned or "take" in returned or "batch(30)" in returned
    )


@pytest.mark.parametrize(
    ("name", "samples", "last", "xla"), [("arrays-weighted", 100, 10, "true"), ("batched", 90, 5, "false")]
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
    for name, settings in (("arrays", ("schedule=cosine",)), ("arrays-validation", ())):
        training = own(source(f"return {DATA[name]}"), *SHORT, *settings)
        assert training.loop.built.own is not None
        training.loop.built.own.save(training.loop.built.report, training.run.file("model.keras"))
        again = keras.models.load_model(training.run.file("model.keras"))
        x = np.ones((3, 4), "float32")
        np.testing.assert_allclose(again(x).numpy(), training.loop.built.model(x).numpy(), rtol=1e-6)
        assert training.loop.built.model.compiled


@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_of_a_model_that_keras_cannot_save_whole_the_weights_are_kept(own: Write) -> None:
    body = """
class Local(keras.Model):
    def __init__(self, thing):
        super().__init__()
        self.thing, self.dense = thing, keras.layers.Dense(1)
    def call(self, inputs):
        return self.dense(inputs)
    def get_config(self):
        raise NotImplementedError("of a thing")
made = Local(lambda: None)
made.compile("sgd", "mse")
return made, (x, y)
"""
    training = own(source(body), *SHORT, "keep_best=loss").train()
    assert training.loop.built.own is not None
    training.loop.built.own.save(training.loop.built.report, training.run.file("model.keras"))
    warnings = {event["option"]: event["message"] for event in training.events("warning")}
    assert list(warnings) == ["run.keep_best", "run.save_model"]
    for option, file in (("run.keep_best", "best/epoch-0001.weights.h5"), ("run.save_model", "model.weights.h5")):
        assert training.run.file(file).stat().st_size > 0
        assert warnings[option].endswith(f"its weights are in {file.rpartition('/')[2]}")


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


def test_an_uncompiled_model_gets_the_options_optimizer_and_a_compiled_one_keeps_its_own(
    own: Write,
) -> None:
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


def test_the_epochs_figures_are_those_of_plain_keras(own: Write, tmp_path: Path) -> None:
    body = """
keras.utils.set_random_seed(3)
return model(), dataset().batch(16)
"""
    ours = own(source(body), "epochs=3", "validation_split=0").train()
    namespace: dict[str, Any] = {}
    exec(HEAD, namespace)
    keras.utils.set_random_seed(3)
    plain = namespace["model"]()
    history = plain.fit(namespace["dataset"]().batch(16), epochs=3, verbose=0, shuffle=False).history
    assert ours.losses() == pytest.approx(history["loss"], rel=1e-6)
    assert [event["metrics"]["mae"] for event in ours.events("epoch")] == pytest.approx(history["mae"], rel=1e-6)


def test_a_remedy_that_no_option_brings_is_advice_on_the_code(own: Write) -> None:
    from gputui.engine.diagnosis.collector import Collector
    from gputui.engine.diagnosis.verdict import remedies
    from gputui.engine.runs.parsing import recalled

    for returned, within_reach in (("model(), dataset().batch(10)", False), (DATA["unbatched"], True)):
        training = own(source(f"return {returned}"), *SHORT).announce()
        collector = Collector({"input.parallel_calls": "off", "input.prefetch": "auto", "input.cache": "off"})
        collector.feed(map(recalled, training.events("started")))
        load = {"name": "load", "op": "Map", "ms_per_batch": 9.0, "parallelism": None}
        waiting = dataclasses.replace(collector.measurements(), input_wait=0.6, step_ms=10.0, cpus=4, stages=(load,))
        found = remedies(waiting, ["input_bound"])
        changed = {key for remedy in found for key in remedy.changes}
        assert ("input.parallel_calls" in changed) == within_reach
        assert any(remedy.reason.startswith(f"in your code ({BATCHED})") for remedy in found) != within_reach


# ---- what applies -------------------------------------------------------------------------------

CHANGED = (
    *("batch_size=20", "shuffle=off", "cache=memory", "augment=light", "drop_remainder=true", "parallel_calls=2"),
    *("validation_split=0.2", "clip_norm=1", "prefetch=2", "private_threads=2", "epochs=1"),
)
BATCHED = "your code has batched the data"


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (DATA["arrays"], {"input.augment": "x is not one batch of float32 images"}),
        (
            DATA["unbatched"],
            {
                "input.augment": "x is not one batch of float32 images",
                "train.validation_split": "your code hands over its validation data",
                "train.clip_norm": "your code has chosen the optimizer",
            },
        ),
        (
            "{'model': model(False), 'loss': 'mse', 'train': dataset().batch(7)}",
            dict.fromkeys(
                (
                    "input.batch_size",
                    "input.shuffle",
                    "input.parallel_calls",
                    "input.cache",
                    "input.augment",
                    "input.drop_remainder",
                ),
                BATCHED,
            )
            | {"train.validation_split": "only arrays are split"},
        ),
        (
            "{'model': model(False), 'loss': 'mse', 'train': dataset().batch(context.global_batch_size)}",
            dict.fromkeys(
                ("input.shuffle", "input.parallel_calls", "input.cache", "input.augment", "input.drop_remainder"),
                BATCHED,
            )
            | {"train.validation_split": "only arrays are split"},
        ),
    ],
    ids=["arrays", "unbatched", "batched", "batched-as-told"],
)
def test_what_does_not_apply_is_told_with_the_reason(returned: str, expected: dict[str, str], own: Write) -> None:
    assert not_applied(own(source(f"return {returned}"), *CHANGED)) == expected


def test_what_is_not_told_does_apply_to_arrays(own: Write) -> None:
    training = own(source(f"return {DATA['arrays']}"), *CHANGED)
    pipe = training.loop.built.pipeline
    assert (pipe.train_samples, pipe.validation_samples, pipe.batches_per_pass) == (80, 20, 4)
    batches = [batch[0].numpy() for batch in pipe.stream().take(8)]
    assert {len(batch) for batch in batches} == {20}
    np.testing.assert_array_equal(np.concatenate(batches[:4]), np.concatenate(batches[4:]))  # not shuffled
    assert pipe.stream().options().threading.private_threadpool_size == 2


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


@pytest.mark.parametrize("name", ["arrays", "mapped", "unbatched", "batched"])
def test_a_resumed_stream_goes_on_with_the_batches_that_would_have_come(name: str, own: Write) -> None:
    pipe = own(source(f"return {DATA[name]}"), *SHORT, "shuffle=40", "cache=memory").loop.built.pipeline
    whole = [batch[0].numpy() for batch in pipe.stream().take(25)]
    for at in (3, 10, 14):
        beyond = -(-at // 10) * 10 if name == "batched" else 25  # the rest of an epoch is a fit of its own
        beyond = 25 if beyond == at else beyond
        for ours, expected in zip(pipe.stream(at).take(beyond - at), whole[at:beyond], strict=True):
            np.testing.assert_array_equal(ours[0].numpy(), expected)


def test_on_resuming_it_is_said_what_cannot_go_on(own: Write) -> None:
    parts = "{'model': model(), 'train': dataset().batch(10), 'callbacks': keras.callbacks.TerminateOnNaN()}"
    training = own(source(f"return {parts}"), *SHORT)
    assert training.loop.built.own is not None
    training.loop.built.own.warn(training.loop.built.options, training.loop.built.report, None)
    assert training.events("warning") == [], "nothing goes on that has not begun"
    training.loop.built.own.warn(training.loop.built.options, training.loop.built.report, 7)
    told = {event["kind"]: event["message"] for event in training.events("warning")}
    assert "if Python code in it draws random numbers, it draws others" in told["resumed_batches"]


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

    monkeypatch.setattr(evaluation, "BEAT_SECONDS", 0.0)
    parts = "'model': model(), 'train': (x, y), 'validation': (x, y), 'callbacks': [Telling(), Steps()]"
    body = TELLING + f"return {{{parts}}}"
    training = own(source(body), "epochs=50", "batch_size=50")
    heartbeat, inside = training.loop.heartbeat, list[bool]()
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

RETURN = "return (model, train), (model, train, validation), or a dict with model, train and what goes with them"
REFUSED = {
    "nothing": ("pass", "build returned nothing (None)", RETURN),
    "model-only": ("return model()", "build returned a Sequential", RETURN),
    "four": ("return 1, 2, 3, 4", "build returned 4 values", RETURN),
    "no-train": ("return {'model': model()}", "build returned no train", RETURN),
    "keras-2": ("return type('Net', (), {'__module__': 'tf_keras'})(), (x, y)", "a Net of Keras 2", "LEGACY_KERAS=1"),
    "no-model": ("return 3, (x, y)", "model is an int, not a keras.Model", RETURN),
    "unknown": ("return {'model': model(), 'trian': (x, y)}", "the unknown key 'trian'", "did you mean train?"),
    "bare-arrays": ("return model(), x, y", "train is one array", "return (model, (x, y), (x_validation"),
    "lists": ("return model(), (x, [1, 2])", "y of train contains an int, not an array", "give (x, y) arrays"),
    "lengths": ("return model(), (x, y[:50])", "train has 100 samples in x and 50 in y", "each sample needs"),
    "empty": ("return model(), (x[:0], y[:0])", "train has no samples", "give"),
    "objects": ("return model(), (x.astype(object), y)", "x of train is an array of objects", "convert it to numbers"),
    "loss": ("return model(False), (x, y)", "the model is not compiled and no loss is given", "dict with a loss"),
    "two-losses": ("return {'model': model(), 'train': (x, y), 'loss': 'mse'}", "the model is already compiled", ""),
    "callbacks": ("return {'model': model(), 'train': (x, y), 'callbacks': [3]}", "callbacks contains an int", ""),
    "map": ("return {'model': model(), 'train': dataset(), 'map': 3}", "map is an int, not a function", ""),
    "samples": ("return {'model': model(), 'train': dataset(), 'samples': -1}", "samples is -1", "whole number"),
    "unbatched": ("return model(), dataset()", "train's elements have shape (4,)", "map: None to have gputui batch it"),
    "batched-twice": ("return {'model': model(), 'train': dataset().batch(5), 'map': None}", "already batched", ""),
    "endless": ("return model(), dataset().repeat().batch(10)", "train has no end", "set train.steps_per_epoch"),
    "endless-validation": (
        "return model(), (x, y), dataset().repeat().batch(10)",
        "validation has no end",
        "return validation_steps next to it",
    ),
    "option": ("return {'model': model(), 'train': (x, y), 'epochs': 3}", "epochs is an option", "set train.epochs in"),
    "class-weight": ("return {'model': model(), 'train': (x, y), 'class_weight': [1]}", "class_weight is [1]", "dict"),
    "class-weight-of-many": (
        "return {'model': model(), 'train': (x, (y, y)), 'class_weight': {0: 2.0}}",
        "class_weight needs batches of (x, y)",
        "third element",
    ),
    "weighted-twice": (
        "return {'model': model(), 'train': (x, y, y), 'sample_weight': y}",
        "sample_weight is given twice",
        "remove one",
    ),
    "both-weights": (
        "return {'model': model(), 'train': (x, y), 'sample_weight': y, 'class_weight': {0: 2.0}}",
        "class_weight and sample_weight are both given",
        "multiply",
    ),
    "weights-of-a-dataset": (
        "return {'model': model(), 'train': dataset().batch(5), 'sample_weight': y}",
        "can be used only with arrays",
        "third element",
    ),
    "begins-at-its-end": (
        "return {'model': model(), 'train': (x, y), 'initial_epoch': 9}",
        "initial_epoch is 9 and train.epochs",
        "raise train.epochs",
    ),
    "never": ("return {'model': model(), 'train': (x, y), 'validation_freq': 0}", "validation_freq is 0", "from 1"),
    "too-few": ("return model(), (x, y)", "100 samples do not fill one global batch of 200", "lower input.batch_size"),
    "no-pass": (
        "return {'model': model(), 'train': dataset().repeat(), 'map': None}",
        "input.cache needs to know the number of samples",
        "return samples",
    ),
}
WITH = {"too-few": ("batch_size=200", "drop_remainder=true"), "no-pass": ("cache=memory", "steps_per_epoch=3")}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_returns_are_refused_in_words_that_say_what_to_return(name: str, own: Write) -> None:
    body, message, hint = REFUSED[name]
    fault = refused(own, body, *WITH.get(name, ()))
    assert fault.kind == "user_code"
    assert message in fault.message
    assert hint in fault.hint


def test_data_without_an_end_trains_for_the_steps_that_are_asked_for(own: Write) -> None:
    endless, unknown = "dataset().repeat()", "dataset().filter(lambda a, b: True)"
    mapped = "return {{'model': model(), 'train': {}, 'map': None}}"
    batched = "return model(), {}.batch(10).repeat()"
    for form, data in ((mapped, endless), (batched, unknown)):
        assert own(source(form.format(data)), *SHORT, "steps_per_epoch=30").train().loop.step == 30
    for form, data in ((mapped, unknown), (batched, endless)):  # as many batches come
        training = own(source(form.format(data)), *SHORT, "steps_per_epoch=30")
        assert training.loop.steps == 30
        assert len(list(training.loop.built.pipeline.stream().take(30))) == 30
        assert training.loop.built.pipeline.train_samples is None


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


def test_arrays_are_not_split_for_a_model_that_nothing_can_evaluate(own: Write) -> None:
    steps = "return {'loss': tf.reduce_mean(self(data[0]))}"
    arrays = CUSTOM.replace("return RETURNED", steps).replace("dataset().batch(10)", "(x, y)")
    split = ("epochs=1", "batch_size=10", "validation_split=0.2")
    training = own(source(arrays), *split).train()
    assert training.loop.steps == 10, "all samples train"
    warned = {event["option"]: event["message"] for event in training.events("warning")}
    assert warned["train.validation_split"].startswith("no validation: Custom has a train_step of its own, but neither")
    for known in ("made.compile('sgd', 'mse')", "Custom.test_step = lambda self, data: {'loss': 1.0}"):
        evaluated = own(source(arrays.replace('made.compile("sgd")', f"made.compile('sgd'); {known}")), *split)
        assert evaluated.loop.built.pipeline.validation_batches == 2, known


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


def test_a_training_step_that_returns_nothing_is_refused(own: Write) -> None:
    fault = refused(own, CUSTOM.replace("RETURNED", "None"))
    assert "the train_step or test_step of Custom returns no figures" in fault.message
