"""The part of an exported script that compiles and trains the model: steps, learning rate, optimizer, fit."""

from __future__ import annotations

from ..options import Options
from ..options.training import BY_NO_STEPS, EARLY_STOP, KEEP_BEST, OPTIMIZERS, PLATEAU_FIGURE, TESTED, WatchedFigure
from .engine_source import Script, literal


def training(script: Script, options: Options) -> None:
    """Write the code that makes the model with build(), compiles it in the scope of the strategy, and trains it."""
    script.section("training")
    steps(script, options)
    rate(script, options)
    margin = scope(script, options)
    script.text(f"{margin}model = build()\n{margin}model.compile(")
    optimizer(script, options, margin + "    ", "optimizer=")
    script.text(f"{margin}    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),")
    script.text(f'{margin}    metrics=["accuracy"],')
    for name, value, comments in execution(options):
        script.add(f"{margin}    {name}={value},", *comments)
    script.text(f"{margin})")
    built(script, options)
    callbacks(script, options)
    evaluated = {"validation": options.train.validates, "test": options.train.tests(own=False)}
    onto_devices(script, options, "train", *(role for role, is_evaluated in evaluated.items() if is_evaluated))
    script.text("model.fit(\n    train,\n    epochs=EPOCHS,")
    script.text("    steps_per_epoch=steps_per_epoch,  # the stream has no end")
    if options.train.validates:
        key = "train.validation" if options.train.validation == "test" else "train.validation_split"
        script.add("    validation_data=validation,", key)
    script.text("    callbacks=callbacks,\n    shuffle=False,  # the dataset is shuffled already\n    verbose=2,\n)")
    save(script, options)
    if evaluated["test"]:
        evaluate(script, options)


def scope(script: Script, options: Options) -> str:
    """The `with` line of the strategy, if there is one; returns the indentation within it."""
    if options.strategy.kind == "single":
        return ""
    script.add("with strategy.scope():", "strategy.kind")
    return "    "


def steps(script: Script, options: Options) -> None:
    """Write the definitions of steps_per_epoch, and of together if several steps run in one execution."""
    given = options.train.steps_per_epoch
    if given is None:
        script.text("steps_per_epoch = per_pass")
    else:
        script.add(f"steps_per_epoch = {given}", "train.steps_per_epoch")
    together = options.compile.steps_per_execution
    if together > 1 and options.strategy.kind != "mirrored":
        script.define("plan.py", "steps_together")
        script.add(f"together = steps_together(steps_per_epoch, {together})", "compile.steps_per_execution")


def execution(options: Options) -> list[tuple[str, str, list[str]]]:
    """jit_compile and steps_per_execution. Keras' own fit supports neither over several replicas."""
    mirrored, xla = options.strategy.kind == "mirrored", options.compile.xla
    together = options.compile.steps_per_execution
    compiles = str(xla and not mirrored)
    if xla == "auto":
        compiles = "jit_compile" if options.strategy.kind == "single" else "False"
    unable = ["Keras' fit fails with it over several replicas"] if mirrored else []
    return [
        ("jit_compile", compiles, ["compile.xla", *(unable if xla is True else [])]),
        (
            "steps_per_execution",
            "1" if mirrored or together == 1 else "together",
            ["compile.steps_per_execution", *(unable if together > 1 else [])],
        ),
    ]


def rate(script: Script, options: Options) -> None:
    """A number, a schedule of Keras, or the trainer's own Schedule if Keras has no such."""
    train, highest = options.train, "LEARNING_RATE"
    if train.learning_rate_scaling != "none":
        highest = "highest_rate"
        script.define("plan.py", "rate_factor")
        factor = f'rate_factor("{train.learning_rate_scaling}", replicas)'
        script.add(f"{highest} = LEARNING_RATE * {factor}", "train.learning_rate_scaling")
    if train.schedule in BY_NO_STEPS and not train.warmup_steps:  # holding such a rate changes nothing
        script.text(f"rate = {highest}")
        return
    begins_at_once = not train.warmup_steps + train.hold_steps
    if begins_at_once and train.decay_steps is None and train.schedule in ("cosine", "exponential"):
        script.add("decay = steps_per_epoch * EPOCHS", "train.decay_steps")
    else:
        script.text("steps = steps_per_epoch * EPOCHS")
        script.define("plan.py", "decay_steps", options=options, constants={"train": train})
        script.add("decay = decay_steps(steps, steps_per_epoch)", "train.decay_steps")
    schedules = "keras.optimizers.schedules"
    calls = {
        "cosine": f"{schedules}.CosineDecay({highest}, decay, alpha={train.decay_rate})",
        "exponential": f"{schedules}.ExponentialDecay({highest}, decay, {train.decay_rate})",
        "step": f"{schedules}.ExponentialDecay({highest}, decay, {train.decay_rate}, staircase=True)",
    }
    if train.schedule in calls and begins_at_once:
        script.add(f"rate = {calls[train.schedule]}", "train.schedule", "train.decay_rate")
        return
    script.define("trainer/setup/compiling.py", "Schedule")
    steps = f"warmup_steps={train.warmup_steps}, decay_steps=decay, decay_rate={train.decay_rate}"
    held = f", hold_steps={train.hold_steps}" if train.hold_steps else ""
    keys = ("schedule", "learning_rate", "warmup_steps", "decay_steps", "decay_rate", *(["hold_steps"] if held else []))
    made = f'Schedule(kind="{train.schedule}", learning_rate={highest}, {steps}{held})'
    script.add(f"rate = {made}", *(f"train.{key}" for key in keys))


def optimizer(script: Script, options: Options, margin: str, before: str) -> None:
    """Write the optimizer as an argument of a call, which begins with `before`, its lines with `margin`."""
    train = options.train
    more = "".join(f", {name}={value}" for name, (_, value) in train.optimizer_arguments.items())
    keys = (f"train.{name}" for name, _ in train.optimizer_arguments.values())
    made = f"keras.optimizers.{OPTIMIZERS[train.optimizer]}(learning_rate=rate{more})"
    script.add(f"{margin}{before}{made},", "train.optimizer", "train.learning_rate", *keys)


def built(script: Script, options: Options) -> None:
    """Write the call that builds the model as the trainer's fit does, for the mirrored strategy, and the lines that
    replace Keras' steps by the trainer's own, if activations are recomputed or batches computed in parts.
    """
    if options.strategy.kind == "mirrored":
        script.define("trainer/exported.py", "build_from_a_part")
        script.text("build_from_a_part(model, strategy)")
    if options.compile.recompute:
        script.define("trainer/setup/recompute.py", "recompute")
        script.add("recompute(model)", "compile.recompute")
    count = options.train.micro_batches
    if count == 1:
        return
    script.define("trainer/fit/micro_batches.py", "split_training", "split_testing")
    cast = ", lambda data: model.cast(*data)" if options.bytes_to_device and options.workload.entry is None else ""
    script.add(f"model.train_step = split_training(model, {count}{cast})", "train.micro_batches")
    script.add(f"model.test_step = split_testing(model, {count}{cast})", "train.micro_batches")


def onto_devices(script: Script, options: Options, *roles: str) -> None:
    """The last stage of the data of `roles` prefetches to GPUs. The mirrored strategy copies them itself."""
    if options.strategy.kind == "mirrored":
        return  # the strategy itself copies the batches
    key, count = "input.prefetch_to_device", options.input.device_batches
    single = options.strategy.kind == "single"
    if single and not count:
        script.add("# each step copies its own batch to the GPU", key)
        return
    if single:
        changed = f'apply(tf.data.experimental.prefetch_to_device("/GPU:0", {count}))'
        for role in roles:
            script.add(f"{role} = {role}.{changed} if gpus else {role}", key)
        return
    given = f"experimental_fetch_to_device={count > 0}, experimental_per_replica_buffer_size={count}"
    script.add(f"settings = tf.distribute.InputOptions({given})", key)
    for role in roles:
        made = f"strategy.experimental_distribute_dataset({role}, settings)"
        script.text(f"{role} = {made} if gpus else {role}")


def callbacks(
    script: Script,
    options: Options,
    theirs: str = "",
    chooses_rate: bool = True,
    whole: bool = True,
    has_variables: bool = True,
) -> None:
    """Write the list: the expression `theirs`, then those that the options ask for. `chooses_rate`: the options choose
    the learning rate. `whole`: Keras can save the model. `has_variables`: before its first step.
    """
    run = options.run
    script.text("callbacks = [")
    if theirs:
        script.text(f"    *{theirs},")
    _by_figures(script, options, chooses_rate, whole)
    if not options.train.stop_on_nan:
        script.add("    # no TerminateOnNaN", "train.stop_on_nan")
    elif options.precision.policy == "mixed_float16":
        why = "not with float16, where TerminateOnNaN ends healthy runs at a skipped step"
        script.add("    # no TerminateOnNaN", "train.stop_on_nan", why)
    else:
        script.add("    keras.callbacks.TerminateOnNaN(),", "train.stop_on_nan", "looks at the loss alone")
    if run.checkpoint != "off" and not has_variables:
        script.add("    # no checkpoint", "run.checkpoint", "the model gets its variables in its first step")
    elif run.checkpoint == "epoch":
        why = "starts again at the epoch; exact without shuffling and dropout"
        script.add('    keras.callbacks.BackupAndRestore("backup"),', "run.checkpoint", why)
    elif run.checkpoint != "off":
        weights = f'"step.weights.h5", save_weights_only=True, save_freq={run.checkpoint}'
        why = "the weights alone; Keras resumes from epochs only"
        script.add(f"    keras.callbacks.ModelCheckpoint({weights}),", "run.checkpoint", why)
    if run.profile_steps:
        script.define("trainer/exported.py", "Profile")
        script.add(f"    Profile{run.profile_steps},", "run.profile")
    if isinstance(run.max_minutes, int | float):
        script.define("trainer/exported.py", "TimeLimit")
        script.add(f"    TimeLimit({run.max_minutes}),", "run.max_minutes")
    script.text("]")


def evaluate(script: Script, options: Options, whole: bool = True) -> None:
    """Write the evaluation of test, with the best model if the options keep it. `whole` is that of `callbacks`."""
    if options.run.keeps_best_by is not None:
        script.add(f"model.load_weights({_best_file(options, whole)})", KEEP_BEST)
    script.add('print("test:", model.evaluate(test, return_dict=True, verbose=0))', TESTED)


def _best_file(options: Options, whole: bool) -> str:
    # A model of a class in the script could not be loaded alone.
    alone = whole and not (options.bytes_to_device and options.workload.entry is None)
    return '"best.keras"' if alone else '"best.weights.h5"'


def _by_figures(script: Script, options: Options, chooses_rate: bool, whole: bool) -> None:
    """Write the callbacks that follow a figure of each epoch, in the order in which the trainer calls its own."""
    train, called = options.train, "keras.callbacks"
    if (figure := options.run.keeps_best_by) is not None:
        file = _best_file(options, whole)
        kind = file if "keras" in file else f"{file}, save_weights_only=True"
        script.add(f"    {called}.ModelCheckpoint({kind}, {_monitor(figure)}, save_best_only=True),", KEEP_BEST)
    if chooses_rate and (figure := train.reduces_rate_by) is not None:
        rule = f"factor={train.decay_rate}, patience={train.plateau_patience}, min_lr={train.plateau_min_rate}"
        keys = ("decay_rate", "plateau_patience", "plateau_min_rate")
        made = f"{called}.ReduceLROnPlateau({_monitor(figure)}, {rule})"
        script.add(f"    {made},", "train.schedule", PLATEAU_FIGURE, *(f"train.{key}" for key in keys))
    if (figure := train.stops_by) is not None:
        rule = f"min_delta={train.early_stop_min_delta}, patience={train.early_stop_patience}"
        keys = ("early_stop_min_delta", "early_stop_patience", "early_stop_restore")
        made = f"{called}.EarlyStopping({_monitor(figure)}, {rule}, restore_best_weights={train.early_stop_restore})"
        script.add(f"    {made},", EARLY_STOP, *(f"train.{key}" for key in keys))


def _monitor(figure: WatchedFigure) -> str:
    mode = "" if figure.direction == "auto" else f', mode="{figure.direction}"'
    return f"monitor={literal(figure.name)}{mode}"


def save(script: Script, options: Options, whole: bool = True) -> None:
    """Write the line that saves the model. `whole` is that of `callbacks`."""
    if not options.run.save_model:
        return
    if not whole:
        written = 'model.save_weights("model.weights.h5")'
    elif options.bytes_to_device and options.workload.entry is None:  # as for the best model
        written = 'keras.Model(model.inputs, model.outputs, name=model.name).save("model.keras")'
    else:
        written = 'model.save("model.keras")'
    script.add(written, "run.save_model")
