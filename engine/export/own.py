"""The part of an exported script that trains a user's own code: the call of build, its context, and the model.

The data that build returns is handled in own_data.py.
"""

from __future__ import annotations

import os
from pathlib import Path

from .. import entry as entries
from ..options import Options
from . import callbacks, draws
from . import training as training_part
from .lines import Script, literal
from .own_data import PYDATASET, VALIDATION_PYDATASET, data
from .source import extract


def code(script: Script, wanted: Options) -> None:
    """`made`: what their build returns, as a dict."""
    script.section("your code")
    _draws(script, wanted)
    _module(script, wanted)
    _context(script, wanted)
    margin = training_part.scope(script, wanted)
    script.add(f"{margin}made = yours.{_entry(wanted).function}(context)", "workload.entry")
    script.text('if not isinstance(made, dict):\n    made = dict(zip(("model", "train", "validation"), made))')
    script.text('model, train, validation = made["model"], made["train"], made.get("validation")')
    script.text('if made.get("sample_weight") is not None:\n    train = (*train, made["sample_weight"])')


def _draws(script: Script, wanted: Options) -> None:
    """Where the losses cannot be those of gputui, although the seed is."""
    try:
        file = entries.source_file(_entry(wanted), Path(os.path.expanduser(wanted.workload.folder or ".")))
    except entries.EntryFault:
        return
    found = draws.told(file)
    if not found:
        return
    rest = len(found) - draws.MOST_TOLD
    script.text("# Losses differ from gputui's: TensorFlow seeds these draws by their place in the graph of a step,")
    script.text("# which is another one in Keras' fit. keras.random with a SeedGenerator draws the same in both.")
    for draw in found[: draws.MOST_TOLD]:
        script.text(f"#   {draw}")
    if rest > 0:
        script.text(f"#   and {rest} more")


def _entry(wanted: Options) -> entries.Entry:
    assert wanted.workload.entry is not None
    return entries.parse(wanted.workload.entry)


def _module(script: Script, wanted: Options) -> None:
    """Their module as `yours`: a file by its path, under its own name if that is free."""
    entry = _entry(wanted)
    folder = os.path.abspath(os.path.expanduser(wanted.workload.folder or "."))
    script.add(f"os.chdir({script.path(folder)})", "workload.folder", "relative paths of your code count from here")
    if entry.module is not None:
        script.add(f"sys.path.insert(0, {script.path(folder)})", "workload.folder")
        script.add(f"import {entry.module} as yours", "workload.entry")
        return
    file = Path(os.path.abspath(Path(folder) / os.path.expanduser(str(entry.file))))
    script.add(f"sys.path.insert(0, {script.path(str(file.parent))})", "workload.entry")
    found = f"importlib.util.spec_from_file_location({literal(file.stem)}, {script.path(str(file))})"
    script.add(f"spec = {found}", "workload.entry")
    script.text("yours = importlib.util.module_from_spec(spec)")
    script.text(f"sys.modules.setdefault({literal(file.stem)}, yours)\nspec.loader.exec_module(yours)")


def _context(script: Script, wanted: Options) -> None:
    """The fields of trainer/own/building.py."""
    calls = wanted.input.parallel_calls
    number = {"off": "None", "auto": "tf.data.AUTOTUNE"}.get(str(calls), str(calls))
    script.text("context = SimpleNamespace(")
    script.add("    batch_size=BATCH_SIZE,", "input.batch_size")
    script.text("    global_batch_size=global_batch,\n    replicas=replicas,")
    script.add(f"    steps_per_epoch={wanted.train.steps_per_epoch},", "train.steps_per_epoch")
    script.text("    epochs=EPOCHS,\n    seed=SEED,")
    script.add(f"    precision={literal(wanted.precision.policy)},", "precision.policy")
    script.add(f"    map_parallel_calls={number},", "input.parallel_calls")
    script.add(f"    args={literal(wanted.workload.args)},", "workload.args")
    script.text(")")


def training(script: Script, wanted: Options) -> None:
    """Compiles the model where their code has not, and trains it."""
    script.section("training")
    training_part.steps(script, wanted, unless=PYDATASET)
    training_part.rate(script, wanted)
    script.text("if not model.compiled:  # else it keeps the optimizer that your code has chosen")
    margin = "    "
    if wanted.strategy.kind != "single":
        script.add("    with strategy.scope():", "strategy.kind")
        margin = "        "
    script.text(f'{margin}model.compile(\n{margin}    optimizer=made.get("optimizer")')
    training_part.optimizer(script, wanted, margin + "    ", "or ")
    script.text(f'{margin}    loss=made.get("loss"),\n{margin}    metrics=made.get("metrics"),\n{margin})')
    for name, value, told in training_part.execution(wanted):
        if name == "jit_compile" and wanted.compile.xla == "auto":
            _xla_as_compiled(script, wanted)
        else:
            script.add(f"model.{name} = {value}", *told)
    training_part.built(script, wanted)
    training_part.parts(script, wanted)
    callbacks.callbacks(script, wanted, 'tf.nest.flatten(made.get("callbacks") or [])')
    script.blocks(extract("trainer/data/finishing.py", "fits_devices"))
    training_part.onto_devices(
        script,
        wanted,
        "if validation is not None:\n    ",
        fits=" or isinstance(batches, keras.utils.PyDataset) or not fits_devices(batches.element_spec)",
    )
    _fit(script, wanted)


def _xla_as_compiled(script: Script, wanted: Options) -> None:
    """With `auto` the model keeps its jit_compile, for which Keras has the same rule, but where XLA would abort."""
    if wanted.strategy.kind == "single":
        script.text("if not jit_compile:")
        script.add("    model.jit_compile = False", "compile.xla")


def _fit(script: Script, wanted: Options) -> None:
    script.text("model.fit(\n    train,\n    epochs=EPOCHS,\n    steps_per_epoch=steps_per_epoch,")
    script.text("    validation_data=validation,\n    callbacks=callbacks,")
    script.text('    class_weight=made.get("class_weight"),\n    initial_epoch=made.get("initial_epoch") or 0,')
    script.text('    validation_freq=made.get("validation_freq") or 1,')
    script.text(f'    validation_steps=made.get("validation_steps") if {VALIDATION_PYDATASET} else None,')
    if wanted.input.shuffle == "off":
        script.add("    shuffle=False,", "input.shuffle")
    else:
        script.add(f"    shuffle={PYDATASET},", "input.shuffle", "in Keras' own order; all else is shuffled")
    script.text("    verbose=2,\n)")
    training_part.save(script, wanted)


PARTS = (code, data, training)
