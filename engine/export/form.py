"""What a user's build returns, as far as an exported script depends on it: asked of the Python that trains."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import runs
from ..interpreter import interpreter
from ..options import Options, options_json
from ..plan import SEVERAL_REPLICAS
from ..presets import Preset, paths
from ..runs.event_reading import read_events
from ..runs.events import Warn

MODULE = "gputui.engine.trainer.described"


class RefusedError(Exception):
    """The run of the user's code would be refused. The text says why, and `hint` what to change."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Form:
    """The kinds of the data are `arrays`, `mapped`, `batched` and `pydataset`. `iterated` has for the roles, train and
    validation, whose data is read by iterating over it, the expression that opens it as a Dataset. `plain`: all arrays
    are tuples and dicts of NumPy's, which are not converted. `small`: the arrays make small batches.

    `begins_anew`: single samples may depend on the training, so that each epoch has an iterator of its own. `cached`:
    input.cache applies to single samples. `counted` and `counted_validation`: TensorFlow knows the number of elements
    of a tf.data.Dataset. `warnings` are those of the run that apply to the script, too.
    """

    train: str
    validation: str = ""  # none
    is_split: bool = False  # the validation data is a part of the arrays
    given: frozenset[str] = frozenset()  # keys of the dict
    compiled: bool = False
    built: bool = True  # the code has made the model's variables
    builds: bool = True  # Keras can make them before the first step
    iterated: dict[str, str] = field(default_factory=dict)
    batches: int | None = None  # in a pass over train
    samples: int | None = None
    validation_samples: int | None = None
    plain: bool = True
    small: bool = True
    several: bool = True  # a batch is a tuple, of which x is the first part
    dense: bool = True  # all parts of a batch are dense tensors of numbers
    whole: bool = True  # Keras can save the whole model
    images: bool = False  # input.augment changes x
    begins_anew: bool = False
    cached: bool = True
    reshuffles: bool = False  # a tf.data.Dataset has another order in each pass
    counted: bool = True
    counted_validation: bool = True
    warnings: tuple[str, ...] = ()

    @property
    def kinds(self) -> set[str]:
        return {self.train, self.validation} - {""}


def asked(preset: Preset) -> Form | None:
    """Call the user's build as a run of the preset does, on CPUs, and return the form of what it returns. None if the
    training is not of own code. Raises RefusedError for what the run refuses.
    """
    options = preset.options
    if options.workload.entry is None:
        return None
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
        warned = read_events(run.path).of(Warn)
    if "error" in facts:
        raise RefusedError(facts["error"], facts["hint"])
    warnings = tuple(f"{event.message}; {event.hint}" for event in warned if event.kind == "reads_ahead")
    return Form(**{**facts, "given": frozenset(facts["given"]), "warnings": warnings})


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
