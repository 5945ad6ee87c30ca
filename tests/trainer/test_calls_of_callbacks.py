"""Which callbacks of a user are called, when, and with what a resumed training goes on: in a stand-in for the loop."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
import pytest
from gputui.engine.trainer.checkpoint.packed import Arrays
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.fit.called_callbacks import CalledCallbacks, EndDue

from tests.trainer.test_loop_parts import Loop, Noting

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # in Keras


class Counts(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts its calls, and notes them with its name."""

    def __init__(self, name: str, calls: list[Any]) -> None:
        super().__init__()
        self.name, self.calls, self.epochs = name, calls, 0

    def get_state(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def set_state(self, state: dict[str, Any]) -> None:
        self.epochs = state["epochs"]

    def on_train_begin(self, logs: Any = None) -> None:
        self.calls.append((self.name, "train"))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epochs += 1
        self.calls.append((self.name, epoch))


class Other(Counts):
    """Another class."""


def called(*theirs: Any, **more: Any) -> tuple[CalledCallbacks, Any]:
    loop: Any = Loop()
    vars(loop).update(more)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.stop_training = False
    return CalledCallbacks(loop, model, 2, theirs), loop


# ---- those that a model's own fit adds ---------------------------------------------------------


def test_callbacks_that_a_fit_adds_come_after_the_others_and_those_of_its_first_call_go_on() -> None:
    calls: list[Any] = []
    given, first, second = (Counts(name, calls) for name in ("given", "first", "second"))
    other = Other("other", calls)
    callbacks, _ = called(given)
    for handed, expected in (
        ([given, first], ["given", "first"]),
        ([second], ["given", "first"]),
        ([given, second], ["given", "first"]),
        ([other], ["given", "other"]),
        ([], ["given"]),
    ):
        callbacks.add(handed)
        calls.clear()
        callbacks.on_epoch_begin(0)
        assert calls == [(name, 0) for name in expected]
    assert first.params == {"verbose": 0, "epochs": 2, "steps": 3}
    assert first.model is callbacks.model


def test_each_callback_begins_the_training_once() -> None:
    calls: list[Any] = []
    given, handed = Counts("given", calls), Counts("handed", calls)
    callbacks, _ = called(given)
    callbacks.on_train_begin()
    callbacks.add([handed])
    for _ in range(2):
        callbacks.on_train_begin()
    assert calls == [("given", "train"), ("handed", "train")]


@pytest.mark.parametrize("writes", [True, False])
def test_a_state_that_cannot_be_saved_is_refused_at_the_begin_if_checkpoints_are_written(writes: bool) -> None:
    odd = Counts("odd", [])
    odd.epochs = {1}  # type: ignore[assignment]
    callbacks, loop = called(odd, writes_checkpoints=writes)
    refused = pytest.raises(TrainerError, match="get_state of the callback Counts returns a value of type set")
    with refused if writes else contextlib.nullcontext():
        callbacks.on_train_begin()
    assert loop.calls == ([] if writes else ["loop: training_begins"])


# ---- what a checkpoint has of them -------------------------------------------------------------


def test_a_checkpoint_has_what_callbacks_count_and_what_was_still_due() -> None:
    logs = {"loss": 1.5, "vector": np.arange(2.0), "object": object, "nothing": None, "inner": {3: 1.0}}
    for due in ((True, {"loss": 2.0}), (False, None)):
        second = Counts("b", [])
        callbacks, loop = called(Counts("a", []), second)
        loop.end_due = lambda due=due: due
        second.epochs = 5
        callbacks.on_epoch_end(0, logs)
        arrays = Arrays()
        saved = callbacks.state(arrays)
        new = [Counts(name, []) for name in ("a", "b", "more")]
        again, loop = called(*new)
        assert again.resume_from((saved, arrays)) == EndDue(*due)
        assert again.restore() == ["Counts starts again: the checkpoint has no state of it"]
        assert [each.epochs for each in new] == [0, 5, 0]
        loop.step = 6
        noting = Noting([])
        again.add([noting])
        again.on_train_end()
        ((_, given),) = noting.calls
        assert given.pop("vector").tolist() == [0.0, 1.0]
        assert given == {"loss": 1.5, "object": str(object), "nothing": None, "3": 1.0}


def test_without_a_state_in_the_checkpoint_each_callback_starts_again() -> None:
    callbacks, _ = called(Counts("a", []), Other("b", []))
    assert callbacks.resume_from(None) == EndDue(False, None)
    older = "starts again: the checkpoint is of an older gputui"
    assert callbacks.restore() == [f"Counts {older}", f"Other {older}"]


def test_what_callbacks_change_at_the_begin_of_a_resumed_epoch_is_undone_once() -> None:
    counts = Counts("a", [])
    counts.epochs = 4
    arrays = Arrays()
    saved = called(counts)[0].state(arrays)
    counts = Counts("a", [])
    callbacks, loop = called(counts, step=4)
    callbacks.resume_from((saved, arrays))
    callbacks.restore()
    callbacks.on_epoch_begin(1)
    assert counts.epochs == 4, "its fifth epoch was begun before the checkpoint"
    loop.step = 6
    callbacks.on_epoch_end(1, {})
    for _ in range(2):
        callbacks.on_epoch_begin(2)
    assert counts.epochs == 6
    loop.step = 7
    callbacks.on_epoch_begin(2)
    assert counts.epochs == 7, "the states of the checkpoint are those of an earlier epoch"


def _instance() -> Any:
    callback = keras.callbacks.Callback()
    callback.on_epoch_begin = lambda epoch, logs: None
    return callback


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (keras.callbacks.Callback, False),
        (lambda: keras.callbacks.ModelCheckpoint("x.keras"), False),
        (lambda: keras.callbacks.EarlyStopping(), False),
        (lambda: keras.callbacks.LearningRateScheduler(lambda epoch: 0.1), True),
        (lambda: Counts("a", []), True),
        (_instance, True),
    ],
)  # fmt: skip
def test_the_checkpoint_is_restored_again_only_if_a_callback_may_have_changed_the_model(
    make: Any, changes: bool
) -> None:
    plain = keras.callbacks.Callback()
    callbacks, loop = called(plain, make(), plain, step=4)
    callbacks.model.compile("sgd", "mse")
    callbacks.on_epoch_begin(1)
    assert loop.calls[-1] == f"loop: restore_again {changes}"


# ---- calls for batches -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "called_for"),
    [
        ("on_train_batch_begin", "train begin"), ("on_batch_begin", "train begin"),
        ("on_train_batch_end", "train end"), ("on_batch_end", "train end"),
        ("on_test_batch_begin", "test begin"), ("on_test_batch_end", "test end"), ("on_epoch_end", ""),
    ],
)  # fmt: skip
def test_a_callback_is_called_for_batches_by_the_methods_that_it_has(method: str, called_for: str) -> None:
    calls: list[Any] = []
    theirs: Any = type(
        "Theirs", (keras.callbacks.Callback,), {method: lambda self, batch, logs=None: calls.append(batch)}
    )
    callbacks, _ = called(theirs(), keras.callbacks.ModelCheckpoint("x.keras"))
    found = []
    for name in ("train", "test"):
        for end in ("begin", "end"):
            getattr(callbacks, f"on_{name}_batch_{end}")(7, {"loss": 1.0})
            found += [f"{name} {end}"] * len(calls)
            calls.clear()
    assert found == ([called_for] if called_for else [])


def test_a_call_of_a_callback_is_no_hang() -> None:
    """The heartbeat goes on while it runs."""
    beating, inside = [0], list[int]()

    class Heartbeat:
        def __enter__(self) -> None:
            beating[0] += 1

        def __exit__(self, *_: object) -> None:
            beating[0] -= 1

    class Looks(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            inside.append(beating[0])

        on_test_begin = on_train_begin

    callbacks, _ = called(Looks(), heartbeat=Heartbeat())
    callbacks.on_train_begin()
    callbacks.on_test_begin()
    assert (inside, beating) == ([1, 1], [0])
