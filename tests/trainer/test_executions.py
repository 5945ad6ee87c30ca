"""Executions of a step's graph, parts of a batch, and when a checkpoint is restored around them, by small steps."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.fit import micro_batches, train_function
from gputui.engine.trainer.fit.called_callbacks import CalledCallbacks, EndDue
from gputui.engine.trainer.fit.restoring import Restoring
from gputui.engine.trainer.fit.train_function import Executions
from keras import layers

from tests.support.training import options
from tests.trainer.test_loop_parts import called

# ---- executions --------------------------------------------------------------------------------


class Graph:
    """Stands for the graph of the steps. Notes the number of steps of each call."""

    def __init__(self, name: str, calls: list[Any]) -> None:
        self.name, self.calls = name, calls

    def __call__(self, iterator: Any, count: Any) -> tuple[dict[str, Any], int]:
        assert "CPU:0" in count.device
        self.calls.append((self.name, iterator, int(count)))
        return {"last": len(self.calls)}, 8

    def get_concrete_function(self, iterator: Any, count: Any) -> str:
        return f"{self.name} traced for {int(count)} with {iterator}"

    def experimental_get_tracing_count(self) -> int:
        return 3 if self.name == "plain" else 5


class Parts:
    """Stands for the times of the steps; on a GPU `samples` is True."""

    clock = "the clock"

    def __init__(self, calls: list[Any], samples: bool) -> None:
        self.calls, self.samples, self.sample_is_due = calls, samples, False

    def begins(self) -> None:
        self.calls.append("begins")

    def after(self, count: int, logs: Any, samples: Any) -> None:
        self.calls.append(("after", count, logs, samples))


@pytest.fixture
def executions(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(samples: bool = False, **more: Any) -> tuple[Executions, Any, list[Any]]:
        calls: list[Any] = []

        def training(model: Any, clocks: Any, scale: Any, parts: int) -> list[Graph]:
            assert (model, clocks[-1], scale, parts) == ("model", "the clock", 0.5, 2)
            return [Graph(name, calls) for name in ("plain", "clocked")[-len(clocks) :]]

        monkeypatch.setattr(train_function, "training", training)
        parts: Any = Parts(calls, samples)
        model: Any = "model"
        known: Any = {"device_scale": 0.5, "batches_per_pass": 5, "replicas": 1, "smaller_last_batch": True}
        return Executions(model, SimpleNamespace(**(known | more)), parts, 2), parts, calls

    return make


def test_replicas_execute_a_smaller_last_batch_by_itself(executions: Any) -> None:
    for more, counts in (
        ({"replicas": 2}, [1, 1, 4, 1, 1]),
        ({}, [8]),
        ({"replicas": 2, "smaller_last_batch": False}, [8]),
    ):
        made, _, calls = executions(**more)
        logs = made.run("iterator", 3, 8)
        expected: list[Any] = []
        for number, count in enumerate(counts):
            expected += ["begins", ("clocked", "iterator", count), ("after", count, {"last": 3 * number + 2}, 8)]
        assert calls == expected
        assert logs == expected[-1][2]


def test_with_samples_only_some_executions_have_the_clock(executions: Any) -> None:
    made, parts, calls = executions(samples=True)
    assert made.traces() == 3
    assert made.trace("iterator", 4) == "plain traced for 4 with iterator"
    found = []
    for due in (False, True, True):
        parts.sample_is_due = due
        found.append(made.clock_is_due)
        (made.run_clock_first if made.clock_is_due else made.run)("iterator", 0, 1)
    assert found == [False, True, False]
    assert [call[0] for call in calls if len(call) == 3 and call[0] != "after"] == ["plain", "clocked", "clocked"]
    calls.clear()
    parts.sample_is_due = False
    made.run("iterator", 0, 1)
    made.always_with_clock()
    parts.sample_is_due = True
    assert not made.clock_is_due
    parts.sample_is_due = False
    made.run("iterator", 0, 1)
    assert [call[0] for call in calls if call[0] in ("plain", "clocked")] == ["plain", "clocked"]
    assert made.traces() == 5, "of the graph that is used"


class Returns(keras.Model):  # type: ignore[misc]
    """Its step returns these values."""

    def __init__(self, values: Any) -> None:
        super().__init__()
        self.values = values
        self.compile(steps_per_execution=1)

    def train_step(self, data: Any) -> Any:
        return self.values(data)

    test_step = train_step


def test_the_figures_of_a_step_are_its_numbers_as_floats_and_one_without_any_is_refused() -> None:
    values = {
        "count": 3,
        "flag": True,
        "inner": {"half": tf.constant(0.5, tf.float16)},
        "text": "x",
        "object": object(),
    }
    step = train_function.testing_one(Returns(lambda _: values), 1)
    logs = step(tf.zeros(2))
    assert {name: (float(value), value.dtype) for name, value in logs.items()} == {
        "count": (3.0, tf.float32), "flag": (1.0, tf.float32), "half": (0.5, tf.float32),
    }  # fmt: skip
    for nothing in ({"text": "x"}, {}, None, 3.0):
        with pytest.raises(TrainerError) as raised:
            train_function.testing_one(Returns(lambda _, nothing=nothing: nothing), 1)(tf.zeros(2))
        assert (raised.value.kind, raised.value.message, raised.value.hint) == (
            "user_code", "the train_step or test_step of Returns returns no figures",
            "return a dict of metrics, such as {'loss': loss}",
        )  # fmt: skip


# ---- parts of a batch --------------------------------------------------------------------------


class Sizes(keras.Model):  # type: ignore[misc]
    """Notes the samples of each part that it tests."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = tf.Variable(tf.zeros((9,), tf.int32), trainable=False)
        self.calls = tf.Variable(0, trainable=False)

    def test_step(self, data: Any) -> Any:
        at = self.calls.assign_add(1) - 1
        self.seen.scatter_nd_update([[at]], [tf.shape(data)[0]])
        return {"sum": tf.reduce_sum(data)}


@pytest.mark.parametrize(
    ("rows", "parts", "sizes"),
    [(10, 4, [3, 3, 3, 1]), (9, 4, [3, 3, 3]), (3, 4, [1, 1, 1]), (8, 2, [4, 4]), (5, 1, [5])],
)
def test_all_parts_but_the_last_have_the_same_size(rows: int, parts: int, sizes: list[int]) -> None:
    for known in (True, False):
        model = Sizes()
        model.compile("sgd", "mse")
        step = micro_batches.split_testing(model, parts, lambda data: data * 2.0)
        shape = (rows, 1) if known else (None, 1)
        logs = tf.function(step, input_signature=[tf.TensorSpec(shape, tf.float32)])(tf.ones((rows, 1)))
        assert model.seen.numpy().tolist()[: int(model.calls)] == sizes
        assert {name: float(value) for name, value in logs.items()} == {"sum": 2.0 * sizes[-1]}, "of the last part"


def test_parts_are_tested_without_dropout_and_those_that_xla_compiles_are_traced_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = keras.Sequential([keras.Input((4,)), layers.Dropout(0.9), layers.Dense(1)])
    made.compile("sgd", "mse")
    batch = tf.ones((6, 4)), tf.ones((6, 1))
    expected = float(made.test_step(batch)["loss"])
    made.optimizer.build(made.trainable_variables)
    function, asked = tf.function, list[Any]()

    def noted(body: Any, **more: Any) -> Any:
        asked.append(more.pop("jit_compile", None))
        return function(body, **more)

    monkeypatch.setattr(tf, "function", noted)
    for compiled, compiles in ((False, None), (True, True)):
        made.reset_metrics()
        tested = micro_batches.split_testing(made, 3, compiled=compiled)(batch)
        assert float(tested["loss"]) == pytest.approx(expected)
        assert asked == [compiles]
        asked.clear()
        micro_batches.split_training(made, 3, compiled=compiled)(batch)
        assert asked == ([True] * 2 if compiled else [None]), "the parts, and the work after them"
        asked.clear()
        made.set_weights([0.0 * weight for weight in made.get_weights()])
        expected = 1.0


def test_losses_that_count_by_masks_and_weights_are_those_of_the_whole_batch() -> None:
    draw = np.random.default_rng(0)
    words, tags = draw.integers(0, 4, (7, 5)), draw.integers(0, 3, (7, 5))
    weights = draw.uniform(0, 3, (7, 5)).astype("float32")

    def model() -> keras.Model:
        keras.utils.set_random_seed(3)
        made = keras.Sequential([keras.Input((5,)), layers.Embedding(4, 2, mask_zero=True), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
        made.compile(keras.optimizers.SGD(0.5), loss)
        made.optimizer.build(made.trainable_variables)
        return made

    whole, parts = model(), model()
    batch = tf.constant(words), tf.constant(tags), tf.constant(weights)
    expected = float(whole.train_step(batch)["loss"])
    found = micro_batches.split_training(parts, 3)(batch)
    assert float(found["loss"]) == pytest.approx(expected, rel=1e-5)
    for ours, theirs in zip(parts.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def dense(*losses: Any, weights: Any = None) -> keras.Model:
    inputs = keras.Input((2,))
    made = keras.Model(inputs, [layers.Dense(1)(inputs) for _ in losses])
    made.compile("sgd", list(losses))
    made.compute_metrics(tf.zeros((1, 2)), [tf.zeros((1, 1))] * len(losses), [tf.zeros((1, 1))] * len(losses), weights)
    made._compile_loss.build([keras.KerasTensor((1, 1))] * len(losses), [keras.KerasTensor((1, 1))] * len(losses))
    return made


def mse(reduction: str | None) -> keras.losses.Loss:
    return keras.losses.MeanSquaredError(reduction=reduction)


class Steps(keras.Sequential):  # type: ignore[misc]
    def train_step(self, data: Any) -> Any: ...


def _with_a_step() -> keras.Model:
    made = dense(mse("mean"))
    made.train_step = lambda data: None
    return made


def _compiled() -> keras.Model:
    made = dense(mse("mean"))
    made.jit_compile = True
    return made


def _recurrent(batch: int | None, stateful: bool) -> keras.Model:
    layers = [keras.layers.LSTM(4, stateful=stateful), keras.layers.Dense(1)]
    made = keras.Sequential([keras.Input(batch_shape=(batch, 5, 3)), *layers] if batch else layers)
    made.compile(loss="mse")
    return made


@pytest.mark.parametrize(
    ("make", "replicas", "reason"),
    [
        (lambda: dense(mse("sum_over_batch_size")), 2, ""),
        (lambda: dense(mse("mean"), mse("sum_over_batch_size")), 1, ""),
        (lambda: dense(mse("sum")), 1, ""),
        (lambda: dense(mse("mean_with_sample_weight")), 1, ""),
        (keras.Sequential, 1, ""),
        (Steps, 1, "Steps has a train_step of its own, which applies its gradients itself"),
        (_with_a_step, 1, "Functional has a train_step of its own, which applies its gradients itself"),
        (_compiled, 1, ""),
        (_compiled, 2, "XLA compiles it for whole batches only over several replicas (compile.xla)"),
        (lambda: dense(mse("sum"), mse("mean")), 1, "its losses have several reductions (mean, sum)"),
        (lambda: dense(mse("none")), 1, "its loss has no reduction, so that it is not a single number"),
        (lambda: _recurrent(None, stateful=False), 1, ""),
        (lambda: _recurrent(8, stateful=False), 1, "its inputs have a fixed batch size"),
        (lambda: _recurrent(None, stateful=True), 1,
         "it has stateful layers, which keep a state for each sample of a whole batch"),
        (lambda: dense(mse("mean_with_sample_weight"), mse("mean_with_sample_weight")), 1,
         "its losses are means by sample weights that differ from output to output"),
    ],
)  # fmt: skip
def test_a_model_whose_batches_cannot_be_computed_in_parts_says_why(make: Any, replicas: int, reason: str) -> None:
    model = make()
    assert micro_batches.obstacle_to_parts(model, replicas) == reason
    asked = {
        ("micro_batches=2",): "train.micro_batches=2", ("on_oom=accumulate",): "run.on_oom=accumulate",
        ("micro_batches=3", "on_oom=accumulate"): "train.micro_batches=3 and run.on_oom=accumulate",
    }  # fmt: skip
    micro_batches.require_divisible(options("on_oom=halve"), model, replicas)
    for settings, named in asked.items():
        if not reason:
            micro_batches.require_divisible(options(*settings), model, replicas)
            continue
        with pytest.raises(TrainerError) as raised:
            micro_batches.require_divisible(options(*settings), model, replicas)
        assert (raised.value.kind, raised.value.message, raised.value.hint) == (
            "micro_batches", f"{named} cannot be used: {reason}",
            "set train.micro_batches=1, and run.on_oom to stop or halve",
        )  # fmt: skip


# ---- restoring a checkpoint --------------------------------------------------------------------


class Restored:
    """A training of a user's, whose checkpoint fits its model when `fits` says so."""

    def __init__(self, own: bool = True, joined: Any = None, anew: str = "") -> None:
        self.calls: list[Any] = []
        self.fits = False
        state = SimpleNamespace(
            begins_anew=anew, saw=lambda graph, ours: self.calls.append(("saw", graph, ours)),
            as_traced=contextlib.nullcontext,
        )  # fmt: skip
        self.checkpoints = SimpleNamespace(
            callbacks_at=lambda step: None, fits=lambda step: self.fits, state=state,
            restore=self.restore, read_traced=lambda step: None,
        )  # fmt: skip
        self.own = SimpleNamespace(warn_of_draws=lambda graph, _: self.calls.append(("draws", graph))) if own else None
        self.report = SimpleNamespace(warn=lambda *words: self.calls.append(words))
        self.model = SimpleNamespace(reset_metrics=lambda: self.calls.append("reset"))
        self.joined = joined

    def restore(self, step: int) -> list[str]:
        self.calls.append(("restore", step))
        return []

    def restoring(self) -> Restoring:
        health: Any = SimpleNamespace(begin=lambda step: self.calls.append(("health", step)), note_start=lambda: None)
        built: Any = self
        return Restoring(built, health, ["ours"], 3)


def test_a_users_checkpoint_is_restored_when_the_first_step_was_traced() -> None:
    """Of one that does not fit before it. The variables that the step writes are then known."""
    training, traced = Restored(), SimpleNamespace(graph="graph")
    callbacks, _, _ = called()
    restoring = training.restoring()
    assert restoring.begin(7, callbacks) == EndDue()
    callbacks.restore = lambda: ["A starts again", "B starts again"]  # type: ignore[method-assign]
    callbacks.call_held = lambda: training.calls.append("held")  # type: ignore[method-assign]
    restoring.epoch_begins()
    assert (restoring.is_due, training.calls) == (True, [])
    restoring.first_step_comes(lambda: traced)
    warned = ("callbacks_not_restored", "A starts again; B starts again")
    saw = ("saw", "graph", ["ours"])
    assert training.calls == [saw, ("restore", 7), ("health", 7), warned, "held"]
    assert not restoring.is_due
    training.calls.clear()
    restoring.first_step_comes(lambda: traced)
    restoring.first_step_ran(lambda: traced)
    assert training.calls == [saw, ("draws", "graph")]
    training.calls.clear()
    for _ in range(2):
        restoring.first_test_ran(lambda: SimpleNamespace(graph="test"))
    restoring.once_more(9)
    assert training.calls == [("draws", "test"), ("restore", 9)]


def test_of_gputuis_own_models_and_trainings_that_begin_nothing_is_searched() -> None:
    def fail() -> Any:
        pytest.fail("it is traced")

    plain = Restored(own=False, anew="it begins anew")
    callbacks, _, _ = called()
    callbacks.restore = lambda: []  # type: ignore[method-assign]
    restoring = plain.restoring()
    assert restoring.begin(6, callbacks) == EndDue()
    plain.fits = True
    restoring.without_a_step(fail)
    restoring.first_step_ran(fail)
    restoring.first_test_ran(fail)
    assert plain.calls == [("restore", 6), ("begins_anew", "it begins anew"), ("health", 6), "reset"]
    new = Restored()
    restoring = new.restoring()
    assert restoring.begin(None, callbacks) == EndDue()
    assert not restoring.is_due
    traced = SimpleNamespace(graph="graph")
    restoring.epoch_begins()
    restoring.first_step_comes(lambda: traced)
    restoring.first_step_ran(lambda: traced)
    restoring.first_test_ran(lambda: traced)
    assert new.calls == [("saw", "graph", ["ours"])], "draws are warned of only in a resumed training"


@pytest.mark.parametrize(("others", "ended"), [([0.0], False), ([1.0], True)])
def test_if_the_training_of_one_worker_had_ended_that_of_all_has(others: list[float], ended: bool) -> None:
    sent: list[Any] = []

    def rows(mine: list[float]) -> Any:
        sent.append(mine)
        return np.array([others, mine], float)

    training = Restored(joined=SimpleNamespace(exchange=SimpleNamespace(rows=rows)))
    callbacks, _, _ = called()
    assert isinstance(callbacks, CalledCallbacks)
    due = EndDue(False, {"loss": 1.0})
    callbacks.resume_from = lambda saved: due  # type: ignore[method-assign]
    assert training.restoring().begin(4, callbacks) == EndDue(ended, {"loss": 1.0})
    assert sent == [[False]]
