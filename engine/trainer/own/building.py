"""Builds a user's own training: calls their function, and applies the options to what it returns, each or with a
reason.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ... import plan
from ...files import writing
from ...options import BY_KEY, OPTIONS, Options
from ...options.own_code import Handed, obstacle
from ...runs import code_copy, code_files
from ..checkpoint import callback_state, object_graph
from ..checkpoint.callback_state import Arrays
from ..checkpoint.object_graph import Collected, Module, optimizers, walk
from ..checkpoint.training_state import KeptValue, State
from ..common.versions import replaced
from ..data.batches import Nature, Share
from ..data.finishing import end, fits_devices
from ..data.pipeline import Pipeline, Samples
from ..measure.run_report import RunReport, unapplied
from ..setup import compiling
from ..setup.compiling import Xla
from . import model_checks, previews, returned, unsaved_state
from .dataset_facts import READS_TABLE, caches_draws, caches_in_file, reshuffles, share_a_shuffle
from .iterated import seed_torch
from .model_checks import check_batches, check_evaluation, check_steps, custom_step
from .py_dataset import Indexed
from .returned import Returned
from .streams import Batched, prefetches
from .unsaved_state import inexact_iterable
from .user_code import UserCode, UserError
from .user_pipeline import opened, user_functions

RESUMED_BATCHES = (
    "your code batches its data: after resuming, the batches already seen in this pass are skipped; if Python code "
    "in it draws random numbers, it draws others"
)
RESHUFFLED = "the shuffle of your tf.data.Dataset has another order in a resumed run"
SHUFFLED_BY_OPTION = (
    "return single samples without it, and `map` (None: nothing to map), so that input.shuffle shuffles them; "
    "keras.utils.image_dataset_from_directory and the like: shuffle=False, batch_size=None"
)
CHANGED = "a resumed run makes the earlier batches of its pass again, and then draws others"
CACHED_DRAWS = "your Dataset caches what it draws at random: a resumed run fills the cache anew, with other draws"
CACHE_BEFORE = "cache before the function that draws"
COUNTED = "draw by the number of the sample, such as tf.random.stateless_uniform with Dataset.enumerate()"
IN_VARIABLE = "keep what the training changes in a tf.Variable, such as one with the values of all keys"
COUNTED_ON = (
    "fit notices the end of train by a step without a batch, which counts on the optimizer's iterations and the seeds "
    "of random layers: over several replicas it does not here, and losses may differ from fit's"
)
SHARED_SHUFFLE = (
    "train and validation come from one Dataset that shuffles again each time it is read: samples of the validation "
    "are trained on"
)
ONE_ORDER = "give its shuffle reshuffle_each_iteration=False, or shuffle train alone, after they are parted"
KNOWN_LENGTH = "give it its length by tf.data.experimental.assert_cardinality, for both"
BATCH_SIZE = "input.batch_size"
FLOAT32_OUTPUT = 'give its last layer dtype="float32", as TensorFlow\'s guide to mixed precision says'
LEFT_OUT = "keep the code in a folder of its own"
NOT_COPIED = "import by name, without the path of your folder in sys.path"
MOST_NAMED = 4
STATEFUL_DRAWS = (
    "draw with keras.random and a keras.random.SeedGenerator that the model keeps, or with a tf.random.Generator: "
    "their states are saved"
)
ONE_PROCESS = "use_multiprocessing of a PyDataset does nothing here: its batches are loaded one at a time"


@dataclass(frozen=True)
class Context:
    """The argument of `build`: settings that the code may follow. Code that batches uses `global_batch_size`."""

    batch_size: int  # samples in one step on each replica
    global_batch_size: int  # samples in one step
    replicas: int
    steps_per_epoch: int | None  # train.steps_per_epoch; None: one pass over the data
    epochs: int
    seed: int
    precision: str  # the policy, which is already set, such as mixed_bfloat16
    map_parallel_calls: int | None  # for Dataset.map(num_parallel_calls=), as input.parallel_calls says
    args: Mapping[str, Any] = field(default_factory=dict)  # workload.args


def context_of(options: Options, replicas: int) -> Context:
    assert options.train.seed is not None, "the launcher draws a seed"
    calls = options.input.parallel_calls
    parallel = {"off": None, "auto": tf.data.AUTOTUNE}
    return Context(
        batch_size=options.input.batch_size,
        global_batch_size=plan.global_batch(options, replicas),
        replicas=replicas,
        steps_per_epoch=options.train.steps_per_epoch,
        epochs=options.train.epochs,
        seed=options.train.seed,
        precision=keras.config.floatx() if options.precision.policy == "float32" else options.precision.policy,
        map_parallel_calls=parallel[calls] if isinstance(calls, str) else calls,
        args=dict(options.workload.args),
    )


@dataclass(frozen=True)
class Own:
    """The training of a user's own code: its code, what that has returned, and the data and callbacks made of it."""

    code: UserCode
    returned: Returned
    pipeline: Pipeline
    callbacks: list[keras.callbacks.Callback]
    inapplicable: dict[str, str]  # options that have no effect on this training, each with the reason
    own_compile: bool  # the user's code has compiled the model
    own_build: bool  # the user's code has made the model's variables
    xla: Xla
    distribution: tf.distribute.Strategy | None

    @property
    def model(self) -> keras.Model:
        return self.returned.model

    @property
    def in_fit(self) -> bool:
        """True for a script, which calls fit itself: a fit of the model's class has already been called."""
        return self.code.entry.function is None

    def end_iterators(self, iterators: Iterable[Any]) -> None:
        """End the iterators if they fill a file of Dataset.cache, whose lock they hold."""
        if caches_in_file(self.returned.train) or caches_in_file(self.returned.validation):
            for iterator in iterators:
                if hasattr(iterator, "_iterator_resource"):
                    end(iterator)

    @functools.cached_property
    def kept(self) -> list[KeptValue]:
        """What the code of callbacks changes besides the model."""
        return unsaved_state.of_callbacks(self.callbacks)

    def create_variables(self, spec: Any) -> None:
        """Create the model's variables for batches of the type `spec`. Raises UserError."""
        with _scope(self.distribution):
            model_checks.create(self.model, spec, self.distribution, self.code)

    def state(self) -> State:
        """Return all objects that change while this training trains, for checkpoints."""

        def found() -> Collected:
            modules = [Module(vars(module)) for module in self.code.modules()]
            kept = walk([self.model, *self.callbacks, *modules], self.code.owns)
            # What its functions change follows from the batches that are made.
            kept.variables += [(f"data/{variable.name}", variable) for each in self._natures for variable in each.reads]
            return kept

        return State(self.model, found)

    @property
    def _natures(self) -> list[Nature]:
        return [stream.nature for stream in self.pipeline.streams]

    def stage_functions(self) -> dict[str, list[str]]:
        """Return the user's functions in a tf.data.Dataset that batches, with places, by the kind of operation."""
        data = self.pipeline.train
        return user_functions(data.data, self.code) if isinstance(data, Batched) else {}

    def warn_of_draws(self, graph: Any, report: RunReport) -> None:
        """Warn about operations in a step's graph whose random numbers start again when the run is resumed."""
        places: list[str] = []
        for draw in object_graph.draws(graph):
            theirs = [line for line in draw.lines if self.code.owns_file(line[0])]
            place = f"a step of {type(self.model).__name__}"
            if theirs:
                file, line, function = theirs[-1]
                place = f"{function} ({self.code.name_of(file)}:{line})"
            places.append(f"{draw.name} in {place}")
        if places := list(dict.fromkeys(places)):
            more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
            verb = "draws" if len(places) == 1 else "draw"
            what = (
                f"{', '.join(places[:MOST_NAMED])}{more} {verb} from a random state of TensorFlow that cannot be "
                "saved: it starts again, so that losses differ from those of a run that was not interrupted"
            )
            report.warn("random_anew", what, STATEFUL_DRAWS)

    def warn(self, options: Options, report: RunReport, resumed_at: int | None) -> None:
        """Warn of what has no effect on this training, and of state that is not resumed from `resumed_at`."""
        report.not_applied(unapplied(self.inapplicable, options))
        if any(isinstance(each, Indexed) and each.data.use_multiprocessing for each in self.pipeline.streams):
            report.warn("use_multiprocessing", ONE_PROCESS, "set only workers, if threads may load in parallel")
        if resumed_at is not None and (names := code_files.record_step(report.run, resumed_at)):
            report.warn("code_changed", f"the run goes on from step {resumed_at} with changed code: {', '.join(names)}")
        if resumed_at is not None or options.run.checkpoint != "off":
            self._warn_of_state(report, resumed_at is not None)
        of_arrays = self.in_fit and self.returned.samples is not None  # which are the same again
        if resumed_at is not None and isinstance(self.pipeline.train, Batched) and not of_arrays:
            report.warn("resumed_batches", RESUMED_BATCHES)

    def _warn_of_state(self, report: RunReport, resumed: bool) -> None:
        data = self.pipeline.train
        if reshuffles(self.returned.train) and not isinstance(data, Batched):
            report.warn("data_state", RESHUFFLED, SHUFFLED_BY_OPTION)
        indexed = [stream.data for stream in self.pipeline.streams if isinstance(stream, Indexed)]
        ahead = self.pipeline.options.input.across_epochs is True
        if places := [place for each in indexed for place in unsaved_state.inexact(each, ahead)]:
            what = f"{'; '.join(places[:3])}: no checkpoint holds that, so that a resumed run loads other batches"
            report.warn("pydataset_state", what, unsaved_state.INSTEAD)
        if places := [each.text for each in self.kept if not resumed and each.values and not each.packed(Arrays())]:
            what = f"{'; '.join(places[:3])}: no checkpoint holds that, so that it starts again in a resumed run"
            report.warn("callbacks_anew", what, unsaved_state.GIVE_STATE)
        repeated = isinstance(data, Batched) and self.pipeline.apart  # from their values at the begin of the epoch
        natures = self._natures[1:] if repeated else self._natures
        if names := [variable.name.partition(":")[0] for each in natures for variable in each.writes]:
            report.warn("data_state", f"a function of your Dataset changes {', '.join(names[:3])}: {CHANGED}", COUNTED)
        if isinstance(data, Batched) and caches_draws(data.data):
            report.warn("data_state", CACHED_DRAWS, CACHE_BEFORE)
        if any(each.depends == READS_TABLE for each in self._natures):
            report.warn("data_state", f"{READS_TABLE}: no checkpoint holds it", IN_VARIABLE)
        places, instead = inexact_iterable(self.returned.train, self.code.owns_file)
        if places:
            report.warn("data_state", "; ".join(places[:3]), instead)

    def show_preview(self, epoch: int, state: State, report: RunReport, writes: bool) -> None:
        """Write what the user's function `preview`, if there is one, shows after this epoch, which counts from 1."""
        if (function := self.returned.preview) is not None:
            previews.show(self.code, lambda: function(self.model), epoch, state, report, writes)

    def save(self, report: RunReport, path: Path, named: Path | None = None, option: str = "run.save_model") -> Path:
        """Save the model for plain Keras, and return the file: its weights alone, with a warning about `option` that
        names the file `named`, if Keras cannot save the whole. Learning-rate schedules of gputui's own are left out.
        """
        compiled, self.model.compiled = self.model.compiled, self.own_compile
        try:
            self.model.save(path)
            return path
        except Exception as fault:  # a subclassed model may have no get_config
            if writing.refusal(fault) is not None:
                raise
            traceback.print_exc()
            weights, final = (file.with_suffix(".weights.h5") for file in (path, named or path))
            self.model.save_weights(weights)
            report.warn(
                "weights_only",
                f"Keras cannot save this whole model ({type(fault).__name__}); its weights are in {final.name}",
                "add a get_config method to the model's class",
                option,
            )
            return weights
        finally:
            self.model.compiled = compiled


@contextlib.contextmanager
def opened_code(
    options: Options, distribution: tf.distribute.Strategy | None, report: RunReport
) -> Iterator[tuple[UserCode, GlobalSettings]]:
    """A context in which the user's code runs, under the strategy, and with what it sets globally noted. Raises
    UserError.
    """
    workload = options.workload
    assert workload.entry is not None
    report.phase("building", workload.entry.rpartition("/")[2])
    copy = code_copy.trained(report.run, options)
    try:
        code_files.begin(report.run, copy)
    except code_files.CodeChangedError as fault:
        raise UserError(*str(fault).split("\n")) from None
    code = UserCode(workload.entry, workload.folder or ".", copy)
    if left_out := code_copy.read(report.run).left_out:
        report.warn("code_not_copied", f"{left_out}; the run trains your files as they are", LEFT_OUT)
    for name in code.shadowed():
        report.warn(
            "shadowed",
            f"{name} next to {code.file.name} is not used: another module {name[:-3]} was imported before it",
            "rename the file",
            name,
        )
    with _scope(distribution), GlobalSettings() as settings:  # a module may create its model when it is imported
        yield code, settings


def build(
    options: Options, distribution: tf.distribute.Strategy | None, report: RunReport, share: Share | None = None
) -> Own:
    """Run the user's function, and return the training of what it returns. Raises UserError."""
    replicas = distribution.num_replicas_in_sync if distribution else 1
    with opened_code(options, distribution, report) as (code, settings):
        function = code.load()
        seed_torch(options.train.seed)
        code.record(report.run)
        with code.blamed():
            given = function(context_of(options, replicas))
        return made_of(code, given, options, distribution, report, settings, share)


def made_of(
    code: UserCode,
    given: Any,
    options: Options,
    distribution: tf.distribute.Strategy | None,
    report: RunReport,
    settings: GlobalSettings,
    share: Share | None = None,
) -> Own:
    """Compile the model that the user's code has `given`, as the options require, and return the training. Raises
    UserError.
    """
    replicas = distribution.num_replicas_in_sync if distribution else 1
    with _scope(distribution), code.blamed():
        parts = returned.checked(given, code.entry.function or "fit")
        seed_torch(options.train.seed)  # if the function has imported torch
        floatx, policy = keras.config.floatx(), options.precision.policy
        if floatx != "float32" and policy != "float32":
            what = f"your code sets floatx to {floatx}, and the preset precision.policy to {policy}"
            hint = "leave out one of them: precision.policy=float32 follows keras.config.set_floatx"
            raise UserError(what, hint)
        own_compile, own_build = bool(parts.model.compiled), bool(parts.model.built)
        pipeline = opened(options, replicas, parts, code.file, report, share)
        train = pipeline.train
        handed = Handed(
            data=train.kind,
            own_optimizer=own_compile or parts.optimizer is not None,
            images=isinstance(train, Samples) and train.images,
            validation=parts.validation is not None,
            workers=train.workers if isinstance(train, Indexed) else 1,
            hosted=not fits_devices(train.spec),
            prefetches=options.input.prefetch == "off" and prefetches(parts.train),
            held_back=pipeline.held_back,
            begins_anew=train.begins_anew,
            follows=pipeline.follows,
        )
        check_batches(parts.model, train)
        if share_a_shuffle(parts.train, parts.validation):
            report.warn("shared_shuffle", SHARED_SHUFFLE, ONE_ORDER)
        warn_of_overridden(parts.model, options, report)
        compiler = compile_model(parts, options, pipeline)
        as_in_fit = options.input.across_epochs is not True and not options.input.one_batch
        batches = int(train.data.cardinality()) if isinstance(train, Batched) and train.epoch_is_pass else 0
        if batches == tf.data.UNKNOWN_CARDINALITY and as_in_fit and not compiler.compiles:
            pipeline = replace(pipeline, ends_by_a_step=replicas == 1)
            if replicas > 1:
                report.warn("unknown_length", COUNTED_ON, KNOWN_LENGTH)
        check_steps(parts.model, parts.callbacks)
        if type(parts.model).fit is keras.Model.fit or code.entry.function is None:  # else its fit may change batches
            model_checks.create(parts.model, pipeline.spec, distribution, code)
        narrow = model_checks.narrow_outputs(parts.model, pipeline.spec)
        if pipeline.held_out is not None and distribution is None:
            check_evaluation(parts.model, parts.loss, pipeline.held_out.spec)
    settings.warn(code, options, report)
    if narrow:
        what = f"the output of {type(parts.model).__name__} is {' and '.join(narrow)}, less exact than float32"
        report.warn("narrow_output", what, FLOAT32_OUTPUT, "precision.policy")
    code.record(report.run)
    if names := code.not_copied():
        named = ", ".join(names[: code_files.NAMED])
        report.warn("code_live", f"not imported from the run's copy of the code: {named}", NOT_COPIED)
    reasons = {info.key: obstacle(info.about.own, handed) for info in OPTIONS}
    inapplicable = {key: why for key, why in reasons.items() if why}
    if pipeline.global_batch_size == plan.global_batch(options, replicas):  # it follows the option
        inapplicable.pop(BATCH_SIZE, None)
    callbacks = usable(parts.callbacks, options, report, writes=share is None or share.index == 0)
    return Own(code, parts, pipeline, callbacks, inapplicable, own_compile, own_build, compiler, distribution)


def _scope(distribution: tf.distribute.Strategy | None) -> contextlib.AbstractContextManager[Any]:
    return distribution.scope() if distribution else contextlib.nullcontext()


# ---- compile --------------------------------------------------------------------------------------


_TOGETHER = "compile.steps_per_execution"


def compile_model(parts: Returned, options: Options, pipeline: Pipeline) -> Xla:
    """Compile the model, and return whether XLA compiles its steps, and why. A compiled one keeps its optimizer, loss
    and metrics, and with `compile.xla: auto` its jit_compile, unless XLA would crash. Raises UserError.
    """
    model = parts.model
    compiler = compiling.xla_of_compiled(options, model) if model.compiled else compiling.xla_of(options, model)
    if compiler.compiles and pipeline.replicas > 1 and custom_step(model):
        raise UserError(
            f"{type(model).__name__} has a train_step of its own, which XLA cannot compile over several replicas: "
            "it assigns variables",
            "set compile.xla=false, or strategy.kind=single",
        )
    if model.compiled:
        model.jit_compile = compiler.compiles
        model.steps_per_execution = options.compile.steps_per_execution
    else:
        per_epoch = plan.steps_per_epoch(options.train, pipeline.batches_per_pass)
        steps, replicas = per_epoch * options.train.epochs, model.distribute_strategy.num_replicas_in_sync
        model.compile(
            optimizer=parts.optimizer or compiling.optimizer_of(options, steps, per_epoch, replicas),
            loss=parts.loss,
            metrics=parts.metrics,
            jit_compile=compiler.compiles,
            steps_per_execution=options.compile.steps_per_execution,
        )
        if parts.optimizer is None and compiling.scheduled(options.train):
            # A model that the user's callbacks save must load in plain Keras, which does not have gputui's schedule.
            model.get_compile_config = lambda: None
    # Keras decides in each replica separately whether gradients are applied, which a strategy does not allow.
    for own in optimizers(model) if pipeline.replicas > 1 else ():
        if (steps := own.gradient_accumulation_steps) and steps > 1:
            raise UserError(
                f"{type(own).__name__}(gradient_accumulation_steps={steps}) of your code: Keras cannot accumulate "
                "gradients over several replicas",
                "leave it out: the replicas' batches add up anyway; a batch too large for the memory is computed in "
                "parts with train.micro_batches",
            )
    return compiler


def warn_of_overridden(model: keras.Model, options: Options, report: RunReport) -> None:
    """Warn about settings in the user's compile that an option overrides, if this option was not set."""
    theirs = getattr(getattr(model, "_compile_config", None), "config", {})
    key, value, asked = _TOGETHER, options.compile.steps_per_execution, theirs.get("steps_per_execution")
    if asked not in (None, value) and value == type(options.compile)().steps_per_execution:
        message = f"steps_per_execution={asked} of your compile does nothing here: {key} is {value}"
        report.warn("overridden", message, f"set {key}={asked}", key)
    if options.compile.xla == "auto" and theirs.get("jit_compile") and (chip := compiling.aborting_chip()):
        report.warn(
            "overridden", f"jit_compile=True of your compiled model does nothing here: {chip}", option="compile.xla"
        )


_WRITERS = (keras.callbacks.ModelCheckpoint, keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)


def usable(
    theirs: Sequence[keras.callbacks.Callback], options: Options, report: RunReport, writes: bool = True
) -> list[Any]:
    """Return those of the user's callbacks (`theirs`) that this run calls: a run that only measures leaves out, with a
    warning, those that write files, and so do all machines but the chief, which alone `writes`. Raises UserError.
    """
    if any(isinstance(callback, keras.callbacks.BackupAndRestore) for callback in theirs):
        raise UserError(
            "BackupAndRestore would train epochs twice here; run.checkpoint replaces it",
            "remove it, set run.checkpoint=epoch, and continue with gputui resume",
        )
    callback_state.require_pair(theirs)
    measures = options.run.measure_seconds is not None
    if writes and not measures:
        return list(theirs)
    why = "a run with run.measure_seconds does not touch your files" if measures else "the chief alone writes files"
    for name in (type(callback).__name__ for callback in theirs if isinstance(callback, _WRITERS)):
        report.warn("callback_left_out", f"{name} does nothing here: {why}", option=name)
    return [callback for callback in theirs if not isinstance(callback, _WRITERS)]


@dataclass(frozen=True)
class Setting:
    """A function of a module that sets something globally, and the option with the same effect."""

    place: str
    name: str
    option: str
    obeyed: bool = False  # a call is carried out; otherwise it has no effect in a run


SETTINGS = (
    Setting("tensorflow.config.threading", "set_intra_op_parallelism_threads", "device.intra_op_threads"),
    Setting("tensorflow.config.threading", "set_inter_op_parallelism_threads", "device.inter_op_threads"),
    Setting("tensorflow.config.experimental", "set_memory_growth", "device.memory_growth"),
    Setting("tensorflow.config.experimental", "set_virtual_device_configuration", "device.memory_limit_mb"),
    Setting("tensorflow.config", "set_logical_device_configuration", "device.memory_limit_mb"),
    Setting("tensorflow.config", "set_visible_devices", "device.visible"),
    Setting("tensorflow.config.experimental", "set_visible_devices", "device.visible"),
    Setting("tensorflow.config.optimizer", "set_jit", "compile.xla"),
    Setting("tensorflow.config.experimental", "enable_tensor_float_32_execution", "precision.tf32", obeyed=True),
    Setting("tensorflow.config.experimental", "enable_op_determinism", "train.deterministic", obeyed=True),
    Setting("keras.mixed_precision", "set_global_policy", "precision.policy", obeyed=True),
    Setting("keras.mixed_precision", "set_dtype_policy", "precision.policy", obeyed=True),
    Setting("keras.config", "set_dtype_policy", "precision.policy", obeyed=True),
)


class GlobalSettings(contextlib.ExitStack):
    """A context around the user's code that records calls of SETTINGS, and carries out only those that are `obeyed`."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[tuple[str, str, int], Setting] = {}

    def __enter__(self) -> GlobalSettings:
        for setting in SETTINGS:
            names = setting.place.split(".")
            module: Any = tf if names[0] == "tensorflow" else keras
            for name in names[1:]:
                module = getattr(module, name)
            # tf.keras has its own copies of Keras' modules.
            for each in (module, sys.modules.get(f"keras._tf_keras.{setting.place}")):
                if hasattr(each, setting.name):
                    noted = self._noting(setting, getattr(each, setting.name))
                    self.enter_context(replaced(each, **{setting.name: noted}))
        return self

    def _noting(self, setting: Setting, original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> None:
            caller = sys._getframe(1)
            self._calls[setting.name, caller.f_code.co_filename, caller.f_lineno] = setting
            if setting.obeyed:
                original(*arguments, **named)

        return noted

    def warn(self, code: UserCode, options: Options, report: RunReport) -> None:
        is_script = options.workload.is_script
        for (name, file, line), setting in self._calls.items():
            unset = options.value(setting.option) == BY_KEY[setting.option].default
            if not code.owns_file(file) or (is_script and setting.obeyed and unset):
                continue
            effect = f"takes effect, and the run's {setting.option} does not" if setting.obeyed else "does nothing here"
            what = f"{name} in {code.name_of(file)}:{line} {effect}: gputui sets this up before your code runs"
            hint = f"set {setting.option} in the preset and remove the call"
            hint = f"give --set {setting.option}=... instead" if is_script else hint
            report.warn("set_by_option", what, hint, setting.option)
