"""A profile of the steps asked for, taken by the trainer, costs no step its time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from gputui.engine.profile import xprof_process
from gputui.engine.profile.reports import ProfileError, read

from tests.support.training import Build

needs_xprof = pytest.mark.needs("xprof")
TINY = (
    "model=mlp",
    "width=0.05",
    "optimizer=sgd",
    "batch_size=32",
    "validation_split=0",
    "epochs=1",
    "steps_per_epoch=30",
)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What TensorFlow's profiler is told: start, stop, the number of a step at its begin and negative at its end."""
    import tensorflow as tf

    found: list[Any] = []

    class Marker:
        def __init__(self, name: str, step_num: int, _r: int) -> None:
            assert (name, _r) == (xprof_process.STEP, 1)
            self.number = step_num

        def __enter__(self) -> None:
            found.append(self.number)

        def __exit__(self, *exception: object) -> None:
            found.append(-self.number)

    monkeypatch.setattr(tf.profiler.experimental, "Trace", Marker)
    monkeypatch.setattr(tf.profiler.experimental, "start", lambda folder: found.append("start"))
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: found.append("stop"))
    return found


@pytest.fixture
def hour(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Calling it takes an hour by the clock of the steps, and no time."""
    hours, real = [0], time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: real() + 3600 * len(hours))
    return lambda *given: hours.append(1)


def test_starting_and_writing_a_profile_is_no_steps_time(
    build: Build, monkeypatch: pytest.MonkeyPatch, hour: Callable[..., None]
) -> None:
    import tensorflow as tf

    monkeypatch.setattr(tf.profiler.experimental, "start", hour)
    monkeypatch.setattr(tf.profiler.experimental, "stop", hour)
    training = build(*TINY, "profile=12-14").train()
    assert training.loop.built.report.speed.clock.step_seconds_total < 3600


def test_what_keras_does_before_it_evaluates_is_no_steps_time(
    build: Build, monkeypatch: pytest.MonkeyPatch, hour: Callable[..., None]
) -> None:
    training = build(*TINY, "epochs=2", "steps_per_epoch=20", "validation_split=0.1")

    def evaluate(**of_fit: Any) -> dict[str, Any]:
        hour()
        return {}

    monkeypatch.setattr(training.loop.built.model, "evaluate", evaluate)
    training.train()
    assert training.loop.built.report.speed.clock.step_seconds_total < 3600


@pytest.mark.parametrize(
    ("steps", "together", "held"),
    [("1-3", 1, [1, 2, 3]), ("12-14", 5, [11]), ("14-17", 5, [11, 16]), ("29-99", 1, [29, 30]), ("31-40", 1, [])],
)
def test_the_markers_of_the_steps_asked_for(
    steps: str, together: int, held: list[int], build: Build, told: list[Any]
) -> None:
    build(*TINY, f"profile={steps}", f"steps_per_execution={together}").train()
    between = [number for first in held for number in (first, -first)]
    assert told == (["start", *between, "stop"] if held else [])


def test_evaluations_and_checkpoints_belong_to_no_step(
    build: Build, told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = ("epochs=3", "steps_per_epoch=3", "validation_split=0.02", "checkpoint=2")
    training = build(*TINY, *epochs, "profile=2-7")

    def evaluate(iterator: Any) -> dict[str, Any]:
        if told[-1] != "test":
            told.append("test")
        return {}

    training.loop.built.model.test_function = evaluate
    monkeypatch.setattr(training.loop.built.checkpoints, "save", lambda step: told.append("save"))
    training.train()
    first, second = ["start", 2, -2, "save", 3, -3, "test"], [4, -4, "save", 5, -5, 6, -6, "test", "save"]
    assert told == [*first, *second, 7, -7, "stop", "save", "test"]  # at an epoch's end the evaluation comes first


@pytest.mark.usefixtures("cpus")
def test_layers_are_recorded_by_the_scopes_of_their_operations() -> None:
    """Each product of the graph is multiplied by a variable, which says whose product it is."""
    import keras
    import tensorflow as tf
    from gputui.engine.trainer.measure.layer_scopes import LayerScopes
    from keras import layers

    keras.backend.clear_session()
    inputs = keras.Input((4,))
    shared = layers.Dense(4)
    x = layers.Dense(4)(shared(shared(layers.Dense(4)(inputs))))
    model = keras.Model(inputs, keras.Sequential([layers.Dense(4), layers.Dropout(0.1), layers.Dense(1)])(x))
    own = {layer: vars(layer).get("call") for layer in model._flatten_layers()}
    scopes = LayerScopes(model)
    spec = tf.TensorSpec((1, 4))
    graph = (
        tf.function(lambda x: model(model(x, training=True) * tf.ones(4), training=True))
        .get_concrete_function(spec)
        .graph
    )
    scopes.close()
    assert {layer: vars(layer).get("call") for layer in model._flatten_layers()} == own

    variables = {id(variable.value.handle): variable.path for variable in model.variables}
    owners = {inner.name: variables.get(id(outer)) for outer, inner in graph.captures}
    products = [op for op in graph.get_operations() if op.type == "MatMul"]
    recorded = []
    for product in products:
        kernel = product.inputs[1].op
        while kernel.inputs and kernel.type != "Placeholder":
            kernel = kernel.inputs[0].op
        owner = str(owners[kernel.outputs[0].name]).removesuffix("/kernel")
        recorded.append((scopes.names[product.name.rpartition("/")[0]], owner))
    assert len(recorded) == 12
    assert all(name == owner for name, owner in recorded), recorded
    assert len({name for name, _ in recorded}) == 5
    assert model.name in scopes.names.values()
    assert "" not in scopes.names.values()


def test_a_profile_names_the_layers_and_gives_their_methods_back(build: Build) -> None:
    training = build(*TINY, "profile=12-14")
    layers = list(training.loop.built.model._flatten_layers())
    assert "call" in vars(layers[0])
    training.train()
    assert not [layer for layer in layers if "call" in vars(layer)]
    recorded = json.loads((training.run.file("profile") / "layers.json").read_text())
    assert {layer.name for layer in layers[2:]} <= set(recorded.values())  # the first two are the model and its input
    assert not [layer for layer in build(*TINY).loop.built.model._flatten_layers() if "call" in vars(layer)]


@needs_xprof
def test_several_steps_in_one_execution_are_not_told_apart(build: Build) -> None:
    run = build(*TINY, "steps_per_execution=5", "profile=11-30").train().run
    run.file("preset.yaml").write_text("compile: {steps_per_execution: 5}\nrun: {profile: 11-30}\n")
    with pytest.raises(ProfileError, match="cannot distinguish steps if 5 of them run in one execution") as told:
        read(run)
    assert "compile.steps_per_execution=1" in str(told.value)
    (file,) = run.file("profile").rglob("*.xplane.pb")
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ProfileError, match=r"XProf cannot read .*\n.*XSpace"):
        read(run)
