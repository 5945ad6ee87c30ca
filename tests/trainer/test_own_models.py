"""A user's own model before it trains: its variables, its compile, its evaluation, and how it is saved."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.runs import code_files
from gputui.engine.trainer.own import building, model_checks, unsaved_state, variables
from gputui.engine.trainer.own.building import Own
from gputui.engine.trainer.own.py_dataset import Indexed
from gputui.engine.trainer.own.returned import Returned
from gputui.engine.trainer.own.streams import Batched
from gputui.engine.trainer.own.user_code import UserError
from gputui.engine.trainer.setup import xla
from gputui.engine.trainer.setup.xla import Xla

from tests.support.training import options

SPEC = (tf.TensorSpec((None, 2)), tf.TensorSpec((None, 1)))
PIPELINE: Any = SimpleNamespace(replicas=1, batches_per_pass=5)


class Told:
    """Stands for the report of a run: its warnings."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, ...]] = []
        self.run: Any = None

    def warn(self, kind: str, message: str, hint: str = "", option: str = "") -> None:
        self.warnings.append((kind, message, hint, option))

    def not_applied(self, given: list[dict[str, str]]) -> None:
        self.warnings += [("not_applied", each["option"], each["why"]) for each in given]


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(UserError) as raised:
        call()
    return raised.value.message, raised.value.hint


class Steps(keras.Model):  # type: ignore[misc]
    """Its own training step alone has a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        return {"loss": 0.0}


class Adds(Steps):
    """Adds a loss when it is called."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(tf.reduce_mean(inputs))
        return self.dense(inputs)


class Fails(Steps):
    def call(self, inputs: Any) -> Any:
        raise ValueError("another fault")


# ---- its evaluation ----------------------------------------------------------------------------


def test_a_model_without_a_loss_to_evaluate_is_refused_and_a_look_at_it_leaves_nothing() -> None:
    made = Steps()
    made.compile("sgd")
    assert refused(lambda: model_checks.check_evaluation(made, None, SPEC)) == (
        "Steps cannot be evaluated: it has a train_step of its own, but neither a test_step nor a compiled loss",
        "give Steps a test_step, or return no validation data",
    )
    model_checks.check_evaluation(made, "mse", SPEC)
    adds, fails = Adds(), Fails()
    for model in (adds, fails):
        model.compile("sgd")
        model_checks.check_evaluation(model, None, SPEC)
        assert model.losses == []


# ---- its variables -----------------------------------------------------------------------------


def test_a_model_gets_its_variables_before_its_first_step_and_keras_does_not_look_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code: Any = None
    made = keras.Sequential([keras.layers.Dense(3)])
    made.compile("sgd", "mse")
    variables.create(made, (tf.TensorSpec((4, 2)), SPEC[1]), None, code)
    assert [tuple(each.shape) for each in made.variables[:2]] == [(2, 3), (3,)]
    assert made.built
    looks = vars(made)["_maybe_symbolic_build"]
    assert looks(iterator=3, data_batch=None) is None
    fails = Fails()
    fails.compile("sgd", "mse")
    variables.create(fails, SPEC, None, code)
    assert capsys.readouterr().err.startswith("gputui: Fails gets its variables in the first step: ValueError: ")
    assert "_maybe_symbolic_build" not in vars(fails), "Keras tries it in the first step"


class Scope:
    """Stands for a strategy: all variables are its own but one."""

    def __init__(self, other: Any) -> None:
        self.extended = SimpleNamespace(variable_created_in_scope=lambda value: value is not other)


def test_over_replicas_a_variable_of_the_model_or_of_its_optimizer_from_elsewhere_is_refused() -> None:
    code: Any = None
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="mine")])
    made.compile(keras.optimizers.Adam(), "mse")
    made.optimizer.build(made.trainable_variables)
    for other in (made.variables[1], made.optimizer.variables[-1]):
        scope: Any = Scope(other.value)
        assert refused(lambda scope=scope: variables.create(made, SPEC, scope, code)) == (  # type: ignore[misc]
            f"the variable {other.path} was created outside the scope of strategy.kind=mirrored",
            "create model and optimizer in build or at the top of its module, not in a scope or thread of your own",
        )
    strategy: Any = Scope(None)
    variables.create(made, SPEC, strategy, code)
    assert vars(made)["_maybe_symbolic_build"]() is None


@pytest.mark.parametrize(("most", "traces"), [(0, 1), (3, 4), (20, 8)])
def test_a_step_is_traced_until_no_variable_is_missing(most: int, traces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = SimpleNamespace(variables=[0])
    faults = [ValueError(str(number)) for number in range(9)]
    told: list[Any] = []

    def trace(model: Any, batch: Any) -> Exception:
        told.append(batch)
        if len(told) <= most:
            model.variables.append(0)
        return faults[len(told)]

    monkeypatch.setattr(variables, "optimizers", lambda model: [])
    monkeypatch.setattr(variables, "_trace_step", trace)
    assert variables._create_by_step(made, "batch") is faults[traces]
    assert told == ["batch"] * traces


# ---- its compile -------------------------------------------------------------------------------


def uncompiled(**more: Any) -> Returned:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    return Returned(made, None, loss="mse", **more)


def test_an_uncompiled_model_gets_the_optimizer_of_the_options_or_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla, "choose", lambda given, model: Xla(True, "x"))
    given = options("optimizer=adam", "learning_rate=0.25", "steps_per_execution=3", "schedule=constant")
    parts = uncompiled(metrics=["mae"])
    assert building.compile_model(parts, given, PIPELINE) == Xla(True, "x")
    model = parts.model
    assert (type(model.optimizer), float(model.optimizer.learning_rate)) == (keras.optimizers.Adam, 0.25)
    assert (model.jit_compile, model.steps_per_execution, model.loss) == (True, 3, "mse")
    assert model._compile_metrics is not None
    assert model.get_compile_config() is not None
    own = keras.optimizers.SGD(0.5)
    scheduled = options("schedule=cosine", "learning_rate=0.25")
    for parts, config in ((uncompiled(optimizer=own), True), (uncompiled(), False)):
        building.compile_model(parts, scheduled, PIPELINE)
        assert (parts.model.optimizer is own) is config
        assert (parts.model.get_compile_config() is not None) is config, "plain Keras has no schedule of gputui's"


def test_a_compiled_model_keeps_its_optimizer_and_the_options_decide_how_its_steps_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xla, "choose", lambda given, model: Xla(True, "chosen"))
    monkeypatch.setattr(xla, "of_compiled", lambda given, model: Xla(False, "compiled"))
    parts = uncompiled()
    own = keras.optimizers.SGD(0.5)
    parts.model.compile(own, "mse", jit_compile=True)
    made = building.compile_model(parts, options("steps_per_execution=4"), PIPELINE)
    assert made == Xla(False, "compiled")
    assert (parts.model.optimizer, parts.model.jit_compile, parts.model.steps_per_execution) == (own, False, 4)


def test_over_replicas_xla_with_a_step_of_their_own_and_accumulated_gradients_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several: Any = SimpleNamespace(replicas=2, batches_per_pass=5)
    made = Steps()
    made.compile("sgd")
    parts = Returned(made, None)
    for compiles in (True, False):
        monkeypatch.setattr(xla, "of_compiled", lambda given, model, compiles=compiles: Xla(compiles, "x"))
        building.compile_model(parts, options(), PIPELINE)
        if not compiles:
            building.compile_model(parts, options(), several)
            continue
        assert refused(lambda: building.compile_model(parts, options(), several)) == (
            "Steps has a train_step of its own, which XLA cannot compile over several replicas: it assigns variables",
            "set compile.xla=false, or strategy.kind=single",
        )
    for steps in (None, 1, 2):
        given = uncompiled(optimizer=keras.optimizers.Adam(gradient_accumulation_steps=None if steps == 1 else steps))
        building.compile_model(given, options("xla=false"), PIPELINE)
        if steps != 2:
            building.compile_model(uncompiled(optimizer=given.optimizer), options("xla=false"), several)
            continue
        assert refused(lambda given=given: building.compile_model(given, options("xla=false"), several)) == (  # type: ignore[misc]
            "Adam(gradient_accumulation_steps=2) of your code: Keras cannot accumulate gradients over several replicas",
            "leave it out: the replicas' batches add up anyway; a batch too large for the memory is computed in parts "
            "with train.micro_batches",
        )


def test_what_their_compile_sets_and_an_option_overrides_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(compiled: dict[str, Any], *settings: str, chip: str = "") -> list[tuple[str, ...]]:
        monkeypatch.setattr(xla, "aborting_chip", lambda: chip)
        model, report = uncompiled().model, Told()
        model.compile("sgd", "mse", **compiled)
        building.warn_of_overridden(model, options(*settings), report)  # type: ignore[arg-type]
        return report.warnings

    together = "compile.steps_per_execution"
    assert told({"steps_per_execution": 5}) == [(
        "overridden", f"steps_per_execution=5 of your compile does nothing here: {together} is 1", f"set {together}=5",
        together,
    )]  # fmt: skip
    assert told({"steps_per_execution": 5}, "steps_per_execution=2") == []
    assert told({"steps_per_execution": 1}) == told({"jit_compile": True}) == told({}, chip="old") == []
    assert told({"jit_compile": True}, "xla=true", chip="old") == []
    assert told({"jit_compile": True}, chip="old") == [
        ("overridden", "jit_compile=True of your compiled model does nothing here: old", "", "compile.xla")
    ]
    report = Told()
    building.warn_of_overridden(keras.Sequential(), options(), report)  # type: ignore[arg-type]
    assert report.warnings == []


# ---- saved -------------------------------------------------------------------------------------


def own(model: Any = None, **more: Any) -> Own:
    given: dict[str, Any] = {
        "code": SimpleNamespace(owns_file=lambda file: False), "model": model, "callbacks": [],
        "pipeline": SimpleNamespace(train=None, held_out=None), "inapplicable": {}, "own_compile": False,
        "xla": Xla(False, ""), "given_train": None,
    }  # fmt: skip
    return Own(**given | more)


@pytest.mark.parametrize("own_compile", [True, False])
def test_a_model_is_saved_with_the_compile_of_its_code_alone(own_compile: bool, tmp_path: Path) -> None:
    seen: list[Any] = []
    model: Any = SimpleNamespace(compiled=True, save=lambda path: seen.append((path, model.compiled)))
    report: Any = Told()
    assert own(model, own_compile=own_compile).save(report, tmp_path / "m.keras") == tmp_path / "m.keras"
    assert (seen, model.compiled, report.warnings) == ([(tmp_path / "m.keras", own_compile)], True, [])


def test_of_a_model_that_cannot_be_saved_the_weights_are_kept_unless_the_disk_is_full(tmp_path: Path) -> None:
    faults: list[Exception] = []
    weights: list[Path] = []

    def save(path: Path) -> None:
        raise faults[0]

    model = SimpleNamespace(compiled=True, save=save, save_weights=weights.append)
    report: Any = Told()
    faults[:] = [NotImplementedError("of a thing")]
    draft, final = tmp_path / "draft.keras", tmp_path / "best.keras"
    message = "Keras cannot save this whole model (NotImplementedError); its weights are in {}.weights.h5"
    hint = "add a get_config method to the model's class"
    for named, option, name in ((final, "run.keep_best", "best"), (None, "run.save_model", "draft")):
        report.warnings.clear()
        file = own(model).save(report, draft, named, **({"option": option} if named else {}))
        assert file == weights.pop() == tmp_path / "draft.weights.h5"
        assert report.warnings == [("weights_only", message.format(name), hint, option)]
    faults[:] = [OSError(errno.ENOSPC, "No space left on device")]
    with pytest.raises(OSError, match="No space"):
        own(model).save(report, draft)
    assert (weights, model.compiled) == ([], True)


# ---- what is said before it trains -------------------------------------------------------------


def batched() -> Batched:
    return Batched(tf.data.Dataset.range(4).batch(2), None, 2, 2, 1)


def pages(**more: Any) -> Any:
    class Pages(keras.utils.PyDataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            self.left = np.random.rand()

    made = object.__new__(Indexed)
    vars(made).update(data=Pages(**more))
    return made


def test_what_is_not_resumed_is_said_if_a_checkpoint_is_written_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_files, "record_step", lambda run, step: ["a.py", "b.py"] if step == 7 else [])
    monkeypatch.setattr(unsaved_state, "of_callbacks", lambda callbacks: callbacks)
    monkeypatch.setattr(building, "inexact", lambda data, owns: (["one", "two", "three", "four"], "instead"))
    shuffled = tf.data.Dataset.range(4).shuffle(4)

    def said(resumed_at: int | None, checkpoint: str, train: Any = None, given: Any = None, **more: Any) -> list[str]:
        report: Any = Told()
        pipeline = SimpleNamespace(train=train, held_out=more.pop("held_out", None), apart=False)
        own(pipeline=pipeline, given_train=given, callbacks=list("abcd"), **more).warn(
            options(f"checkpoint={checkpoint}"), report, resumed_at
        )
        return [f"{kind}: {message}" for kind, message, *_ in report.warnings]

    anew = "callbacks_anew: a; b; c: no checkpoint holds that, so that it starts again in a resumed run"
    state = "data_state: one; two; three"
    changed = "code_changed: the run goes on from step 7 with changed code: a.py, b.py"
    shuffle = "data_state: the shuffle of your tf.data.Dataset has another order in a resumed run"
    batches = (
        "resumed_batches: your code batches its data: after resuming, the batches already seen in this pass are "
        "skipped; if Python code in it draws random numbers, it draws others"
    )
    assert said(None, "off", batched(), shuffled) == []
    assert said(None, "epoch", batched(), shuffled) == [anew, state]
    assert said(7, "off", batched(), shuffled) == [changed, anew, state, batches]
    assert said(3, "epoch", None, shuffled) == [shuffle, anew, state]
    wants = f"use_multiprocessing: {building.ONE_PROCESS}"
    assert said(None, "off", pages(use_multiprocessing=True)) == [wants]
    assert said(None, "off", pages(), held_out=pages(use_multiprocessing=True)) == [wants]
    first, *others = said(None, "epoch", pages())
    assert first.startswith("pydataset_state: Pages.__getitem__ changes self.left (test_own_models.py:")
    assert first.endswith("): no checkpoint holds that, so that a resumed run loads other batches")
    assert others == [anew, state]


def test_options_without_an_effect_are_named_only_if_they_are_set() -> None:
    why = {"input.cache": "batched", "train.validation_split": "split", "input.batch_size": "batch"}
    made = own(inapplicable=why)
    assert made.not_applied(options()) == []
    assert made.not_applied(options("cache=memory", "validation_split=0")) == [
        {"option": "input.cache", "why": "batched"}
    ]
    assert made.not_applied(options("validation_split=0.4", "batch_size=7")) == [
        {"option": "input.batch_size", "why": "batch"}, {"option": "train.validation_split", "why": "split"},
    ]  # fmt: skip


def test_the_stages_of_their_own_pipeline_have_names_only_if_it_makes_the_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "user_functions", lambda data, code: {"Map": ["load"]})
    assert own(pipeline=SimpleNamespace(train=batched())).stage_functions() == {"Map": ["load"]}
    assert own(pipeline=SimpleNamespace(train=None)).stage_functions() == {}
