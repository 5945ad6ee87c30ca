"""How fit is called and gets its batches, and how a model is saved in the end: with stand-ins for devices and disks."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import pytest
import tensorflow as tf
from gputui.engine.runs import Run
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.fit import built_training, model_fit
from gputui.engine.trainer.fit.model_fit import FitData, ModelFit, more_to_come
from gputui.engine.trainer.setup import models
from gputui.engine.trainer.setup.devices import Devices

from tests.support.training import options

GPUS = Devices("GPU", ("/device:GPU:0", "/device:GPU:1"))
ON_CPU = Devices("CPU", ("/device:CPU:0",))


# ---- batches on their devices ------------------------------------------------------------------


class Distributed:
    """A strategy that notes how it is to prefetch."""

    extended = SimpleNamespace(worker_devices=("/device:GPU:0", "/device:GPU:1"))

    def __init__(self) -> None:
        self.ahead: list[tuple[bool, int]] = []

    def distribute_datasets_from_function(self, made: Callable[[Any], Any], how: Any) -> Any:
        self.ahead.append((how.experimental_fetch_to_device, how.experimental_per_replica_buffer_size))
        return made(None)


def of_fit(devices: Devices, *settings: str) -> tuple[FitData, Distributed]:
    strategy: Any = Distributed()
    return FitData(options("prefetch_to_device=3", *settings), strategy, devices), strategy


NUMBERS = ("strategy.kind=mirrored",)


@pytest.mark.parametrize(
    ("devices", "settings", "ahead"),
    [
        (GPUS, NUMBERS, [(True, 3), (True, 1)]),
        (GPUS, (*NUMBERS, "prefetch_to_device=off"), [(False, 0), (False, 0)]),
        (ON_CPU, NUMBERS, [(True, 1), (True, 1)]),
        (ON_CPU, (*NUMBERS, "prefetch=off"), [(False, 0), (False, 0)]),
    ],
)
def test_replicas_prefetch_batches_to_their_gpus_and_one_for_an_evaluation(
    devices: Devices, settings: tuple[str, ...], ahead: list[tuple[bool, int]]
) -> None:
    data, strategy = of_fit(devices, *settings)
    batches = tf.data.Dataset.range(4)
    training = data.training(batches)
    assert [int(n) for n in training.take(3)] == [0, 1, 2]
    assert data.spec == batches.element_spec
    iterator = data.pipeline_iterator("of fit")
    assert int(next(iterator)) == 3, "that of the pipeline, which fit's iterator is behind"
    assert [int(n) for n in data.validation(batches)] == [0, 1, 2, 3]
    assert strategy.ahead == ahead
    assert list(data.gpus) == (list(Distributed.extended.worker_devices) if devices is GPUS else [])


def test_one_gpu_gets_its_batches_ahead_and_a_cpu_gets_them_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def prefetched(device: str, batches: Any, count: int) -> Any:
        asked.append((device, count))
        return batches

    monkeypatch.setattr(model_fit, "prefetched_to", prefetched)
    batches, words = tf.data.Dataset.range(4), tf.data.Dataset.from_tensors("a")
    data, _ = of_fit(GPUS)
    data.training(batches)
    data.validation(batches)
    assert asked == [("/device:GPU:0", 3), ("/device:GPU:0", 1)]
    assert data.pipeline_iterator("of fit") != "of fit"
    assert list(data.gpus) == ["/device:GPU:0"]
    for devices, given in ((GPUS, words), (ON_CPU, batches)):
        data, strategy = of_fit(devices)
        assert data.training(given) is given
        assert data.validation(given) is given
        assert data.pipeline_iterator("of fit") == "of fit"
        assert strategy.ahead == []
    assert len(asked) == 2, "text stays on the host"


@pytest.mark.parametrize("kind", ["mirrored", "multi_worker"])
def test_several_machines_do_not_ask_each_other_whether_there_is_a_batch_to_evaluate(kind: str) -> None:
    data, _ = of_fit(ON_CPU, f"strategy.kind={kind}")
    batches = tf.data.Dataset.range(4).filter(lambda n: n > 0)
    known = int(data.validation(batches).cardinality())
    assert known == (tf.data.INFINITE_CARDINALITY if kind == "multi_worker" else tf.data.UNKNOWN_CARDINALITY)


# ---- a fit of the model's own ------------------------------------------------------------------


class Fitted:
    """What Keras' fit gets, in place of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, dict[str, Any]]] = []

    def fit(self, of: Any, *, x: Any = None, validation_data: Any = None, **more: Any) -> None:
        self.calls.append((of, {"x": x, "validation_data": validation_data, **more}))


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> Fitted:
    fitted = Fitted()

    def fit(
        self: Any, x: Any = None, y: Any = None, epochs: int = 1, callbacks: Any = None, validation_data: Any = None,
        shuffle: bool = True, initial_epoch: int = 0, steps_per_epoch: Any = None, validation_steps: Any = None,
        validation_freq: Any = 1, verbose: Any = "auto",
    ) -> None:  # fmt: skip
        fitted.fit(
            self, x=x, epochs=epochs, callbacks=callbacks, validation_data=validation_data, shuffle=shuffle,
            steps_per_epoch=steps_per_epoch, validation_freq=validation_freq, validation_steps=validation_steps,
        )  # fmt: skip

    monkeypatch.setattr(keras.Model, "fit", fit)
    return fitted


class Mine(keras.Sequential):  # type: ignore[misc]
    def fit(self, dataset: Any, callbacks: Any, validation_data: Any = None, **more: Any) -> None:
        self.inner.fit(x="theirs")
        mine: Any = [*callbacks, "mine"]
        if self.listed:
            mine = SimpleNamespace(callbacks=mine)  # a list of callbacks as Keras makes it
        more |= {"epochs": 99, "validation_freq": 2, "shuffle": True}
        super().fit(dataset.take(2), callbacks=mine, validation_data=validation_data, **more)


SETTINGS: dict[str, Any] = {"epochs": 5, "steps_per_epoch": 3, "validation_freq": 1, "validation_steps": 2,
                            "shuffle": False}  # fmt: skip


def test_a_fit_of_the_model_gets_its_arguments_and_the_options_decide(stock: Fitted) -> None:
    replaced = vars(keras.Model)["fit"]
    model = Mine([keras.layers.Dense(1)])
    model.inner = keras.Sequential([keras.layers.Dense(1)])
    told, created, added = list[Any](), list[Any](), list[Any]()
    own: Any = SimpleNamespace(overrides_fit=True, callbacks=("given",), create_variables=created.append)
    report: Any = SimpleNamespace(warn=lambda *words: told.append(words))
    callbacks: Any = SimpleNamespace(add=lambda handed: added.append(list(handed)))
    fit = ModelFit(model, own, of_fit(ON_CPU)[0], report)
    train, validation = tf.data.Dataset.range(9), tf.data.Dataset.range(2)
    for model.listed in (False, True):
        fit(train, validation, callbacks, **SETTINGS)
        assert keras.Model.fit is replaced, "as it was before"
    assert created == [train.element_spec], "once"
    assert added == [["given", "mine"]] * 2
    assert told == [
        ("fit_overridden", "the fit of Mine sets epochs, validation_freq: the options decide instead"),
    ] * 2  # fmt: skip
    (inner, theirs), (of, given), *_ = stock.calls
    assert (inner, theirs["x"], theirs["epochs"]) == (model.inner, "theirs", 1), "of another model it is Keras' own"
    assert [int(n) for n in given.pop("x")] == [0, 1]
    assert (of, given.pop("validation_data"), given.pop("callbacks")) == (model, validation, callbacks)
    assert given == SETTINGS
    assert len(stock.calls) == 4


def test_a_training_of_gputui_is_fitted_by_keras_and_may_not_be_compiled_again_if_it_is_a_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stock = Fitted()
    model = keras.Sequential([keras.layers.Dense(1)])
    compiled = keras.Model.compile
    train = tf.data.Dataset.range(9)

    class Compiles:
        def __iter__(self) -> Any:
            model.compile("sgd", "mse")
            return iter(())

    def fit(self: Any, **given: Any) -> None:
        stock.fit(self, **given)
        list(given["callbacks"])

    monkeypatch.setattr(keras.Model, "fit", fit)
    nothing: Any = None
    own: Any = SimpleNamespace(overrides_fit=False)
    data = of_fit(ON_CPU)[0]
    ModelFit(model, None, data, nothing)(train, None, Compiles(), epochs=2)
    assert (stock.calls[0][1]["x"], stock.calls[0][1]["epochs"]) == (train, 2)
    with pytest.raises(RuntimeError, match=r"^compile cannot be called while the model trains, here as in Keras' fit"):
        ModelFit(model, own, data, nothing)(train, None, Compiles(), epochs=2)
    assert keras.Model.compile is compiled
    other = keras.Sequential([keras.layers.Dense(1)])
    ModelFit(other, own, data, nothing)(train, None, Compiles(), epochs=2)


def test_the_moving_average_replaces_the_weights_only_at_the_end_of_the_training() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
    optimizer, calls = model.optimizer, list[Any]()
    type(optimizer).finalize_variable_values, real = (
        lambda self, weights: calls.append(weights), type(optimizer).finalize_variable_values,
    )  # fmt: skip
    try:
        for stopped in (False, True):
            model.stop_training = stopped
            with more_to_come(model):
                optimizer.finalize_variable_values(["weights"])
            assert calls == ([["weights"]] if stopped else [])
        with pytest.raises(ValueError, match="theirs"), more_to_come(model):
            raise ValueError("theirs")
        optimizer.finalize_variable_values(["last"])
        assert calls[1:] == [["last"]]
    finally:
        type(optimizer).finalize_variable_values = real


# ---- the saved model ---------------------------------------------------------------------------


class Saved:
    """A training whose model is saved on a disk that refuses it so many times, and the seconds that passed."""

    def __init__(self, folder: Path, faults: list[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.faults, self.now, self.synced = folder, faults, 100.0, list[str]()
        self.stop = SimpleNamespace(reason="")
        monkeypatch.setattr(built_training, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))
        monkeypatch.setattr(built_training, "sync", lambda path: self.synced.append(path.name))
        monkeypatch.setattr(models, "save", self.save)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def save(self, model: Any, path: Path) -> None:
        path.write_text("half")
        if self.faults:
            raise self.faults.pop(0)

    def __call__(self, last_step: int | None = 7) -> None:
        report = SimpleNamespace(run=Run(self.folder))
        checkpoints = SimpleNamespace(last_step=last_step)
        built: Any = SimpleNamespace(report=report, checkpoints=checkpoints, stop=self.stop, own=None, model="model")
        built_training.save_model(built, 7)


def full(number: int = errno.ENOSPC) -> OSError:
    return OSError(number, "refused", "/x")


def test_a_model_that_a_full_disk_refuses_is_tried_again_for_half_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = Saved(tmp_path, [full() for _ in range(30)], monkeypatch)
    saved()
    assert (saved.now, saved.synced) == (130.0, ["model.keras"])
    saved.faults = [full() for _ in range(40)]
    (tmp_path / "model.weights.h5").touch()
    with pytest.raises(TrainerError) as raised:
        saved()
    assert (saved.now, list(tmp_path.iterdir())) == (161.0, []), "no half of it"
    assert raised.value.kind == "disk"
    assert raised.value.message == (
        f"disk full at {tmp_path} (No space left on device): the training has ended well, but its model could not be "
        "saved"
    )
    assert raised.value.hint == "free some space and gputui resume saves it from the last checkpoint"


def test_where_waiting_does_not_help_the_model_is_given_up_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = Saved(tmp_path, [full(errno.EFBIG)], monkeypatch)
    with pytest.raises(TrainerError) as raised:
        saved(last_step=6)
    hint = "raise the limit on the size of files (ulimit -f) and train again; with run.checkpoint set, gputui resume "
    assert raised.value.hint == f"{hint}could save it"
    saved.faults, saved.stop.reason = [full()], "stopped"
    with pytest.raises(TrainerError):
        saved()
    saved.faults, saved.stop.reason = [ValueError("theirs")], ""
    with pytest.raises(ValueError, match="theirs"):
        saved()
    assert saved.now == 100.0
