"""A resumed training of a user's model goes on to the very losses of one that was never interrupted."""

from __future__ import annotations

import random
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine import presets
from gputui.engine.runs import Run, code_files
from gputui.engine.trainer.common.stopping import StopRequested
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.own.user_code import UserError

from tests.support.forking import Forks, trainer_of
from tests.support.front_door import happened
from tests.support.own import PROGRAMS, Write
from tests.support.training import Training

DRAWN = PROGRAMS / "drawn"
NAMES = ("vae", "gan", "average", "metric", "diffusion", "distillation")
SHORT = ("epochs=3", "batch_size=20", "validation_split=0", "steps_per_epoch=6", "checkpoint=4", "keep=10")


def figures(training: Training) -> dict[int, dict[str, float]]:
    """The metrics of each epoch."""
    return {event["epoch"]: event["metrics"] for event in training.events("epoch")}


def resumed(own: Write, source: Path | str, whole: Training, step: int, *settings: str) -> Training:
    """Another training of the same program, in which everything random stands elsewhere, from that step on."""
    random.seed(99)
    np.random.seed(99)
    again = own(source, *settings)
    random.seed(77)
    np.random.seed(77)
    tf.random.get_global_generator().reset_from_seed(3)
    shutil.copytree(
        whole.run.file("checkpoints") / f"step-{step:010d}", again.run.file("checkpoints") / f"step-{step:010d}"
    )
    again.loop.run(step)
    return again


# Those of gan and distillation are killed and resumed below.
@pytest.mark.parametrize("name", ["vae", "average", "metric", "diffusion"])
def test_a_resumed_program_goes_on_to_the_very_same_losses(name: str, own: Write) -> None:
    """In the middle of an epoch, and one of them at the beginning of one."""
    source = DRAWN / f"{name}.py"
    whole = own(source, *SHORT).train()
    for step in (4, 12) if name == "average" else (4,):
        again = resumed(own, source, whole, step, *SHORT)
        told, expected = figures(again), figures(whole)
        assert set(told) == {1, 2, 3} - set(range(1, step // 6 + 1))
        assert told == {epoch: expected[epoch] for epoch in told}
        both = again.loop.built.model.get_weights(), whole.loop.built.model.get_weights()
        weights = [np.array_equal(*pair) for pair in zip(*both, strict=True)]
        assert all(weights)
        assert warned(again) == []


def test_a_training_ends_with_the_moving_average_as_its_weights(own: Write) -> None:
    """Also where the rest of a resumed epoch was a fit of its own."""
    whole = own(DRAWN / "average.py", *SHORT).train()
    for training in (whole, resumed(own, DRAWN / "average.py", whole, 4, *SHORT)):
        model = training.loop.built.model
        averages = model.optimizer._model_variables_moving_average
        pairs = zip(model.trainable_variables, averages, strict=True)
        assert all(np.array_equal(np.asarray(weight), np.asarray(average)) for weight, average in pairs)


KILLED = ("gan", "distillation")  # two optimizers and random numbers; a frozen network, dropout and no call
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

plain = build
def build(context):
    made, data = plain(context)
    return {"model": made, "train": data, "callbacks": [Killer()]}
"""


def losses(run: Run) -> dict[int, dict[str, float]]:
    return {event["epoch"]: event["metrics"] for event in happened(run, "epoch")}


def test_a_killed_program_goes_on_to_the_very_same_losses_and_weights(forks: Forks, tmp_path: Path) -> None:
    """Each in trainers of its own: one undisturbed, one killed in the middle of an epoch, one that resumes it."""
    undisturbed, killed = {}, {}
    for name in KILLED:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text((DRAWN / f"{name}.py").read_text() + KILLER)
        settings = ("seed=5", *SHORT, f"entry={folder / 'train.py'}:build", f"folder={folder}")
        undisturbed[name], killed[name] = (trainer_of(presets.defaults(settings)) for _ in range(2))
    forks.run(*(trainer for _, trainer in undisturbed.values()))
    weights = {name: (tmp_path / name / "weights").read_bytes() for name in KILLED}
    for name in KILLED:
        (tmp_path / name / "weights").unlink()
        (tmp_path / name / "kill me").touch()
    trainers = [trainer for _, trainer in killed.values()]
    assert forks.codes(*trainers) == [-signal.SIGKILL, -signal.SIGKILL]
    warnings = {name: len(happened(run, "warning")) for name, (run, _) in killed.items()}
    forks.run(*trainers)
    for name, (run, _) in killed.items():
        assert [event["resumed_at_step"] for event in happened(run, "started")] == [None, 8], name
        told = [event["kind"] for event in happened(run, "warning")[warnings[name] :]]
        assert told == ["callbacks_anew"], name
        assert losses(run) == losses(undisturbed[name][0]), name
        assert np.isfinite(np.frombuffer(weights[name], "float32")).all(), name
        assert (tmp_path / name / "weights").read_bytes() == weights[name], name


# ---- what cannot be restored is named, and only that -----------------------------------------------------

DRAWS = """
import keras, numpy as np, tensorflow as tf
class Noisy(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
    def call(self, x):
        return self.dense(x)
    def train_step(self, data):
        x, y = data
        noise = tf.random.normal(tf.shape(x))
        scale = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.random.uniform(()), lambda: tf.constant(1.0))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x + scale * noise)[:, 0] - y))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}
def build(context):
    x = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
    made = Noisy()
    made.compile("sgd")
    return made, (x, x.sum(axis=1))
"""


def warned(training: Training) -> list[tuple[str, str]]:
    return [(event["kind"], event["message"]) for event in training.events("warning")]


def test_draws_of_tensorflows_own_state_are_named_with_their_line(own: Write) -> None:
    whole = own(DRAWS, *SHORT).train()
    assert warned(whole) == []
    for settings in ((), ("xla=true",), ("steps_per_execution=2",)):  # in the graph, and in functions within it
        again = resumed(own, DRAWS, whole, 4, *SHORT, *settings)
        ((kind, message),) = warned(again)
        assert kind == "random_anew", settings
        places = "tf.random.normal in train_step (train.py:11), tf.random.uniform in <lambda> (train.py:12) draw from"
        assert message.startswith(places), settings


# ---- where random states and variables hide ------------------------------------------------------------------

HIDDEN = """
import functools, random
import keras, numpy as np, tensorflow as tf

drawn, kept = [], {"generator": tf.random.Generator.from_seed(1), "of numpy": np.random.default_rng(2)}
class Settings:
    draws = random.Random(3)
class Layer(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.seeds = {"inner": [keras.random.SeedGenerator(4)]}
        self.calls = tf.Variable(0.0, trainable=False)
    def call(self, x):
        self.calls.assign_add(1.0)
        return x + 0.1 * self.calls * keras.random.normal(tf.shape(x), seed=self.seeds["inner"][0])
class Mine(keras.Model):
    def __init__(self, closed_over):
        super().__init__()
        self.noise, self.dense, self.closed_over = Layer(), keras.layers.Dense(1), closed_over
    def call(self, x):
        return self.dense(self.noise(x))
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            told = self(x + self.closed_over(tf.shape(x)) + 0.1 * kept["generator"].normal(tf.shape(x)))
            loss = tf.reduce_mean(tf.square(told[:, 0] - y))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}
class See(keras.callbacks.Callback):
    def __init__(self, mine):
        super().__init__()
        self.legacy, self.on_batch = np.random.RandomState(5), functools.partial(mine, 1.0)
    def on_train_batch_end(self, batch, logs=None):
        told = [kept["of numpy"].random(), Settings.draws.random(), self.legacy.rand(), self.on_batch()]
        drawn.append([*told, np.random.rand(), random.random()])
def build(context):
    total, hidden = tf.Variable(0.0), np.random.default_rng(6)
    def closed_over(shape):
        total.assign_add(1.0)
        return 0.01 * total * tf.ones(shape)
    x = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
    made = Mine(closed_over)
    made.compile("sgd")
    return {"model": made, "train": (x, x.sum(axis=1)), "callbacks": [See(lambda by: by * hidden.random())]}
"""


@pytest.mark.parametrize("settings", [(), ("strategy.kind=mirrored",)], ids=["single", "mirrored"])
def test_random_states_and_variables_are_found_wherever_the_code_keeps_them_and_those_of_other_code_refused(
    settings: tuple[str, ...], own: Write
) -> None:
    whole = own(HIDDEN, *SHORT, *settings).train()
    expected = sys.modules["train"].drawn
    again = resumed(own, HIDDEN, whole, 4, *SHORT, *settings)
    assert sys.modules["train"].drawn == expected[4:]
    assert again.losses() == whole.losses()
    assert [kind for kind, _ in warned(again)] == []
    if not settings:
        _refused_with_other_code(own, whole)


def _refused_with_other_code(own: Write, whole: Training) -> None:
    source = HIDDEN.replace("class Settings:", "class Settings:\n    more = random.Random(1)")
    with pytest.raises(TrainerError, match="other random generators"):
        resumed(own, source, whole, 4, *SHORT)


IMPORTING = """
import keras, numpy as np
import sizes
class Late(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        import later
def build(context):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(sizes.units)])
    made.compile("sgd", "mse")
    return {"model": made, "train": (np.zeros((40, 4)), np.zeros(40)), "callbacks": [Late()]}
"""


def test_a_run_goes_on_with_edited_code_only_where_that_was_accepted_and_says_so(own: Write, tmp_path: Path) -> None:
    settings = ("epochs=1", "batch_size=20", "validation_split=0", "checkpoint=epoch")
    (tmp_path / "sizes.py").write_text("units = 1\n")
    (tmp_path / "later.py").write_text("")
    whole = own(IMPORTING, *settings).train()
    assert {Path(path).name for path in code_files.read(whole.run).files} == {"train.py", "sizes.py", "later.py"}
    (tmp_path / "sizes.py").write_text("units = 1  # edited\n")
    resumed = Run(tmp_path / "run1")
    shutil.copytree(whole.run.path, resumed.path)
    with pytest.raises(UserError, match=r"^sizes\.py has changed since run1 was trained$") as refused:
        own(IMPORTING, *settings)
    assert refused.value.hint.endswith("--code=new")
    code_files.accept(resumed)
    again = own(IMPORTING, *settings)
    assert again.loop.built.own is not None
    report = again.loop.built.report
    again.loop.built.own.warn(again.loop.built.options, report, 2)
    assert ("code_changed", "the run goes on from step 2 with changed code: sizes.py") in warned(again)
    report.finish("ok", 0)
    assert (resumed.result or {})["code_changes"] == [{"step": 2, "files": ["sizes.py"]}]


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
    "global": ("pass", "np.random.shuffle(self.rows)", ["Data.on_epoch_end draws from np.random (train.py:20)"]),
    "kept": ("self.seen.append(i)", "pass", ["Data.__getitem__ changes self.seen (train.py:16)"]),
}


@pytest.mark.parametrize("name", STATES)
def test_state_of_a_pydataset_that_no_checkpoint_holds_is_told_before(name: str, own: Write) -> None:
    """What on_epoch_end draws from a generator of the PyDataset's own is drawn again on resuming."""
    getitem, end, places = STATES[name]
    source = DATA_WITH_STATE.replace("{getitem}", getitem).replace("{end}", end)
    settings = ("epochs=3", "checkpoint=4", "keep=10", "shuffle=off")
    whole = own(source, *settings)
    assert whole.loop.built.own is not None
    whole.loop.built.own.warn(whole.loop.built.options, whole.loop.built.report, None)
    told = [message.partition(": no checkpoint")[0] for kind, message in warned(whole) if kind == "pydataset_state"]
    assert told == places
    if name == "exact":
        whole.train()
        again = resumed(own, source, whole, 8, *settings)
        assert again.losses() == whole.losses()[1:]


def test_a_run_of_the_copy_names_the_modules_that_are_not_from_it_and_the_reason_without_a_copy(
    own: Write, tmp_path: Path
) -> None:
    settings = ("epochs=1", "batch_size=20", "validation_split=0", "run.code=copy")
    source = IMPORTING.replace("import sizes", f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport sizes")
    (tmp_path / "sizes.py").write_text("units = 1\n")
    copy = tmp_path / "run0" / "code"
    copy.mkdir(parents=True)
    (copy / "train.py").write_text(source)
    whole = own(IMPORTING, *settings)
    assert whole.run.path == copy.parent
    assert ("code_live", "not imported from the run's copy of the code: sizes.py") in warned(whole)

    Run(tmp_path / "run1").path.mkdir()
    Run(tmp_path / "run1").file("source.json").write_text('{"left_out": "too many files"}')
    ((kind, message),) = warned(own(IMPORTING, *settings))
    assert kind == "code_not_copied"
    assert message.startswith("too many files; the run trains your files as they are")


def test_an_evaluation_that_was_stopped_is_repeated_also_without_callbacks(own: Write) -> None:
    source, settings = DRAWN / "average.py", (*SHORT, "checkpoint=epoch")
    whole, stopped = own(source, *settings).train(), own(source, *settings)
    loop = stopped.loop
    check = loop._evaluation._check_stop

    def stop_in_epoch_2(of_run: bool) -> None:
        if loop.step == 12:
            loop.built.stop.request("stopped")
        check(of_run)

    loop._evaluation._check_stop = stop_in_epoch_2
    with pytest.raises(StopRequested):
        loop.run(None)
    loop.leave()
    assert set(figures(stopped)) == {1}
    again = resumed(own, source, stopped, 12, *settings)
    assert figures(stopped) | figures(again) == figures(whole)
