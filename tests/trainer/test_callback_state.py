"""Callbacks go on in a resumed training as if it had not been interrupted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.checkpoint import callback_state, packed
from gputui.engine.trainer.checkpoint.packed import Arrays
from gputui.engine.trainer.common.stopping import StopRequested
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.own import unsaved_state

from tests.support.cases import all_hold
from tests.support.own import Write
from tests.support.training import Build, Training

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras' own callbacks

PROGRAM = """
import keras, numpy as np

class Counts(keras.callbacks.Callback):
    STOP = []  # a method and its number, in which the training is asked to stop
    def __init__(self):
        super().__init__()
        self.seen = {"begun": 0, "batches": 0, "epochs": 0, "tests": 0, "ends": [], "pair": (0, None),
                     "last": np.zeros(2, "float32")}
    def get_state(self):
        return self.seen
    def set_state(self, state):
        self.seen = state
    def count(self, name):
        self.seen[name] += 1
        if Counts.STOP[:2] == [name, self.seen[name]]:
            Counts.STOP[2]()
    def on_train_batch_begin(self, batch, logs=None):
        self.count("begun")
    def on_train_batch_end(self, batch, logs=None):
        self.count("batches")
    def on_epoch_begin(self, epoch, logs=None):
        self.count("epochs")
    def on_test_batch_begin(self, batch, logs=None):
        if Counts.STOP[:2] == ["test", self.seen["tests"] + 1]:
            Counts.STOP[2]()
    def on_test_end(self, logs=None):
        self.count("tests")
    def on_epoch_end(self, epoch, logs=None):
        self.seen["ends"].append((epoch, logs))
        self.seen["pair"] = (epoch, "text")
        self.seen["last"][epoch % 2] = logs["val_loss"]
        self.model.evaluate(np.zeros((4, 6)), np.zeros(4), verbose=0)
    def on_train_end(self, logs=None):
        self.seen["end"] = logs

def build(context):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(120, 6)).astype("float32")
    y = (x.sum(axis=1) + draw.normal(size=120) * 2).astype("float32")
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.03), "mse")
    callbacks = [
        keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, cooldown=1),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.97),
        keras.callbacks.ModelCheckpoint("best.keras", "val_loss", save_best_only=True),
        keras.callbacks.CSVLogger("log.csv"),
        Counts(),
    ]
    data = {"train": (x[:100], y[:100]), "validation": (x[100:], y[100:])}
    return {"model": model, **data, "callbacks": callbacks}
"""
SETTINGS = ("epochs=30", "batch_size=20", "checkpoint=3", "keep=99")  # 5 steps per epoch


def resumed(own: Write, whole: Training, step: int, *settings: str, source: str = PROGRAM) -> Training:
    """Another training of the program, from a checkpoint of `whole`."""
    again = own(source, *settings)
    name = f"step-{step:010d}"
    shutil.copytree(whole.run.file("checkpoints") / name, again.run.file("checkpoints") / name)
    again.loop.run(step)
    return again


def kept(training: Training) -> list[dict[str, Any]]:
    """What the callbacks have counted, without objects of Keras and what says how a file was opened."""
    own = training.loop.built.own
    assert own is not None
    left_out = ("_model", "_params", "params", "monitor_op", "csv_file", "writer", "append_header", "schedule",
                "min_delta", "_current_epoch")  # fmt: skip
    return [{name: value for name, value in vars(each).items() if name not in left_out} for each in own.callbacks]


def same(again: Training, whole: Training) -> None:
    """Assert that both have ended with the same step, counts of callbacks and weights."""
    assert again.loop.step == whole.loop.step
    np.testing.assert_equal(kept(again), kept(whole))
    pairs = zip(again.loop.built.model.get_weights(), whole.loop.built.model.get_weights(), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)


def test_callbacks_of_keras_and_those_with_a_state_go_on(own: Write) -> None:
    """In the middle of an epoch, at the end of one, and at the end of the training, which a callback had ended."""
    settings = (*SETTINGS, "checkpoint=1")
    whole = own(PROGRAM, *settings).train()
    rows, end = Path("log.csv").read_text(), whole.loop.step
    assert end < 150, "EarlyStopping has ended it"
    for step in (end - 7, end - 10, end):
        again = resumed(own, whole, step, *settings)
        same(again, whole)
        assert Path("log.csv").read_text() == rows
        assert again.events("warning") == []
    assert [event["phase"] for event in again.events("phase")].count("training") == 0


@pytest.mark.slow
def test_they_go_on_over_replicas(own: Write) -> None:
    settings = (*SETTINGS, "strategy.kind=mirrored", "batch_size=10", "epochs=7")
    whole = own(PROGRAM, *settings).train()
    rows = Path("log.csv").read_text()
    same(resumed(own, whole, 27, *settings), whole)
    assert Path("log.csv").read_text() == rows


# In on_epoch_begin, in on_train_batch_begin, and in the middle of an evaluation.
PLACES = (("epochs", 4), ("begun", 18), ("test", 3))


def test_a_stop_at_any_call_is_resumed_to_the_same_end(own: Write) -> None:
    settings = (*SETTINGS, "epochs=5")
    whole = own(PROGRAM, *settings).train()
    rows = Path("log.csv").read_text()
    with all_hold() as cases:
        for place in PLACES:
            with cases.case(place[0]):
                stopped = own(PROGRAM, *settings, "checkpoint=1000")
                built = stopped.loop.built
                assert built.own is not None
                stop = [*place, lambda built=built: setattr(built.stop, "reason", "stopped")]
                vars(type(built.own.callbacks[-1]))["STOP"][:] = stop
                with pytest.raises(StopRequested):
                    stopped.train()
                stopped.loop.leave()
                same(resumed(own, stopped, stopped.loop.step, *settings), whole)
                assert Path("log.csv").read_text() == rows


def test_a_training_that_a_callback_has_ended_within_an_epoch_ends_at_once(own: Write) -> None:
    within = PROGRAM.replace('self.count("batches")', "self.model.stop_training = batch == 3")
    whole = own(within, *SETTINGS, "checkpoint=4").train()
    assert (whole.loop.step, len(whole.events("epoch"))) == (4, 1)
    same(resumed(own, whole, 4, *SETTINGS, source=within), whole)


def test_the_last_step_of_a_shipped_model_is_restored(build: Build) -> None:
    settings = ("model=mlp", "width=0.05", "epochs=2", "steps_per_epoch=3", "batch_size=8", "checkpoint=epoch")
    whole, again = build(*settings).train(), build(*settings)
    shutil.copytree(whole.run.file("checkpoints"), again.run.file("checkpoints"))
    again.loop.run(6)
    pairs = zip(again.loop.built.model.get_weights(), whole.loop.built.model.get_weights(), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)


# Its step writes a variable that only its graph shows, so that it is restored after it was traced.
LATE = """
import tensorflow as tf
CALLS = tf.Variable(0.0, trainable=False)
class Late(keras.Sequential):
    def train_step(self, data):
        CALLS.assign_add(1.0)
        return super().train_step((data[0] + 0.01 * CALLS, data[1]))
"""
# The model's own fit adds callbacks, and is called twice if an epoch is resumed.
HANDED = """
class Handed(Counts):
    def on_train_end(self, logs=None):
        with open("log.csv", "a") as file:
            print(self.seen, file=file)
class Hands(keras.Sequential):
    def fit(self, x, callbacks=None, **more):
        return super().fit(x, callbacks=[*callbacks, Handed()], **more)
"""
STOPS = "keras.callbacks.EarlyStopping("
PROGRAMS = {
    "late": PROGRAM.replace("keras.Sequential([", "Late([").replace("\ndef build", f"{LATE}\ndef build"),
    "handed": PROGRAM.replace("keras.Sequential([", "Hands([").replace("\ndef build", f"{HANDED}\ndef build"),
    # The weights are the moving average from the evaluation to the next epoch.
    "swaps": PROGRAM.replace("Adam(0.03)", "Adam(0.03, use_ema=True)").replace(
        STOPS, f"keras.callbacks.SwapEMAWeights(swap_on_epoch=True), {STOPS}"
    ),
}


@pytest.mark.parametrize(("name", "step"), [("late", 15), ("handed", 12), ("swaps", 15)])
def test_models_with_code_of_their_own_go_on(name: str, step: int, own: Write) -> None:
    settings = (*SETTINGS, "epochs=5")
    whole = own(PROGRAMS[name], *settings).train()
    rows = Path("log.csv").read_text()
    same(resumed(own, whole, step, *settings, source=PROGRAMS[name]), whole)
    assert Path("log.csv").read_text() == rows


# ---- states that are given ------------------------------------------------------------------------


class Gives(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: dict[str, Any]) -> None:
        self.state = state


UNSAVED = {
    "set": ({"pair": [1, {2}]}, r"get_state of the callback Gives returns a value of type set in state\['pair'\]\[1\]"),
    "key": ({"pair": {1: 2}}, r"returns the key 1 in state\['pair'\]"),
    "objects": ({"last": np.array([None])}, r"returns an array of object in state\['last'\]"),
    "whole": ([1], "returns list, not a dict"),
}


@pytest.mark.parametrize("name", UNSAVED)
def test_a_state_that_cannot_be_saved_is_refused(name: str) -> None:
    state, message = UNSAVED[name]
    with pytest.raises(TrainerError, match=message):
        callback_state.state_of([Gives(state)], Arrays())


def test_it_is_refused_before_the_first_step(own: Write) -> None:
    training = own(PROGRAM.replace("return self.seen", "return {1}"), *SETTINGS)
    with pytest.raises(TrainerError, match="get_state of the callback Counts returns set, not a dict"):
        training.train()
    assert training.loop.step == 0
    with pytest.raises(TrainerError, match="the callback Counts has get_state, but no set_state"):
        own(PROGRAM.replace("set_state", "put_state"), *SETTINGS)


def test_a_state_comes_back_as_it_was_given() -> None:
    brain = np.array([[1.5, -2.0]], tf.bfloat16.as_numpy_dtype)
    state = {"none": None, "pair": (1, [2.5, float("inf")]), "number": np.float32(0.1), "flags": np.array([True]),
             "words": np.array(["a", "bc"]), "same": [np.arange(3), np.arange(3)], "empty": np.zeros((0, 2)),
             "brain": brain, "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3))}  # fmt: skip
    arrays = Arrays()
    file = b"".join(packed.pieces(callback_state.state_of([Gives(state)], arrays), arrays))
    (states,), read = packed.read(file)
    restored = Gives({})
    assert callback_state.restore([restored], [states], read) == []
    np.testing.assert_equal(restored.state, state)
    assert (type(restored.state["number"]), restored.state["brain"].dtype) == (np.float32, brain.dtype)
    assert len(read.by_digest) == len(arrays.by_digest) == 7, "the equal arrays are there once"
    restored.state["same"][0][0] = 9
    assert restored.state["same"][1][0] == 0


def test_what_a_checkpoint_lacks_or_does_not_find_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    log, best = keras.callbacks.CSVLogger(str(path)), keras.callbacks.ModelCheckpoint("no.keras", save_best_only=True)
    log.on_train_begin()
    log.on_epoch_end(0, {"loss": 1.0})
    best.best = 0.5
    arrays = Arrays()
    states = callback_state.state_of([log, best], arrays)
    log.on_epoch_end(1, {"loss": 2.0})
    log.on_train_end()

    def again(*more: Any) -> tuple[list[str], str]:
        new = [keras.callbacks.CSVLogger(str(path)), keras.callbacks.ModelCheckpoint("no.keras", save_best_only=True)]
        for callback in new:
            callback_state.begin_training(callback, {}, resumed=True)
        texts = callback_state.restore([*new, *more], states, arrays)
        new[0].on_epoch_end(1, {"loss": 3.0})
        new[0].on_train_end()
        return texts, path.read_text()

    missing = "no.keras, in which ModelCheckpoint has saved the best model, is missing"
    assert again() == ([missing], "epoch,loss,val_loss\n0,1.0,NA\n1,3.0,NA\n")
    path.write_text("another run\n")
    changed = f"{path} has changed since the checkpoint: rows are appended to it"
    starts = "Gives starts again: the checkpoint has no state of it"
    assert again(Gives({})) == ([changed, missing, starts], "another run\n1,3.0,NA\n")
    path.unlink()
    states = callback_state.state_of([log, best], arrays)  # of a file that is missing for a while
    path.write_text("another run\n")
    assert again()[0] == [changed, missing]


def test_each_of_several_callbacks_of_a_class_gets_its_own_state_back() -> None:
    first, second, other = Gives({"n": 1}), Gives({"n": 2}), keras.callbacks.EarlyStopping(patience=9)
    other.wait = 5
    arrays = Arrays()
    states = callback_state.state_of([first, other, second], arrays)
    new: list[Any] = [keras.callbacks.EarlyStopping(), Gives({}), Gives({}), Gives({"kept": True})]
    assert callback_state.restore(new, states, arrays) == ["Gives starts again: the checkpoint has no state of it"]
    assert [each.state for each in new[1:]] == [{"n": 1}, {"n": 2}, {"kept": True}]
    assert (new[0].wait, new[0].patience) == (5, 0), "what it counts, and not what it was made with"
    without: Any = type("Gives", (keras.callbacks.Callback,), {})()
    assert callback_state.restore([without], states, arrays) == [], "its methods were removed since"


# All that these classes count; a class of the user's that extends one counts the same.
COUNTS: dict[str, Any] = {
    "EarlyStopping": ("wait", "stopped_epoch", "best", "best_epoch", "best_weights"),
    "ReduceLROnPlateau": ("wait", "cooldown_counter", "best"),
    "ModelCheckpoint": ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    "SwapEMAWeights": ("_ema_weights_in_model",),
    "History": ("epoch", "history"),
    "TensorBoard": ("_global_train_batch", "_global_test_batch"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_what_a_callback_of_keras_counts_goes_on(name: str) -> None:
    kind = getattr(keras.callbacks, name)
    given: Any = {"ModelCheckpoint": ["x.keras"], "SwapEMAWeights": [True]}.get(name, [])
    own: Any = type("Theirs", (kind,), {})
    theirs, new = own(*given), own(*given)
    values = {attribute: [number, 2.5] for number, attribute in enumerate(COUNTS[name])}
    vars(theirs).update(values, _their_own=3)
    arrays = Arrays()
    states = json.loads(json.dumps(callback_state.state_of([theirs], arrays)))
    callback_state.restore([new], states, arrays)
    assert {attribute: getattr(new, attribute) for attribute in values} == values
    assert not hasattr(new, "_their_own")


def test_a_best_model_is_missed_only_if_one_was_saved_in_a_file_of_its_own(tmp_path: Path) -> None:
    there = tmp_path / "there.keras"
    there.touch()

    def texts(path: str, best: float | None = 0.5, best_only: bool = True) -> list[str]:
        arrays = Arrays()
        saving = keras.callbacks.ModelCheckpoint(path, save_best_only=best_only)
        saving.best = best
        return callback_state.restore([saving], callback_state.state_of([saving], arrays), arrays)

    gone = str(tmp_path / "gone.keras")
    assert texts(gone) == [f"{gone}, in which ModelCheckpoint has saved the best model, is missing"]
    assert texts(str(there)) == texts(gone, best=None) == texts(gone, best_only=False) == []
    assert texts("gs://bucket/best.keras") == texts("best-{epoch}.keras") == []


def test_a_log_goes_on_with_its_columns_and_has_one_header(tmp_path: Path) -> None:
    """Also if the checkpoint was written before its first row, or if the log has none in the checkpoint."""
    path = tmp_path / "log.csv"

    def logger(append: bool = False) -> Any:
        return keras.callbacks.CSVLogger(str(path), append=append)

    def goes_on(log: Any, states: Any, resumed: bool = True) -> tuple[list[str], str]:
        given = log.append
        callback_state.begin_training(log, {}, resumed)
        assert log.append is given
        texts = callback_state.restore([log], states, Arrays()) if resumed else []
        log.on_epoch_end(1, {"acc": 3.0, "val_loss": 2.0})
        log.on_train_end()
        return texts, path.read_text()

    early = logger()
    early.on_train_begin()
    before = callback_state.state_of([early], Arrays())
    early.on_epoch_end(0, {"val_loss": 1.0})
    early.on_train_end()
    assert goes_on(logger(), before) == ([], "epoch,acc,val_loss\n1,3.0,2.0\n")
    appends = logger(append=True)
    appends.on_train_begin()  # to the rows of an earlier training, and no row of its own yet
    before = callback_state.state_of([appends], Arrays())
    appends.on_train_end()
    earlier = path.read_text()
    assert goes_on(logger(append=True), before) == ([], f"{earlier}1,3.0,2.0\n")
    path.write_text("epoch,val_loss\n0,1.0\n")
    whole = logger(append=True)
    whole.on_train_begin()
    whole.on_epoch_end(0, {"val_loss": 1.0})
    states = callback_state.state_of([whole], Arrays())
    rows = path.read_text()
    assert rows == "epoch,val_loss\n0,1.0\n0,1.0\n"
    for append in (False, True):
        whole.on_epoch_end(1, {"val_loss": 8.0})
        whole.csv_file.flush()
        assert goes_on(logger(append), states) == ([], f"{rows}1,2.0\n")
    path.write_text(rows.replace("1.0", "7.0"))  # as long, but another one
    changed = f"{path} has changed since the checkpoint: rows are appended to it"
    assert goes_on(logger(), states) == ([changed], rows.replace("1.0", "7.0") + "1,2.0\n")
    path.unlink()
    assert goes_on(logger(), states) == ([changed], "epoch,val_loss\n1,2.0\n")
    starts = "CSVLogger starts again: the checkpoint has no state of it"
    assert goes_on(logger(append=True), []) == ([starts], "epoch,val_loss\n1,2.0\n1,3.0,2.0\n")
    assert goes_on(logger(), []) == ([starts], "epoch,acc,val_loss\n1,3.0,2.0\n")
    assert goes_on(logger(), None, resumed=False) == ([], "epoch,acc,val_loss\n1,3.0,2.0\n")
    whole.on_train_end()
    elsewhere = keras.callbacks.CSVLogger("log.csv")
    elsewhere.filename = "gs://bucket/log.csv"
    (text,) = callback_state.restore([elsewhere], states, Arrays())
    assert text == "gs://bucket/log.csv is not a local file: rows of epochs that are trained again are in it twice"


def test_a_callback_needs_both_methods_for_its_state() -> None:
    class Sets(keras.callbacks.Callback):  # type: ignore[misc]
        def set_state(self, state: Any) -> None: ...

    plain = keras.callbacks.Callback()
    callback_state.require_pair([plain, Gives({})])
    with pytest.raises(TrainerError) as raised:
        callback_state.require_pair([plain, Gives({}), Sets()])
    fault = raised.value
    told = ("user_code", "the callback Sets has set_state, but no get_state", "give it get_state too")
    assert (fault.kind, fault.message, fault.hint) == told
    assert [callback_state.gives_state(each) for each in (plain, Sets(), Gives({}))] == [False, False, True]


def test_values_of_every_type_are_kept_apart() -> None:
    """Arrays with the same bytes but another type or shape are others, and a number of NumPy is no array."""
    values: list[Any] = [
        np.zeros(4, "float32"), np.zeros((2, 2), "float32"), np.zeros(4, "int32"), np.array(1.5), np.float64(1.5),
        np.array(["2026-01-02"], "datetime64[D]"), np.array([3 + 4j]), np.array([b"ab", b"c"]), np.bool_(True),
        np.array([5], ">i4"), np.array([1.5], tf.dtypes.experimental.float8_e5m2.as_numpy_dtype), (), [], {}, "", 0,
    ]  # fmt: skip
    arrays = Arrays()
    workers = [arrays.pack({"all": values}), arrays.pack(None)]
    (first, second), read = packed.read(b"".join(packed.pieces(workers, arrays)))
    got = read.unpack(first)["all"]
    assert read.unpack(second) is None
    assert len(got) == len(values)
    for ours, given in zip(got, values, strict=True):
        assert type(ours) is type(given)
        if isinstance(given, np.ndarray | np.generic):
            assert (ours.dtype, ours.shape) == (given.dtype, given.shape)
        assert np.array_equal(ours, given)
    for odd, message in (
        ({"a": ({"b": [set()]},)}, "a value of type set in state['a'][0]['b'][0]"),
        ({"a": np.zeros(1, [("x", "f4")])}, "an array of [('x', '<f4')] in state['a']"),
        ({"a": ([True, {None: 1}],)}, "the key None in state['a'][0][1]"),
    ):
        with pytest.raises(packed.NotPackable) as raised:
            arrays.pack(odd, "state")
        assert str(raised.value) == message
    with pytest.raises(packed.NotPackable, match=r"^a value of type set$"):
        arrays.pack(set())


class Counting(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_begin(self, logs: Any = None) -> None:
        self.seen: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = epoch == 3
        self.seen.append(epoch)


def test_methods_that_keep_something_are_named() -> None:
    (text,) = unsaved_state.of_callbacks([Counting(), Counting(), Gives({}), keras.callbacks.EarlyStopping()])
    assert text.startswith("Counting.on_epoch_end changes self.seen (test_callback_state.py:")
