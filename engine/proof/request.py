"""The request for a proof, and everything that is refused before anything is measured."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import checks, options, presets
from ..files import typed
from ..finding import errors
from ..job import machine_gpus
from ..job.machine_gpus import Machine
from ..presets import Preset, PresetError
from ..presets.paths import OWN_FIT, names_workload
from ..runs import Run, RunError
from ..trials import LEAST_REPEATS, TRIAL_SECONDS, kinds, proof_sentences, record, script_fit, sweep_record
from ..trials.record import Limits
from ..trials.trial_preset import ONE_BATCH, OWN, as_trial, with_changes

SINGLE_STEPS = {"compile.steps_per_execution": 1}  # a profile does not separate the steps of one execution


class ProofError(RunError):
    """A proof cannot be found, started or used. The text says what to do."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a proof measures."""

    kind: str  # one of KINDS in trials/kinds.py
    preset_name: str
    preset: str  # YAML with every value
    folder: str  # where relative paths start
    seed: int
    repeats: int = LEAST_REPEATS
    measure_seconds: float = TRIAL_SECONDS
    source: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    ablation_repeats: int = 0  # pairs with and without input
    profile: bool = False  # a separate trial, whose steps TensorFlow profiles
    limit_seconds: float | None = None  # the time after which no comparison may end
    run: str | None = None  # the run whose remedies are tried
    search: Limits | None = None  # of a `tune`
    scaling: record.ScalingSettings | None = None  # of a `scaling`
    rate: record.RateSettings | None = None  # of a range test
    sweep: sweep_record.SweepSettings | None = None  # of a sweep

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def read(cls, path: Path) -> Request:
        """Return the request in the file `path`. Raises ProofError if the file has no complete request."""
        read = typed.read(path, cls)
        if read.value is None:
            raise ProofError(f"{path} {read.damage or 'does not exist'}")
        return read.value

    @property
    def preset_options(self) -> options.Options:
        """The options of the preset; the defaults if it is invalid, which is reported when the preset is used."""
        try:
            return self.baseline().options
        except PresetError:
            return options.Options()

    @property
    def chooses_gpus(self) -> bool:
        """True if the preset leaves the choice of its GPUs to gputui, as with device.visible=free:1."""
        return self.preset_options.device.choice is not None

    @property
    def command(self) -> str:
        """The beginning of a command that measures the same, such as `gputui tune --preset mine.yaml ...`."""
        return f"gputui {kinds.kind(self.kind).command or self.kind} --preset {self.source or self.preset_name} ..."

    def baseline(self) -> Preset:
        preset = presets.resolve_text(self.preset, Path(self.folder) / f"{self.preset_name}.yaml")
        return Preset(self.preset_name, preset.options, preset.description)


def of_preset(kind: str, name: str, settings: Sequence[str], **more: Any) -> Request:
    """Return a request about the preset `name` (name or path) with `KEY=VALUE` texts. Raises PresetError."""
    return of_opened(kind, presets.resolve(name, settings), **more)


def of_opened(kind: str, preset: Preset, **more: Any) -> Request:
    """Return a request about a preset, also with unsaved changes. Raises RunError if its script cannot be trained."""
    preset = script_fit.as_in_fit(preset)
    seed = preset.options.train.seed
    return Request(
        kind=kind,
        preset_name=preset.name,
        preset=preset.to_yaml(),
        source=None if preset.file is None else str(preset.file.resolve()),
        folder=str(Path.cwd()),
        seed=secrets.randbelow(2**31) if seed is None else seed,
        **more,
    )


def of_run(run: Run, **more: Any) -> Request:
    """Return a request for a loop about a run's settings. Raises PresetError, and ProofError for own scripts."""
    text = run.file("preset.yaml").read_text(encoding="utf-8")
    preset = presets.resolve_text(text, run.file("preset.yaml"))
    if not can_be_trained(run):
        raise ProofError(f"{run.name} {OWN_FIT}")
    name = run.id.split("-", 2)[-1]  # the id is date-time-name
    return of_opened("loop", Preset(name, preset.options, preset.description), run=run.id, **more)


def can_be_trained(run: Run) -> bool:
    """Return True if the run's preset has a model and data to train. False for the preset of a run of Monitor."""
    return names_workload(run.file("preset.yaml"))


def of_change(name: str, settings: Sequence[str], **more: Any) -> Request:
    """Return a request to compare a preset without and with `KEY=VALUE` texts. Raises PresetError, ProofError."""
    before, after = script_fit.as_in_fit(presets.resolve(name)), presets.resolve(name, settings)
    if not settings:
        raise ProofError("say what to compare, such as --set compile.steps_per_execution=16")
    changes = {}
    for setting in settings:
        key = options.resolve_key(setting.partition("=")[0].strip(), options.OPTIONS)
        value = after.options.value(key)
        if key in OWN:
            raise ProofError(f"{key} cannot be compared: every trial sets it for itself")
        if value == before.options.value(key):
            raise ProofError(f"--set {setting} changes nothing: {key} is {proof_sentences.value(value)} in {name}")
        changes[key] = value
    return of_opened("ab", before, changes=changes, **more)


def sides(request: Request) -> list[Preset]:
    """Return the presets that are certain to be measured, the baseline first."""
    baseline = request.baseline()
    changed = [dict(request.changes)] if request.changes else []
    ablated = [ONE_BATCH] if request.ablation_repeats else []
    profiled = [SINGLE_STEPS] if request.profile else []
    scaled = [dict(setting.changes) for setting in request.scaling.settings] if request.scaling else []
    return [baseline, *(with_changes(baseline, changes) for changes in (*changed, *ablated, *profiled, *scaled))]


def refuse(request: Request, machine: Machine) -> None:
    if request.kind != "diagnosis" and request.repeats < LEAST_REPEATS:
        raise ProofError(f"at least {LEAST_REPEATS} repeats are needed: fewer do not show their spread")
    if request.baseline().options.workload.command:
        raise ProofError(f"{request.preset_name} is a command: gputui measures only what it trains itself")
    if request.measure_seconds <= 0:
        raise ProofError("the seconds to measure must be more than 0")
    if options.gpu_choice.parse(request.changes.get("device.visible")):
        raise ProofError(
            f"device.visible={request.changes['device.visible']} cannot be compared: the GPUs are chosen once, for all "
            "trials; write it into the preset"
        )
    if set(request.changes) == {"device.visible"}:  # another check reports missing GPUs
        without, with_change, *_ = (side.options for side in sides(request))
        gpus = [gpu.index for gpu in machine_gpus.training_gpus(with_change, machine)]
        same = gpus == [gpu.index for gpu in machine_gpus.training_gpus(without, machine)]
        if same and (gpus or isinstance(with_change.device.visible, str)):
            where = f"GPU {', '.join(map(str, gpus))}"
            where = where if gpus else f"the CPU ({machine.no_gpu_reason or 'no GPU is used'})"
            raise ProofError(
                f"device.visible={proof_sentences.value(request.changes['device.visible'])} compares nothing here: "
                f"both sides train on {where}"
            )
    for side in sides(request):
        if why := checks.measured_alone(side.options.strategy.kind):
            raise ProofError(f"{request.preset_name}: {why}")
        if why := conflict(side, request, machine):
            raise ProofError(f"{request.preset_name}: {why}")


def conflict(preset: Preset, request: Request, machine: Machine) -> str:
    """Return why a trial of the preset cannot be launched on this machine. Empty if it can."""
    trial = as_trial(preset, request.seed, request.measure_seconds, machine)
    return next(map(str, errors(checks.check(trial.options, machine))), "")


def remarks(request: Request, machine: Machine) -> list[str]:
    """Return lines about the change before it is measured: findings about options and machine, and its cache."""
    changed = with_changes(request.baseline(), request.changes)
    findings = checks.check(changed.options, machine)
    keys = {*request.changes, *(["device.logical_devices"] if "strategy.kind" in request.changes else [])}
    about = [finding for finding in findings if set(finding.options) & keys]
    always = [*machine.job, *checks.of_packages(changed.options.run.python)]
    lines = [finding.line for finding in dict.fromkeys([*always, *about])]
    train = changed.options.train
    if "input.cache" in request.changes and train.epochs == 1 and train.steps_per_epoch is None:
        lines.append("note: input.cache: trials are measured with a filled cache; the preset trains one pass")
    return lines
