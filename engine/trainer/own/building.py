"""Builds a user's own training: calls their function and applies the options to the model and data that it returns.

An option that cannot be applied is kept with the reason, so that nothing is silently ignored.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from ...files import disk
from ...options import Options
from ...runs import Run, code_files
from ..checkpoint.object_graph import Found, Module, walk
from ..checkpoint.state import State
from ..common.epoch_callbacks import EpochCallbacks, Loop
from ..data.share import Share
from ..measure.run_report import RunReport
from ..setup.xla import Xla
from . import context, evaluable, fitting_batches, inapplicable, py_dataset_state, random_draws, returned, variables
from .callbacks import OwnCallbacks, usable
from .compiling import compile_model, tell_overridden
from .global_settings import GlobalSettings
from .pipeline import OwnPipeline, opened
from .py_dataset import Indexed
from .stage_functions import user_functions
from .streams import Batched, Stream
from .user_code import UserCode, UserError

RESUMED_BATCHES = (
    "your code batches its data: after resuming, the batches already seen in this pass are skipped; where your code "
    "shuffles, their order is different"
)
ONE_PROCESS = "use_multiprocessing of a PyDataset does nothing here: its batches are loaded one at a time"


@dataclass(frozen=True)
class Own:
    """A user's training: what the loop needs, and what viewers are shown."""

    code: UserCode
    model: keras.Model
    pipeline: OwnPipeline
    callbacks: list[keras.callbacks.Callback]
    inapplicable: dict[str, str]  # options that have no effect on this training, each with the reason
    own_compile: bool  # the user's code has compiled the model
    xla: Xla
    distribution: tf.distribute.Strategy | None = None

    @functools.cached_property
    def overrides_fit(self) -> bool:
        return overrides_fit(self.model)

    def create_variables(self, spec: Any) -> None:
        """Create the variables of the model from what a batch looks like where Keras' fit gets it."""
        with _scope(self.distribution):
            variables.create(self.model, spec, self.distribution, self.code)

    def callbacks_for(self, loop: Loop, epochs: int) -> keras.callbacks.CallbackList:
        """What tells the loop of epochs, and the user's callbacks with it."""
        if not self.callbacks and not self.overrides_fit:
            return EpochCallbacks(loop, self.model)
        return OwnCallbacks(loop, self.model, epochs, self.callbacks)

    def state(self) -> State:
        """All objects whose state changes during training."""
        return State(self.model, self._kept)

    def _kept(self) -> Found:
        modules = [Module(vars(module)) for module in self.code.modules()]
        return walk([self.model, *self.callbacks, *modules], self.code.owns)

    def record_code(self, run: Run) -> None:
        """Record the files that the code has imported since it was built."""
        code_files.add(run, self.code.home, self.code.files())

    def stage_functions(self) -> dict[str, list[str]]:
        """The functions of the user's that a pipeline of their own calls, by the kind of operation."""
        data = self.pipeline.train
        return user_functions(data.data, self.code) if isinstance(data, Batched) else {}

    def warn_of_draws(self, graph: Any, report: RunReport) -> None:
        """What in a step's graph begins its random numbers anew on resuming."""
        random_draws.warn(graph, self.code, self.model, report)

    def not_applied(self, options: Options) -> list[dict[str, str]]:
        """Those of the inapplicable options that are not at their default."""
        return inapplicable.not_applied(options, self.inapplicable)

    def tell(self, options: Options, report: RunReport, resumed_at: int | None) -> None:
        """Emit warnings about options and settings that have no effect on this training."""
        report.not_applied(self.not_applied(options))
        if self.model.run_eagerly:
            report.warn("run_eagerly", "run_eagerly does nothing here: steps run as a graph", "print with tf.print")
        if _wants_processes(self.pipeline.train) or _wants_processes(self.pipeline.held_out):
            report.warn("use_multiprocessing", ONE_PROCESS, "set only workers, if threads may load in parallel")
        if resumed_at is not None and (names := code_files.gone_on(report.run, resumed_at)):
            report.warn("code_changed", f"the run goes on from step {resumed_at} with changed code: {', '.join(names)}")
        if resumed_at is not None or options.run.checkpoint != "off":
            self._warn_of_state(report)
        if resumed_at is not None and self.pipeline.train.kind == "batched":
            report.warn("resumed_batches", RESUMED_BATCHES)
        if resumed_at is not None and self.callbacks:
            report.warn("callbacks_anew", "your callbacks start again: what they had counted before is not restored")

    def _warn_of_state(self, report: RunReport) -> None:
        data = self.pipeline.train
        if isinstance(data, Indexed) and (places := py_dataset_state.inexact(data.data)):
            what = f"{'; '.join(places[:3])}: no checkpoint holds that, so that a resumed run loads other batches"
            report.warn("pydataset_state", what, py_dataset_state.INSTEAD)

    def save(self, report: RunReport) -> None:
        """Save the model so that plain Keras can load it; where Keras cannot save it completely, save its weights.

        The optimizer settings from the options are left out: the learning-rate schedule is a class of gputui.
        """
        compiled, self.model.compiled = self.model.compiled, self.own_compile
        try:
            self.model.save(report.run.file("model.keras"))
        except Exception as fault:  # a subclassed model may have no get_config
            if disk.refusal(fault) is not None:
                raise
            traceback.print_exc()
            self.model.save_weights(report.run.file("model.weights.h5"))
            report.warn(
                "weights_only",
                f"Keras cannot save this whole model ({type(fault).__name__}); its weights are in model.weights.h5",
                "add a get_config method to the model's class",
                "run.save_model",
            )
        finally:
            self.model.compiled = compiled


def build(
    options: Options, distribution: tf.distribute.Strategy | None, report: RunReport, share: Share | None = None
) -> Own:
    """Run the user's function and compile its model as the options say; raises UserError."""
    workload = options.workload
    assert workload.entry is not None
    replicas = distribution.num_replicas_in_sync if distribution else 1
    report.phase("building", workload.entry.rpartition("/")[2])
    settings = GlobalSettings()
    try:
        code_files.begin(report.run)
    except code_files.CodeChangedError as fault:
        raise UserError(*str(fault).split("\n")) from None
    with _scope(distribution), settings:  # a module may create its model when it is imported
        code = UserCode(workload.entry, workload.folder or ".")
    code_files.add(report.run, code.home, code.files())
    for name in code.shadowed():
        report.warn(
            "shadowed",
            f"{name} beside {code.file.name} is not used: another module {name[:-3]} was imported before it",
            "rename the file",
            name,
        )
    with _scope(distribution), settings, code.blamed():
        found = returned.checked(code.function(context.of(options, replicas)), code.entry.function)
        own_compile = bool(found.model.compiled)
        own_optimizer = own_compile or found.optimizer is not None
        pipeline = opened(options, replicas, found, code.file, report, share)
        handed = inapplicable.handed(found, options, pipeline.train, own_optimizer)
        fitting_batches.check(found.model, pipeline)
        tell_overridden(found.model, options, report)
        compiler = compile_model(found, options, pipeline)
        if not overrides_fit(found.model):  # else what it makes of the batches is not known yet
            variables.create(found.model, pipeline.spec, distribution, code)
        if pipeline.held_out is not None and distribution is None:
            evaluable.check(found.model, found.loss, pipeline.held_out.spec)
    settings.tell(code, report)
    code_files.add(report.run, code.home, code.files())
    follows = pipeline.global_batch_size == options.input.batch_size * replicas
    useless = inapplicable.reasons(handed, follows)
    callbacks = usable(found.callbacks, options, report, writes=share is None or share.index == 0)
    return Own(code, found.model, pipeline, callbacks, useless, own_compile, compiler, distribution)


def overrides_fit(model: keras.Model) -> bool:
    """Whether the model has a fit of its own around Keras' fit."""
    return type(model).fit is not keras.Model.fit


def _scope(distribution: tf.distribute.Strategy | None) -> contextlib.AbstractContextManager[Any]:
    return distribution.scope() if distribution else contextlib.nullcontext()


def _wants_processes(stream: Stream | None) -> bool:
    return isinstance(stream, Indexed) and bool(stream.data.use_multiprocessing)
