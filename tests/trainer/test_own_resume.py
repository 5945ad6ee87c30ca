"""A resumed training of a user's model goes on to the very losses of one that was never interrupted, also mirrored."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.doors.engine import Run, presets, previews
from tests.doors.trainer import StopRequested, UserError
from tests.support.forking import Forks, trainer_of
from tests.support.front_door import happened
from tests.support.own import PROGRAMS, Write, program, resumed
from tests.support.training import Training

NIGHTLY = pytest.mark.nightly
DRAWN = {name: program("own_steps", name) for name in ("vae", "gan", "metric", "diffusion", "distillation")}
DRAWN["average"] = program("own_models", "average")
SHORT = ("epochs=3", "batch_size=20", "validation_split=0", "steps_per_epoch=6", "checkpoint=4", "keep=10")
OF_A_DATASET = {"vae": ("batch_size=40", "steps_per_epoch=8")}  # which has 320 samples


def figures(training: Training) -> dict[int, dict[str, float]]:
    """The metrics of each epoch."""
    return {event["epoch"]: event["metrics"] for event in training.events("epoch")}


def goes_on_exactly(again: Training, whole: Training) -> None:
    told, expected = figures(again), figures(whole)
    assert told
    assert told == {epoch: expected[epoch] for epoch in told}
    both = again.loop.built.model.get_weights(), whole.loop.built.model.get_weights()
    assert all(np.array_equal(*pair) for pair in zip(*both, strict=True))
    assert warned(again) == []


# That of gan is killed and resumed below, and average is stopped in an evaluation.
@pytest.mark.parametrize("name", ["vae", *(pytest.param(name, marks=NIGHTLY) for name in ("metric", "diffusion"))])
def test_a_resumed_program_goes_on_to_the_very_same_losses(name: str, own: Write) -> None:
    source, settings = DRAWN[name], (*SHORT, *OF_A_DATASET.get(name, ()))
    whole = own(source, *settings).train()
    goes_on_exactly(resumed(own, source, whole, 4, *settings), whole)


@pytest.mark.nightly
def test_moving_averages_go_on_also_from_a_stop_in_an_evaluation(own: Write) -> None:
    """And a training ends with them as its weights, also where the rest of a resumed epoch was a fit of its own."""
    source, settings = DRAWN["average"], (*SHORT, "checkpoint=2")
    whole, stopped = own(source, *settings).train(), own(source, *settings)
    loop = stopped.loop
    check = loop._check_stop

    def stop_in_epoch_2(of_run: bool) -> None:
        if loop.step == 12:
            loop.built.stop.request("stopped")
        check(of_run)

    loop._check_stop = stop_in_epoch_2  # type: ignore[method-assign]
    with pytest.raises(StopRequested):
        loop.run(None)
    loop.leave()
    assert set(figures(stopped)) == {1}
    for before, step, epochs in ((whole, 4, {1, 2, 3}), (stopped, 12, {2, 3})):
        again = resumed(own, source, before, step, *settings)
        assert set(figures(again)) == epochs
        goes_on_exactly(again, whole)
        model = again.loop.built.model
        pairs = zip(model.trainable_variables, model.optimizer._model_variables_moving_average, strict=True)
        assert all(np.array_equal(np.asarray(weight), np.asarray(average)) for weight, average in pairs)


KILLER = """
import os, signal

class Killer(keras.callbacks.Callback):
    batches = 0
    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches == 11 and os.path.exists("kill me"):
            os.unlink("kill me")
            os.kill(os.getpid(), signal.SIGKILL)
    def on_train_end(self, logs=None):
        np.concatenate([weight.ravel() for weight in self.model.get_weights()]).tofile("weights")

def build(context):
    made, data = gan(context)
    return {"model": made, "train": data, "callbacks": [Killer()]}
"""


def losses(run: Run) -> dict[int, dict[str, float]]:
    return {event["epoch"]: event["metrics"] for event in happened(run, "epoch")}


def test_a_killed_program_goes_on_to_the_very_same_losses_and_weights(forks: Forks, tmp_path: Path) -> None:
    """In trainers of its own: one undisturbed, one killed in the middle of an epoch, one that resumes it."""
    (tmp_path / "train.py").write_text((PROGRAMS / "own_steps.py").read_text() + KILLER)
    settings = ("seed=5", *SHORT, f"entry={tmp_path / 'train.py'}:build", f"folder={tmp_path}")
    (whole, undisturbed), (run, trainer) = (trainer_of(presets.defaults(settings)) for _ in range(2))
    forks.run(undisturbed)
    weights = (tmp_path / "weights").read_bytes()
    (tmp_path / "weights").unlink()
    (tmp_path / "kill me").touch()
    assert forks.codes(trainer) == [-signal.SIGKILL]
    warnings = len(happened(run, "warning"))
    forks.run(trainer)
    assert [event["resumed_at_step"] for event in happened(run, "started")] == [None, 8]
    assert happened(run, "warning")[warnings:] == []
    assert losses(run) == losses(whole)
    assert np.isfinite(np.frombuffer(weights, "float32")).all()
    assert (tmp_path / "weights").read_bytes() == weights


# ---- what cannot be restored is named, and only that -----------------------------------------------------


def warned(training: Training) -> list[tuple[str, str]]:
    return [(event["kind"], event["message"]) for event in training.events("warning")]


DATA_WITH_STATE = """
import random
import keras, numpy as np
class Data(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.x = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
        self.rng, self.rows, self.seen = np.random.default_rng(3), np.arange(120), []
        np.random.shuffle(self.rows)
    def __len__(self):
        return 6
    def __getitem__(self, i):
        found = []
        found.append(i)
        rows = self.rows[20 * i : 20 * i + 20]
        {getitem}
        return self.x[rows], self.x[rows, :1]
    def on_epoch_end(self):
        self.rows = self.rows.copy()
        {end}
def build(context):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made, Data()
"""
STATES = {
    "exact": ("pass", "self.rng.shuffle(self.rows)", []),
    "global": ("pass", "np.random.shuffle(self.rows)", []),
    "ahead": ("pass", "np.random.shuffle(self.rows)", ["Data.on_epoch_end draws from np.random (train.py:20)"]),
    "kept": ("self.seen.append(i)", "pass", ["Data.__getitem__ changes self.seen (train.py:16)"]),
}


@pytest.mark.parametrize("name", STATES)
def test_state_of_a_pydataset_that_no_checkpoint_holds_is_told_before(name: str, own: Write) -> None:
    """What on_epoch_end draws is drawn again on resuming, unless whole passes are loaded ahead."""
    getitem, end, places = STATES[name]
    source = DATA_WITH_STATE.replace("{getitem}", getitem).replace("{end}", end)
    settings = ("epochs=3", "checkpoint=4", "keep=10", "shuffle=off", *["across_epochs=true"] * (name == "ahead"))
    whole = own(source, *settings)
    assert whole.loop.built.own is not None
    whole.loop.built.own.warn(whole.loop.built.options, whole.loop.built.report, None)
    told = [message.partition(": no checkpoint")[0] for kind, message in warned(whole) if kind == "pydataset_state"]
    assert told == places
    if not places:
        whole.train()
        again = resumed(own, source, whole, 8, *settings)
        assert again.losses() == whole.losses()[1:]


def test_a_pydataset_whose_length_changes_is_refused(own: Write) -> None:
    """Keras' fit would train more steps in the next epoch."""
    source = DATA_WITH_STATE.replace("return 6", "return len(self.rows) // 20").replace("{getitem}", "pass")
    training = own(source.replace("{end}", "self.rows = self.rows[20:]"), "epochs=3", "shuffle=off")
    with pytest.raises(tf.errors.InvalidArgumentError):
        training.train()
    with pytest.raises(UserError, match="the PyDataset has 5 batches in epoch 1, and 6 at first: epochs of a run"):
        training.loop.built.pipeline.find_fault()


KEPT_BY_FUNCTIONS = """
import collections, keras, numpy as np
rates, losses = {"now": 0.1}, collections.deque()
def falling(epoch):
    rates["now"] *= 0.5
    return rates["now"]
def build(context):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: losses.append(logs["loss"]))
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    callbacks = [note, keras.callbacks.LearningRateScheduler(falling), halve]
    return {"model": made, "train": (np.ones((60, 4)), np.ones((60, 1))), "callbacks": callbacks}
"""


@pytest.mark.parametrize(("most", "too_large"), [
    (1 << 26, ""), (5, "; the function of LearningRateScheduler changes rates (train.py:5)"),
])  # fmt: skip
def test_what_no_checkpoint_can_hold_of_functions_of_callbacks_is_told_before(
    most: int, too_large: str, own: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.engine.trainer.checkpoint.training_state.MOST_BYTES", most)
    training = own(KEPT_BY_FUNCTIONS, "checkpoint=4")
    built = training.loop.built
    assert built.own is not None
    built.own.warn(built.options, built.report, None)
    (told,) = [
        message.partition(": no checkpoint")[0] for kind, message in warned(training) if kind == "callbacks_anew"
    ]
    assert told == "the function of LambdaCallback changes losses (train.py:10)" + too_large


MIRRORED = (*SHORT, "strategy.kind=mirrored", "batch_size=10")


RESUMED = ("gan", "average", "diffusion")  # a seed generator, averaged weights, the global state of Keras


@pytest.mark.nightly
@pytest.mark.parametrize("name", DRAWN)
def test_a_program_that_builds_itself_in_its_first_step_trains_over_replicas_and_resumes(name: str, own: Write) -> None:
    source, settings = DRAWN[name], (*MIRRORED, *(["steps_per_epoch=16"] if name in OF_A_DATASET else []))
    training = own(source, *settings).train()
    losses = training.losses()
    assert len(losses) == 3
    assert np.isfinite(losses).all()
    assert {len(variable.value.values) for variable in training.loop.built.model.trainable_variables} == {2}
    assert warned(training) == []
    if name in RESUMED:
        again = resumed(own, source, training, 4, *settings)
        assert again.losses() == losses
        both = again.loop.built.model.get_weights(), training.loop.built.model.get_weights()
        assert all(np.array_equal(*pair) for pair in zip(*both, strict=True))
        assert warned(again) == []


HEAD = """
import keras, numpy as np, tensorflow as tf
x = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
def network():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
"""
AT_THE_TOP = (
    HEAD
    + """
class Momentum(keras.optimizers.Optimizer):
    def build(self, variables):
        super().build(variables)
        self._momentums = [self.add_variable_from_reference(v, "momentum") for v in variables]
    def update_step(self, gradient, variable, rate):
        momentum = self._momentums[self._get_variable_index(variable)]
        self.assign(momentum, 0.9 * momentum - rate * gradient)
        self.assign_add(variable, momentum)
class Mine(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner, self.tracker = keras.layers.Dense(1), keras.metrics.Mean("loss")
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.inner(data[0]) - data[1]))
        weights = self.inner.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}
made = Mine()
made.compile(Momentum(0.01))
def build(context):
    return made, (x, x.sum(axis=1, keepdims=True))
"""
)


def test_a_model_made_at_the_top_of_its_module_and_an_optimizer_of_their_own(own: Write) -> None:
    losses = own(AT_THE_TOP, *MIRRORED).train().losses()
    assert losses[2] < losses[0]


REFUSED = {
    "scope": (
        """
def build(context):
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        made = network()
    made.compile("sgd", "mse")
    return made, (x, x[:, :1])
""",
        "train.py:8 in build: RuntimeError: ",
        "remove your own",
    ),
    "thread": (
        """
import threading
def build(context):
    found = []
    thread = threading.Thread(target=lambda: found.append(network()))
    thread.start()
    thread.join()
    found[0].compile("sgd", "mse")
    return found[0], (x, x[:, :1])
""",
        "was created outside the scope of strategy.kind=mirrored",
        "create model and optimizer in build",
    ),
    "step": (
        """
class Mine(keras.Model):
    def train_step(self, data):
        raise KeyError("nothing here")
def build(context):
    made = Mine()
    made.compile("sgd")
    return made, (x, x[:, :1])
""",
        "Mine has no variables yet, and they cannot be created for strategy.kind=mirrored: train.py:9 in train_step",
        "call the model",
    ),
}

REFUSED["accumulation"] = (
    """
def build(context):
    made = network()
    made.compile(keras.optimizers.Adam(gradient_accumulation_steps=4), "mse")
    return made, (x, x[:, :1])
""",
    "Adam(gradient_accumulation_steps=4) of your code",
    "train.micro_batches",
)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_mirrored_is_refused_before_it_trains(name: str, own: Write) -> None:
    source, told, hint = REFUSED[name]
    with pytest.raises(UserError) as refused:
        own(HEAD + source, *MIRRORED)
    assert told in refused.value.message
    assert hint in refused.value.hint


SHOWN = """
import os, random, signal
import keras, numpy as np, tensorflow as tf

class Draws(keras.callbacks.Callback):
    kills = False
    def on_epoch_begin(self, epoch, logs=None):
        self.model.optimizer.learning_rate.assign(random.random() * np.random.random() / 10)
    def on_train_batch_end(self, batch, logs=None):
        if self.kills and int(self.model.optimizer.iterations.numpy()) == 18 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

def build(context):
    drawn = np.random.default_rng(1)
    x, y = drawn.normal(size=(64, 6)).astype("float32"), drawn.integers(0, 3, 64)
    layers = keras.layers.BatchNormalization(), keras.layers.Dropout(0.4), keras.layers.Dense(3, "softmax")
    model = keras.Sequential([keras.layers.Dense(8), *layers])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    epochs, draws = [], Draws()
    draws.kills = context.args["shows"]

    def preview(model):
        if int(model.optimizer.iterations) == 24:
            globals()["drawer"] = np.random.default_rng(1)
        random.random(), np.random.normal(size=3), keras.random.normal((2,)), model(x, training=True)
        model.evaluate(x, y, verbose=0)
        epochs.append(len(epochs) + 1)
        if int(model.optimizer.iterations) == 32:
            raise ValueError("no more")
        return {"told": f"call {len(epochs)}", "mistakes": tf.math.confusion_matrix(y, model.predict(x).argmax(-1))}

    given = {"model": model, "train": (x, y), "validation": (x[:30], y[:30]), "callbacks": [draws]}
    return given | ({"preview": preview} if context.args["shows"] else {})
"""


def test_previews_change_nothing_of_a_killed_training_and_its_repeated_epochs_are_shown_again(
    forks: Forks, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SHOWN)
    entry = f"entry={tmp_path / 'train.py'}:build", f"folder={tmp_path}", "seed=5", "epochs=4", "checkpoint=12"
    (whole, undisturbed), (run, trainer) = (
        trainer_of(presets.defaults([*entry, "batch_size=8", f"args.shows={shows}"])) for shows in ("false", "true")
    )
    forks.run(undisturbed)
    assert forks.codes(trainer) == [-signal.SIGKILL]
    assert [previews.read(files["told"]) for files in previews.listed(run.path).values()] == ["call 1", "call 2"]
    forks.run(trainer)
    epochs = [{event["epoch"]: event["metrics"] for event in happened(each, "epoch")} for each in (whole, run)]
    assert epochs[0] == epochs[1]
    shown = {epoch: previews.read(files["told"]) for epoch, files in previews.listed(run.path).items()}
    assert shown == {1: "call 1", 2: "call 1", 3: "call 2"}, "of the second process from epoch 2 on"
    (warning,) = (event for event in happened(run, "warning") if event["kind"] == "preview")
    assert "no preview of epoch 4: train.py:30 in preview: ValueError: no more" in warning["message"]
    assert (run.result or {})["outcome"] == "ok"
