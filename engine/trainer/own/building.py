"""A user's own training, built: their function is called where everything is set, and what it returned made ready.

Separates what is theirs (model, data, perhaps optimizer and callbacks) from what the options do to it. Whatever an
option cannot do to it is kept with the reason, so that nothing is silently ignored.
"""

from __future__ import annotations

import contextlib
import traceback
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from ...files import disk
from ...options import OPTIONS, OptionInfo, Options
from ...options.own import Handed, obstacle
from ..checkpoint.object_graph import Found, Module, optimizers, walk
from ..checkpoint.state import State
from ..common.epoch_callbacks import EpochCallbacks, Loop
from ..measure.run_report import RunReport
from . import build_by_step, context, random_draws, returned
from .callbacks import OwnCallbacks, usable
from .compiling import compile_model, custom_step, tell_overridden
from .global_settings import GlobalSettings
from .pipeline import OwnPipeline, opened
from .py_dataset import Indexed, workers
from .returned import Returned
from .streams import Samples, Stream, prefetches
from .user_code import UserCode, UserError

BATCH_SIZE = "input.batch_size"
NOTHING_ASKED = {"train.validation_split": 0.0}  # beside the default: what needs nothing to be done
RESUMED_BATCHES = (
    "your code batches its data: on resuming, the batches of the pass that were seen are left out; where your code "
    "shuffles, their order is another one"
)
ONE_PROCESS = "use_multiprocessing of a PyDataset does nothing here: its batches are loaded one at a time"


@dataclass(frozen=True)
class Own:
    """A user's training: what the loop needs, and what the viewers are told."""

    code: UserCode
    model: keras.Model
    pipeline: OwnPipeline
    callbacks: list[keras.callbacks.Callback]
    inapplicable: dict[str, str]  # options that do nothing to this training: why
    own_compile: bool  # their code has compiled the model

    def callbacks_for(self, loop: Loop, epochs: int) -> keras.callbacks.CallbackList:
        """What tells the loop of epochs, and the user's callbacks with it."""
        if not self.callbacks:
            return EpochCallbacks(loop, self.model)
        return OwnCallbacks(loop, self.model, epochs, self.callbacks)

    def state(self) -> State:
        """All that changes while it trains."""
        return State(self.model, self._kept)

    def _kept(self) -> Found:
        modules = [Module(vars(module)) for module in self.code.modules()]
        return walk([self.model, *self.callbacks, *modules], self.code.owns)

    def warn_of_draws(self, graph: Any, report: RunReport) -> None:
        """What in a step's graph begins its random numbers anew on resuming."""
        random_draws.warn(graph, self.code, self.model, report)

    def not_applied(self, options: Options) -> list[dict[str, str]]:
        """Those of them that are not at their default."""
        return [
            {"option": info.key, "why": self.inapplicable[info.key]}
            for info in OPTIONS
            if info.key in self.inapplicable and _asks(options, info)
        ]

    def tell(self, options: Options, report: RunReport, resumed_at: int | None) -> None:
        """What a person should know of this training beside its figures."""
        for item in self.not_applied(options):
            report.warn("not_applied", f"{item['option']} does nothing here: {item['why']}", option=item["option"])
        if self.model.run_eagerly:
            report.warn("run_eagerly", "run_eagerly does nothing here: steps run as a graph", "print with tf.print")
        if _wants_processes(self.pipeline.train) or _wants_processes(self.pipeline.held_out):
            report.warn("use_multiprocessing", ONE_PROCESS, "give it workers alone where threads may load at once")
        if resumed_at is not None and self.pipeline.train.kind == "batched":
            report.warn("resumed_batches", RESUMED_BATCHES)
        if resumed_at is not None and self.callbacks:
            report.warn("callbacks_anew", "your callbacks begin anew: what they had counted before is not kept")

    def save(self, report: RunReport) -> None:
        """The model as plain Keras reads it; where Keras cannot write it whole, its weights.

        What the options compiled it with stays out: their learning-rate schedule is a class of ours.
        """
        compiled, self.model.compiled = self.model.compiled, self.own_compile
        try:
            self.model.save(report.run.file("model.keras"))
        except Exception as fault:  # a subclassed model may not know how it was made
            if disk.refusal(fault) is not None:
                raise
            traceback.print_exc()
            self.model.save_weights(report.run.file("model.weights.h5"))
            report.warn(
                "weights_only",
                f"Keras cannot save this model whole ({type(fault).__name__}); its weights are in model.weights.h5",
                "give the model's class a get_config",
                "run.save_model",
            )
        finally:
            self.model.compiled = compiled


def build(options: Options, distribution: tf.distribute.Strategy | None, report: RunReport) -> Own:
    """Run the user's function and compile its model as the options say; raises UserError."""
    workload = options.workload
    assert workload.entry is not None
    replicas = distribution.num_replicas_in_sync if distribution else 1
    report.phase("building", workload.entry.rpartition("/")[2])
    settings = GlobalSettings()
    with _scope(distribution), settings:  # a module may make its model at its top
        code = UserCode(workload.entry, workload.folder or ".")
    for name in code.shadowed():
        report.warn(
            "shadowed",
            f"{name} beside {code.file.name} is not used: another {name[:-3]} was imported before",
            "give the file another name",
            name,
        )
    with _scope(distribution), settings, code.blamed():
        found = returned.checked(code.function(context.of(options, replicas)), code.entry.function)
        own_compile = bool(found.model.compiled)
        own_optimizer = own_compile or found.optimizer is not None
        pipeline = opened(options, replicas, found, code.file, report)
        handed = _handed(found, options, pipeline.train, own_optimizer)
        _fits(found.model, pipeline)
        tell_overridden(found.model, options, report)
        compile_model(found, options, pipeline)
        _build_state(found.model, pipeline.spec, distribution, code)
    settings.tell(code, report)
    inapplicable = _inapplicable(handed)
    if pipeline.global_batch_size == options.input.batch_size * replicas:
        inapplicable.pop(BATCH_SIZE, None)  # the code has followed its context
    return Own(code, found.model, pipeline, usable(found.callbacks, options, report), inapplicable, own_compile)


def _scope(distribution: tf.distribute.Strategy | None) -> contextlib.AbstractContextManager[Any]:
    return distribution.scope() if distribution else contextlib.nullcontext()


def _build_state(
    model: keras.Model, spec: Any, distribution: tf.distribute.Strategy | None, code: UserCode
) -> None:
    """Create the variables from what a batch looks like; where that fails, the first step creates them."""
    batch = tf.nest.map_structure(_symbol, spec)
    try:
        model._symbolic_build(data_batch=batch)
    except Exception as fault:
        if distribution is None:
            traceback.print_exc()  # into engine.log: the first step shows whether it matters
            return
        _build_by_step(model, batch, fault, code)
    if distribution is not None:
        _made_in_scope(model, distribution)
        build_by_step.share_generator()
    model._maybe_symbolic_build = lambda *args, **kwargs: None


def _build_by_step(model: keras.Model, batch: Any, by_call: Exception, code: UserCode) -> None:
    """Over several replicas each variable must be there before the first step."""
    fault = build_by_step.build(model, batch) if custom_step(model) else by_call
    if fault is None:
        return
    traceback.print_exception(fault)
    told = code.told(fault)
    reason = told.message if told else " ".join(str(fault).split())[:200]
    raise UserError(
        f"{type(model).__name__} has no variables yet, and they cannot be made for strategy.kind=mirrored: {reason}",
        "call the model, and the models within it, on one batch in build: model(keras.ops.zeros((1, 28, 28)))",
    ) from fault


def _made_in_scope(model: keras.Model, distribution: tf.distribute.Strategy) -> None:
    """Refuse here what fails in the first step with words about mixed strategies."""
    for variable in [*model.variables, *(one for optimizer in optimizers(model) for one in optimizer.variables)]:
        if not distribution.extended.variable_created_in_scope(variable.value):
            raise UserError(
                f"the variable {variable.path} was made outside the scope of strategy.kind=mirrored",
                "make model and optimizer in build or at the top of its module, in no scope or thread of your own",
            )


def _symbol(spec: Any) -> Any:
    shape = (None, *spec.shape[1:]) if spec.shape.rank else spec.shape
    return keras.KerasTensor(shape, keras.backend.standardize_dtype(spec.dtype))


def _handed(found: Returned, options: Options, stream: Stream, own_optimizer: bool) -> Handed:
    """What decides which options apply."""
    return Handed(
        data=stream.kind,
        own_optimizer=own_optimizer,
        images=isinstance(stream, Samples) and stream.images,
        validation=found.validation is not None,
        workers=workers(stream.data) if isinstance(stream, Indexed) else 1,
        prefetches=options.input.prefetch == "off" and prefetches(found.train),
    )


def _asks(options: Options, info: OptionInfo) -> bool:
    value = getattr(getattr(options, info.group), info.name)
    return value not in (info.default, NOTHING_ASKED.get(info.key, info.default))


def _wants_processes(stream: Stream | None) -> bool:
    return isinstance(stream, Indexed) and bool(stream.data.use_multiprocessing)


def _fits(model: keras.Model, pipeline: OwnPipeline) -> None:
    """Whether batches have as many axes as a model of one input wants: batched too often or not at all is told here."""
    spec = pipeline.train.spec
    x = spec[0] if isinstance(spec, tuple) else spec
    inputs = getattr(model, "inputs", None)
    if not isinstance(x, tf.TensorSpec) or x.shape.rank is None or not inputs or len(inputs) != 1:
        return
    wanted, found = tf.TensorShape(inputs[0].shape), x.shape
    if _of_its_rank(found, wanted).is_compatible_with(wanted):
        return
    if found.rank == wanted.rank - 1 and not isinstance(pipeline.train, Samples):
        raise UserError(
            f"train's elements have shape {tuple(found)}, the model takes batches of {tuple(wanted[1:])}",
            "batch the Dataset by context.global_batch_size, or return a dict with map: None and gputui batches it",
        )
    if found.rank == wanted.rank + 1 and isinstance(pipeline.train, Samples) and pipeline.train.kind == "mapped":
        raise UserError(
            "train is batched, and a map given beside it: gputui batches it once more",
            "leave out Dataset.batch, or take map out of the dict",
        )


def _of_its_rank(found: tf.TensorShape, wanted: tf.TensorShape) -> tf.TensorShape:
    """As Keras makes it fit a model's input: an axis of one at the end is added or left out."""
    if found.rank == wanted.rank - 1 and wanted[-1] == 1:
        return found.concatenate([1])
    if found.rank == wanted.rank + 1 and found[-1] == 1:
        return found[:-1]
    return found


def _inapplicable(handed: Handed) -> dict[str, str]:
    """Options that do nothing to this training, each with the reason."""
    reasons = {info.key: obstacle(info.about.own, handed) for info in OPTIONS}
    return {key: why for key, why in reasons.items() if why}
