"""The part of an exported script about a user's own code (workload.entry): its data, its call, its compile and fit."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import entry as entries
from .. import runs
from ..interpreter import interpreter
from ..options import Options, options_json
from ..options.training import TESTED
from ..plan import SEVERAL_REPLICAS
from ..presets import Preset, paths
from ..runs.event_reading import events_of
from ..runs.events import Warn
from . import compile_and_fit as training_part
from .data import CACHE_FILE, WHOLE_TRAINING, cache_file
from .engine_source import Script, literal
from .specialised import Partly

BATCHES = "trainer/own/iterated.py"
OPENING = {"as_batch": BATCHES, "copied": BATCHES, "first_again": "trainer/exported.py"}
ARRAYS = object()  # arrays that are not None


def data(script: Script, options: Options, form: Form) -> None:
    """Write the code that turns train and validation into the data that Keras' fit takes, and that defines per_pass."""
    script.section("data")
    if not form.cached:  # the data may depend on the training
        options = options.with_values({"input.cache": "off"})
    file = ""
    for role, opened in sorted(form.iterated.items()):
        for name, file in OPENING.items():
            if name in opened:
                script.define(file, name)
        script.text(f"{role} = {opened}")
    if form.kinds & {"arrays", "mapped"}:
        file = cache_file(script, options, " or your code")
        script.define("plan.py", "batches_per_pass")
        _functions(script, options, form)
    if "arrays" in form.kinds and not form.plain:
        script.define("trainer/own/streams.py", "of_numpy")
    if form.is_split:
        script.define("trainer/data/sources.py", "split_order")
        if not form.plain:
            script.define("trainer/own/streams.py", "as_array", "as_fitted")
            script.text("train = tf.nest.map_structure(as_array, as_fitted(of_numpy(train)))")
        script.text("total = len(tf.nest.flatten(train)[0])")
        drawn = "trained, held_out = split_order(total, VALIDATION_SPLIT, SEED)"
        script.add(drawn, "train.validation_split", "train.seed")
        script.text("validation = tf.nest.map_structure(lambda array: array[held_out], train)")
        script.text("train = tf.nest.map_structure(lambda array: array[trained], train)")
    if form.kinds - {"pydataset"}:
        functions = ("one_batch", "ahead") if options.input.one_batch else ("ahead",)
        constants = WHOLE_TRAINING | ({} if form.train == "batched" else {"on_demand": False})
        script.define("trainer/data/finishing.py", *functions, options=options, constants=constants)
    _training_data(script, options, form, file)
    _evaluated_data(script, options, form, file)


def _training_data(script: Script, options: Options, form: Form, file: str) -> None:
    needed = options.train.steps_per_epoch is None
    if form.train == "pydataset":
        script.text("per_pass = len(train)")
        _copied(script, options, "train")
        return
    if form.train == "batched":
        if needed:
            script.text(f"per_pass = {_count(script, options, form)}")
        if not _epoch_is_pass(options):
            keys = ["input.across_epochs"] if options.input.across_epochs is True else []
            script.add("train = train.repeat()", *keys)
        elif "train" in form.iterated and not form.counted:
            script.text("train = train.apply(tf.data.experimental.assert_cardinality(per_pass))")
    else:
        _elements(script, options, "train", form.train, form)
        drop = f"drop_remainder={options.input.drop_remainder}"
        counted = f"batches_per_pass(elements.samples, global_batch, replicas, {drop})"
        script.add(f"per_pass = {counted}", "input.drop_remainder")
        sizes = "Sizes(global_batch, per_pass, SEED)"
        if form.begins_anew:
            _batches_of_epochs(script, options, form, sizes)
        else:
            script.text(f"train = {_batches(options, form, f'{sizes}{file}')}")
    if "class_weight" in form.given:
        script.define("trainer/own/returned.py", "weigh")
        script.text('train = weigh(train, made["class_weight"])')
    # Keras' fit makes each batch of such a Dataset at its step.
    on_demand = form.train == "batched" and options.input.across_epochs is not True and options.input.prefetch == "auto"
    batches = "one_batch(train)" if options.input.one_batch else "train"
    script.text(f"train = ahead({batches}{', True' if on_demand else ''})")


def _count(script: Script, options: Options, form: Form) -> str:
    """Return the expression for the number of batches in a pass over train."""
    if form.counted:
        return "int(train.cardinality())"
    if options.strategy.kind != "mirrored":
        return f"{form.batches}  # batches in train, counted when this script was written"
    if "train" in form.iterated and "samples" not in form.given:
        script.define("trainer/exported.py", "counted")
        return "counted(train)"
    script.define("trainer/exported.py", "batches_in")
    return 'batches_in(train, made.get("samples"), True)'


def _batches(options: Options, form: Form, arguments: str) -> str:
    made = f"training_batches(elements, {arguments})"
    return f"augmented_batches({made}, SEED)" if _augments(options, form) else made


def _augments(options: Options, form: Form) -> bool:
    return options.input.augment != "off" and form.images


def _batches_of_epochs(script: Script, options: Options, form: Form, sizes: str) -> None:
    """Write train as batches of one epoch, which Keras' fit makes from the number of the epoch when it begins."""
    given = options.train.steps_per_epoch
    script.text('with tf.device("CPU:0"):\n    epoch = tf.Variable(0, trainable=False, dtype=tf.int64)')
    script.text("\n\ndef batches_of_epoch(_):")
    if given is None:
        script.text(f"    return {_batches(options, form, f'{sizes}, epoch')}.take(per_pass)\n\n")
    else:
        script.add(f"    step = epoch * {given}", "train.steps_per_epoch")
        script.text(f"    batches = {_batches(options, form, f'{sizes}, step // per_pass')}")
        script.text(f"    return batches.skip(step % per_pass).take({given})\n\n")
    steps = "per_pass" if given is None else str(given)
    script.text("train = tf.data.Dataset.range(1).flat_map(batches_of_epoch)")
    script.text(f"train = train.apply(tf.data.experimental.assert_cardinality({steps}))")


def _epoch_is_pass(options: Options) -> bool:
    """Return True if Keras' fit gets one pass over a Dataset that your code has batched, and begins each anew."""
    given = options.input
    return options.train.steps_per_epoch is None and given.across_epochs is not True and not given.one_batch


def _evaluated_data(script: Script, options: Options, form: Form, file: str) -> None:
    some = '.take(made["validation_steps"])' if "validation_steps" in form.given else ""
    own_file = file and ', lambda _name: cache_file("test")'
    for role, kind, taken_, of_role in (("validation", form.validation, some, file), ("test", form.test, "", own_file)):
        if kind == "pydataset":
            _copied(script, options, role)
        elif kind == "batched":
            taken = ""
            if f"{role}_samples" in form.given and not getattr(form, f"counted_{role}") and not taken_:
                script.define("trainer/exported.py", "batches_in")
                taken = f'.take(batches_in({role}, made["{role}_samples"], True))'
            script.text(f"{role} = ahead({role}{taken})")
        elif kind:
            _elements(script, options, role, kind, form)
            script.text("per_evaluation = batches_per_pass(elements.samples, global_batch, replicas)")
            script.text(f"{role} = validation_batches(elements, Sizes(global_batch, per_evaluation, SEED){of_role})")
            script.text(f"{role} = ahead({role}{taken_})")


def _elements(script: Script, options: Options, role: str, kind: str, form: Form) -> None:
    """Write the definition of `elements`, the samples of a role: train or validation."""
    given, fields = form.given, _known(form, options.input.cache)
    load = 'made["map"]' if "map" in given else "None"
    if role != "train" and "validation_map" in given:
        load = 'made.get("validation_map", made.get("map"))'
    vary = 'made["augment"]' if "augment" in given and role == "train" else "None"
    functions = "".join(f", {name}={made}" for name, made in (("load", load), ("vary", vary)) if name not in fields)
    data = role if (form.is_split and role != "test") or form.plain else f"of_numpy({role})"
    if kind == "arrays" and form.plain:
        script.text('with tf.device("/CPU:0"):')
        script.text(f"    arrays = tf.nest.map_structure(tf.identity, {data})")
        script.text("samples = tf.data.Dataset.from_tensor_slices(arrays)")
        drawn = ", arrays=arrays" if fields.get("arrays", ARRAYS) is ARRAYS else ""
        whole = "" if "whole" in fields else ", whole=True"
        script.text(f"elements = Elements(samples, int(samples.cardinality()){functions}{drawn}{whole})")
    elif kind == "arrays":
        constants = {"elements": fields} | {name: None for name in ("load", "vary") if name in fields}
        script.define("trainer/exported.py", "samples_of", options=options, constants=constants)
        script.text(f"elements = samples_of({data}{functions})")
    else:
        of_role = "" if role == "train" else f"_{role}"
        key = f"{of_role}_samples".strip("_")
        count, counted = getattr(form, key), getattr(form, f"counted{of_role}")
        if count is None:
            script.text(f"elements = Elements({role}.repeat(), 2**62{functions})")
        elif counted and key not in given:
            script.text(f"elements = Elements({role}, int({role}.cardinality()){functions})")
        else:
            script.text(f"count = {count}  # samples in {role}, counted when this script was written")
            script.text(f"elements = Elements({role}.take(count), count{functions})")


def _copied(script: Script, options: Options, role: str) -> None:
    if options.strategy.kind == "mirrored":
        script.define("trainer/exported.py", "Copied")
        script.add(f"{role} = Copied({role})", "strategy.kind")


def _functions(script: Script, options: Options, form: Form) -> None:
    """Write the trainer's own pipeline, with the values of the options and of the form filled in."""
    constants: dict[str, Any] = {**WHOLE_TRAINING, **CACHE_FILE.get(options.input.cache, {})}
    constants |= {"data": _known(form, options.input.cache), "numbered": _augments(options, form)}
    if form.begins_anew:
        del constants["first_pass"]
    if "arrays" not in form.kinds:
        constants["are_equal"] = False
    if not form.given & {"map", "validation_map", "augment"}:
        constants |= {"load": None, "made": False}
        constants |= {"is_small": True} if form.small and form.kinds <= {"arrays"} else {}
    pipeline: tuple[str, ...] = ("training_batches", "validation_batches")
    ours, kinds = {"arrays", "mapped"}, ({form.train}, {form.validation, form.test})
    pipeline = tuple(name for name, of_role in zip(pipeline, kinds, strict=True) if of_role & ours)
    script.define("trainer/data/batching.py", *pipeline, options=options, constants=constants)
    if _augments(options, form):
        script.define("trainer/data/batching.py", "augmented_batches", options=options, constants=constants)


def _known(form: Form, cache: str) -> Partly:
    """Return the attributes of Elements whose values follow from the form and from input.cache."""
    values: dict[str, Any] = {}
    if not form.given & {"map", "validation_map"}:
        values["load"] = None
    if "augment" not in form.given:
        values["vary"] = None
    if cache != "off":
        values["arrays"] = None
    elif form.train == "arrays" and form.dense:
        values["arrays"] = ARRAYS
    if form.kinds <= {"arrays"}:
        values["whole"] = True
    return Partly(values)


# Operations that draw from TensorFlow's own random state, which seeds them by their place in the graph.
DRAWS = frozenset({
    "normal", "uniform", "truncated_normal", "shuffle", "categorical", "gamma", "poisson", "random_crop",
})  # fmt: skip
PACKAGES = ("tf.random", "tensorflow.random", "tf.image", "tensorflow.image")
MOST_DRAWS = 5
MOST_BYTES = 1_000_000


def code(script: Script, options: Options, form: Form) -> None:
    """Write the call of the user's build function. In the script, `made` is the dict that the function returns."""
    script.section("your code")
    _draws(script, options)
    _module(script, options)
    _context(script, options)
    margin = training_part.scope(script, options)
    script.add(f"{margin}made = yours.{_entry(options).function}(context)", "workload.entry")
    if not form.given - {"mapped"}:  # no key of a dict
        script.text('if not isinstance(made, dict):\n    made = dict(zip(("model", "train", "validation"), made))')
    script.text('model, train, validation = made["model"], made["train"], made.get("validation")')
    if form.test:
        script.add('test = made["test"]', TESTED)
    if form.train == "arrays":
        script.text('if made.get("sample_weight") is not None:\n    train = (*train, made["sample_weight"])')


def _draws(script: Script, options: Options) -> None:
    """Write comments about lines of the user's code that draw without a seed of their own: their losses differ."""
    try:
        file = entries.source_file(_entry(options), Path(os.path.expanduser(options.workload.folder or ".")))
    except entries.EntryFault:
        return
    draws = stateful_draws(file)
    if not draws:
        return
    script.text("# Losses differ from gputui's: TensorFlow seeds these draws by their place in the graph of a step,")
    script.text("# which is another one in Keras' fit. keras.random with a SeedGenerator draws the same in both.")
    for draw in draws[:MOST_DRAWS]:
        script.text(f"#   {draw}")
    if len(draws) > MOST_DRAWS:
        script.text(f"#   and {len(draws) - MOST_DRAWS} more")


def _entry(options: Options) -> entries.Entry:
    assert options.workload.entry is not None
    return entries.parse(options.workload.entry)


def _module(script: Script, options: Options) -> None:
    # A file is registered in sys.modules under its own name if no other module has that name.
    entry = _entry(options)
    folder = os.path.abspath(os.path.expanduser(options.workload.folder or "."))
    script.add(f"os.chdir({script.path(folder)})", "workload.folder", "relative paths of your code count from here")
    if entry.module is not None:
        script.add(f"sys.path.insert(0, {script.path(folder)})", "workload.folder")
        script.add(f"import {entry.module} as yours", "workload.entry")
        return
    file = Path(os.path.abspath(Path(folder) / os.path.expanduser(str(entry.file))))
    script.add(f"sys.path.insert(0, {script.path(str(file.parent))})", "workload.entry")
    spec = f"importlib.util.spec_from_file_location({literal(file.stem)}, {script.path(str(file))})"
    script.add(f"spec = {spec}", "workload.entry")
    script.text("yours = importlib.util.module_from_spec(spec)")
    script.text(f"sys.modules.setdefault({literal(file.stem)}, yours)\nspec.loader.exec_module(yours)")


def _context(script: Script, options: Options) -> None:
    # with the fields of Context in trainer/own/building.py
    calls = options.input.parallel_calls
    number = {"off": "None", "auto": "tf.data.AUTOTUNE"}.get(str(calls), str(calls))
    script.text("context = SimpleNamespace(")
    script.add("    batch_size=BATCH_SIZE,", "input.batch_size")
    script.text("    global_batch_size=global_batch,\n    replicas=replicas,")
    script.add(f"    steps_per_epoch={options.train.steps_per_epoch},", "train.steps_per_epoch")
    script.text("    epochs=EPOCHS,\n    seed=SEED,")
    policy = options.precision.policy
    script.add(
        f"    precision={literal(policy) if policy != 'float32' else 'keras.config.floatx()'},", "precision.policy"
    )
    script.add(f"    map_parallel_calls={number},", "input.parallel_calls")
    script.add(f"    args={literal(options.workload.args)},", "workload.args")
    script.text(")")


def training(script: Script, options: Options, form: Form) -> None:
    """Write the code that compiles the model, if the user's code has not compiled it, and that trains it."""
    script.section("training")
    is_pydataset = form.train == "pydataset"
    one_pass = options.with_values({"train.steps_per_epoch": None}) if is_pydataset else options
    training_part.steps(script, one_pass)
    chooses_rate = not form.compiled and "optimizer" not in form.given
    if not form.compiled:
        if chooses_rate:
            training_part.rate(script, options)
        _compile(script, options, form)
    for name, value, comments in training_part.execution(options):
        if name == "jit_compile" and options.compile.xla == "auto":
            # XLA would end the process on the chip. Otherwise the model keeps its jit_compile, for which Keras has the
            # same rule.
            if options.strategy.kind == "single":
                script.text("if not jit_compile:")
                script.add("    model.jit_compile = False", "compile.xla")
        else:
            script.add(f"model.{name} = {value}", *comments)
    training_part.built(script, options)
    theirs = 'tf.nest.flatten(made["callbacks"])' if "callbacks" in form.given else ""
    if form.begins_anew:
        setter = "keras.callbacks.LambdaCallback(on_epoch_begin=lambda number, logs: epoch.assign(number))"
        theirs = f"[{setter}{f', *{theirs}' if theirs else ''}]"
    has_variables = form.built or _built(script, options, form)
    training_part.callbacks(script, options, theirs, chooses_rate, form.whole, has_variables)
    if form.dense and form.train != "pydataset":
        evaluated = {"validation": form.validation, "test": form.test}
        held_out = [role for role, kind in evaluated.items() if kind not in ("", "pydataset")]
        training_part.onto_devices(script, options, "train", *held_out)
    _fit(script, options, form)


def _built(script: Script, options: Options, form: Form) -> bool:
    """Write the line that makes the model's variables for checkpoints. Returns False if Keras cannot make them."""
    every = options.run.checkpoint
    if every == "off" or not form.builds or form.train == "pydataset":
        return form.builds and every != "epoch"
    x = "train.element_spec[0]" if form.several else "train.element_spec"
    symbols = f"tf.nest.map_structure(lambda part: keras.KerasTensor(part.shape, part.dtype.name), {x})"
    script.add(f"model({symbols})", "run.checkpoint", "makes its variables")
    return True


def _compile(script: Script, options: Options, form: Form) -> None:
    margin = training_part.scope(script, options)
    script.text(f"{margin}model.compile(")
    if "optimizer" in form.given:
        script.text(f'{margin}    optimizer=made["optimizer"],')
    else:
        training_part.optimizer(script, options, margin + "    ", "optimizer=")
    for name in ("loss", "metrics"):
        if name in form.given:
            script.text(f'{margin}    {name}=made["{name}"],')
    script.text(f"{margin})")


def _fit(script: Script, options: Options, form: Form) -> None:
    one_pass = form.begins_anew or (form.train == "batched" and _epoch_is_pass(options))
    steps = "" if one_pass else "\n    steps_per_epoch=steps_per_epoch,"
    script.text(f"model.fit(\n    train,\n    epochs=EPOCHS,{steps}")
    if form.validation:
        script.text("    validation_data=validation,")
    script.text("    callbacks=callbacks,")
    if "preview" in form.given:
        script.text('    # made["preview"] is not called: only a run of gputui writes what it shows')
    weights = ("class_weight",) if form.train == "pydataset" else ()  # the other batches have them
    some = ("validation_steps",) if form.validation in ("batched", "pydataset") else ()  # of samples, some are taken
    for name in (*weights, "initial_epoch", "validation_freq", *some):
        if name in form.given:
            script.text(f'    {name}=made["{name}"],')
    if form.train != "pydataset":
        script.text("    shuffle=False,  # the data is shuffled already")
    elif options.input.shuffle == "off":
        script.add("    shuffle=False,", "input.shuffle")
    else:
        script.add("    shuffle=True,", "input.shuffle", "in Keras' own order")
    script.text("    verbose=2,\n)")
    training_part.save(script, options, form.whole)
    if form.test:
        training_part.evaluate(script, options, form.whole)


# ---- random draws of the user's code ----------------------------------------------------------


def stateful_draws(file: Path) -> list[str]:
    """Return texts such as `tf.random.normal in train_step (train.py:12)`, for each unseeded random draw within a
    function of the file. Empty if it cannot be read, or is larger than MOST_BYTES.
    """
    try:
        if file.stat().st_size > MOST_BYTES:
            return []
        functions = [node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.FunctionDef)]
        draws: dict[tuple[int, int], str] = {}
        for function in functions:  # one within another comes later
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                name = ast.unparse(call.func) if isinstance(call.func, ast.Attribute) else ""
                package, _, operation = name.rpartition(".")
                if package in PACKAGES and operation in DRAWS and all(each.arg != "seed" for each in call.keywords):
                    draws[call.lineno, call.col_offset] = f"{name} in {function.name} ({file.name}:{call.lineno})"
        return [draws[place] for place in sorted(draws)]
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []


PARTS = (code, data, training)


MODULE = "gputui.engine.trainer.described"
DIFFERS = ("reads_ahead", "unknown_length", "overridden")  # warnings of a run that apply to its script, too


class RefusedError(Exception):
    """The run of the user's code would be refused. The text says why, and `hint` what to change."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Form:
    """What a user's build returns, as far as a script depends on it: `arrays`, `mapped`, `batched` or `pydataset`."""

    train: str
    validation: str = ""  # none
    test: str = ""  # none
    is_split: bool = False  # the validation data is a part of the arrays
    given: frozenset[str] = frozenset()  # keys of the dict
    compiled: bool = False
    built: bool = True  # the code has made the model's variables
    builds: bool = True  # Keras can make them before the first step
    # Of the roles whose data is read by iterating over it, the expression that opens it as a Dataset.
    iterated: dict[str, str] = field(default_factory=dict)
    batches: int | None = None  # in a pass over train
    samples: int | None = None
    validation_samples: int | None = None
    test_samples: int | None = None
    plain: bool = True  # all arrays are tuples and dicts of NumPy's, which are not converted
    small: bool = True  # the arrays make small batches
    several: bool = True  # a batch is a tuple, of which x is the first part
    dense: bool = True  # all parts of a batch are dense tensors of numbers
    whole: bool = True  # Keras can save the whole model
    images: bool = False  # input.augment changes x
    begins_anew: bool = False  # samples may depend on the training: each epoch has an iterator of its own
    cached: bool = True  # input.cache applies to single samples
    counted: bool = True  # TensorFlow knows the number of elements of a tf.data.Dataset
    counted_validation: bool = True
    counted_test: bool = True
    warnings: tuple[str, ...] = ()  # of the run, that apply to the script, too

    @property
    def kinds(self) -> set[str]:
        return {self.train, self.validation, self.test} - {""}


def asked(preset: Preset) -> Form | None:
    """Call the user's build as a run of the preset does, on CPUs, if it has one, and return the form of what it
    returns. Raises RefusedError for what the run refuses.
    """
    if preset.options.workload.entry is None:
        return None
    facts, warned = described(preset)
    warnings = tuple(f"{event.message}\n{event.hint}".strip() for event in warned if event.kind in DIFFERS)
    return Form(**{**facts, "given": frozenset(facts["given"]), "warnings": warnings})


def described(preset: Preset) -> tuple[dict[str, Any], list[Warn]]:
    """Run the user's code up to the training, on CPUs. Return what engine/trainer/described.py says of it, and the
    warnings. Raises RefusedError for what the run refuses.
    """
    options = preset.options
    here = paths.absolute(_on_cpus(options), dict.fromkeys(paths.KEYS, str(Path.cwd())))
    python = interpreter.chosen(options.run.python)
    with tempfile.TemporaryDirectory() as folder:
        files = {options_json.FILE: options_json.to_json(here)}
        run = runs.create_at(Path(folder) / "run", preset.to_yaml(), more=files)
        with run.file("engine.log").open("wb") as log:
            command = interpreter.command(python, MODULE, str(run.path))
            environment = interpreter.environment(python)
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=log, check=False)
        try:
            facts: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            lines = run.file("engine.log").read_text("utf-8", "replace").strip().splitlines()
            why = lines[-1][:200] if lines else f"return code {done.returncode}"
            raise RefusedError(f"{options.workload.entry} cannot be called: {why}", "train it to see more") from None
        warned = events_of(run.path, Warn)
    if "error" in facts:
        raise RefusedError(facts["error"], facts["hint"])
    return facts, warned


def _on_cpus(options: Options) -> Options:
    several = options.strategy.kind in SEVERAL_REPLICAS
    device = replace(
        options.device, visible="none", memory_limit_mb=None, logical_devices=2 if several else 1, allocator="default"
    )
    strategy = replace(
        options.strategy, kind="mirrored" if several else options.strategy.kind, devices="all", communication="auto"
    )
    train = replace(options.train, seed=options.train.seed or 0)
    run = replace(options.run, checkpoint="off")
    return replace(options, device=device, strategy=strategy, train=train, run=run)
