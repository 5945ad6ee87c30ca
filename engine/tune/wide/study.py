"""One study of Optuna, with its sampler (TPE, Bergstra et al. 2011): known trials, proposals and results.
Settings that cannot be trained, or would need too much memory, violate a constraint, so that similar ones are avoided.
A failed trial teaches a sampler nothing, which is right for settings that were not measured.
Deferred imports: Optuna is an optional extra, and takes a second.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ... import units
from ...job import machine_gpus
from ...job.machine_gpus import Machine
from ...proof.process import processor
from ...proof.request import Request
from ...system.identity import Place
from ...trials import SCREENING_SECONDS
from ...trials.record import Limits
from ...trials.trial_runner import LEAST_REPORTS
from ..search_space import Settings
from . import storage
from .storage import StudyError

NEAR = 1.25  # factor; nearer numbers are the same for the sampler, but are measured as they are
Params = Mapping[str, Any]  # a value for each axis
COMMON, AXES = "gputui", "gputui_axes"  # attributes of a study
MEMBER, SETTINGS, FOUND = "member", "settings", "found"  # attributes of a trial


@dataclass(frozen=True)
class Axis:
    """An axis of an Optuna study: an option with rising `numbers`, or `choices`, settings by their label."""

    name: str
    numbers: Sequence[int] = ()
    choices: Mapping[str, Settings] = field(default_factory=dict)

    def settings(self, value: Any) -> Settings:
        """Return the settings for a value of the study: the index of a number (from 0), or the label of a choice."""
        return self.choices[value] if self.choices else {self.name: self.numbers[value]}

    def value(self, effective: Mapping[str, Any]) -> Any:
        """Return the study's value for these settings, of the nearest number. None if none is near or fits."""
        if self.choices:
            fitting = (label for label, of in self.choices.items() if all(effective[key] == of[key] for key in of))
            return next(fitting, None)
        requested = effective[self.name]
        nearest = min(range(len(self.numbers)), key=lambda place: abs(math.log(self.numbers[place] / requested)))
        return (
            nearest if max(self.numbers[nearest], requested) / min(self.numbers[nearest], requested) <= NEAR else None
        )

    def __len__(self) -> int:
        return len(self.choices or self.numbers)

    @property
    def keys(self) -> list[str]:
        return list(next(iter(self.choices.values()))) if self.choices else [self.name]


@dataclass(frozen=True)
class SettingsResult:
    """The result of settings in a study."""

    settings: Mapping[str, Any]
    outcome: str  # `ok`, that of the last trial, `memory` (too much was predicted) or `left out`
    speed: float | None  # samples per second
    batch: int
    peak_bytes: int | None = None

    @property
    def is_feasible(self) -> bool:
        return self.outcome in ("ok", "slower")


@dataclass(frozen=True)
class Proposal:
    """A combination to measure: its settings, and Optuna's trial."""

    settings: dict[str, Any]
    trial: Any


@dataclass(frozen=True)
class Known:
    """A trial of the study. `found` is None before the trial has ended, and if the trial was given up."""

    member: str
    settings: Mapping[str, Any]
    found: SettingsResult | None


class Study:
    """One Optuna study, joined by the search in `folder`; members share `common`. Each call may raise StudyError."""

    def __init__(self, location: str, name: str, folder: Path, common: Mapping[str, Any]) -> None:
        self.location, self.name, self._common = location, name, common
        self._study: Any = None
        self.member = f"{Place.here().host}:{folder}"  # the same if the search is resumed

    @classmethod
    def of(cls, request: Request, machine: Machine, folder: Path) -> Study:
        """Return the study of a request, which is one in `folder` unless several searches share it."""
        limits = request.search or Limits()
        location = limits.study or str(folder / "study.journal")
        common = common_properties(request, machine, SCREENING_SECONDS)
        return cls(location, limits.study_name or request.preset_name, folder, common)

    def join(self) -> None:
        """Open or create the study, and fail own killed trials. Raises StudyError for other properties."""
        import optuna
        from optuna.trial import TrialState

        with storage.faults_of(self.location):
            self._study = storage.study(self.location, self.name, "maximize")
            self._study.sampler = optuna.samplers.TPESampler(seed=self.seed())
            if COMMON not in self._study.user_attrs:
                if self._study.get_trials(deepcopy=False):
                    raise StudyError(
                        f"the study {self.name!r} in {storage.shown(self.location)} is not one of gputui's; give --name"
                    )
                self._study.set_user_attr(COMMON, dict(self._common))
            if other := difference(self._study.user_attrs[COMMON], self._common):
                raise StudyError(
                    f"the study {self.name!r} in {storage.shown(self.location)} was begun with {other}, so that speeds "
                    "cannot be compared; give --name for a study of its own"
                )
            for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                if trial.user_attrs.get(MEMBER) == {"search": self.member}:
                    self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def seed(self) -> int:
        """Return a seed that differs for each member and after each trial, so that no proposals are repeated."""
        with storage.faults_of(self.location):
            return zlib.crc32(f"{self.member} {len(self._study.trials)}".encode())

    def finished_trials(self) -> int:
        """Join the study if its storage exists, and return the number of its finished trials. Raises StudyError."""
        if not storage.exists(self.location):
            return 0
        self.join()
        with storage.faults_of(self.location):
            return sum(trial.state.is_finished() for trial in self._study.get_trials(deepcopy=False))

    def agree(self, mine: Sequence[Axis]) -> list[Axis]:
        """Return the axes of the study. If the study has no axes yet, `mine` are stored as its axes."""
        with storage.faults_of(self.location):
            if AXES not in self._study.user_attrs:
                self._study.set_user_attr(AXES, [asdict(axis) for axis in mine])
            return [Axis(**fields) for fields in self._study.user_attrs[AXES]]

    def known(self) -> list[Known]:
        with storage.faults_of(self.location):
            attributes = [trial.user_attrs for trial in self._study.get_trials(deepcopy=False)]
        return [
            Known(
                str((of.get(MEMBER) or {}).get("search")), of[SETTINGS],
                SettingsResult(**of[FOUND]) if of.get(FOUND) else None,
            )
            for of in attributes if SETTINGS in of
        ]  # fmt: skip

    def of_this_search(self) -> list[Known]:
        return [result for result in self.known() if result.member == self.member]

    def settings_results(self) -> list[SettingsResult]:
        ended = [result.found for result in self.known() if result.found]
        return sorted(ended, key=lambda measured: -(measured.speed or 0.0))

    def learn(self, params: Params, result: SettingsResult, space: Sequence[Axis]) -> None:
        """Add the result of settings that were not proposed; `params` is their value on each axis of `space`."""
        from optuna.trial import TrialState, create_trial

        good, slower = result.outcome == "ok", result.outcome == "slower"
        with storage.faults_of(self.location):
            plain = json.loads(json.dumps(vars(result)))
            self._study.add_trial(create_trial(
                state=TrialState.COMPLETE if good else TrialState.PRUNED,
                value=result.speed if good else None,
                params=dict(params),
                distributions=_distributions(space),
                intermediate_values={LEAST_REPORTS: result.speed} if slower and result.speed else {},
                constraints=_constraints(result),
                user_attrs={MEMBER: {"search": self.member}, SETTINGS: dict(result.settings), FOUND: plain},
            ))  # fmt: skip

    def ask(
        self, space: Sequence[Axis], settings_of: Callable[[Params], Mapping[str, Any]], params: Params | None = None
    ) -> Proposal:
        """Return the next combination, that of `params` or a proposal, which others then see as measured. `space` has
        the axes. If another member asks at the same moment, it may get `params`, and this one the model's proposal.
        """
        with storage.faults_of(self.location):
            if params is not None:
                self._study.enqueue_trial(dict(params))
            trial = self._study.ask(_distributions(space))
            trial.set_user_attr(MEMBER, {"search": self.member})
            proposal = Proposal(dict(settings_of(trial.params)), trial)
            trial.set_user_attr(SETTINGS, proposal.settings)
            return proposal

    def tell(self, proposal: Proposal, result: SettingsResult, excess: float = 1.0) -> None:
        """Report the result of a proposal; `excess` is by how much the limit is violated (0.5: 50 %)."""
        from optuna.trial import TrialState

        good = result.outcome == "ok"
        state = TrialState.COMPLETE if good else TrialState.PRUNED
        with storage.faults_of(self.location):
            for name, value in _constraints(result, excess).items():
                proposal.trial.set_constraint(name, value)
            proposal.trial.set_user_attr(FOUND, json.loads(json.dumps(vars(result))))
            if result.outcome == "slower" and result.speed:  # by which the sampler ranks what was ended early
                proposal.trial.report(result.speed, step=LEAST_REPORTS)
            self._study.tell(proposal.trial.number, result.speed if good else None, state, skip_if_finished=True)

    def give_back(self, proposal: Proposal) -> None:
        from optuna.trial import TrialState

        with storage.faults_of(self.location):
            self._study.tell(proposal.trial.number, state=TrialState.FAIL, skip_if_finished=True)


def _constraints(result: SettingsResult, excess: float = 1.0) -> dict[str, float]:
    # infeasible above 0
    if result.is_feasible:
        return {}
    return {"memory" if result.outcome in ("oom", "memory") else "trains": excess}


def _distributions(space: Sequence[Axis]) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        axis.name: CategoricalDistribution(list(axis.choices)) if axis.choices
        else IntDistribution(0, len(axis) - 1)
        for axis in space
    }  # fmt: skip


# The properties that all members of a study have in common, and their names for the user.
NAMES = {
    "gpus": "GPUs", "processor": "processor", "cpus": "CPUs", "tensorflow": "TensorFlow", "preset": "preset",
    "only": "--only", "leave": "--leave", "memory_bytes": "--memory-gb", "largest_batch": "--largest-batch",
    "precisions": "--precision", "seconds": "measured seconds of a trial",
}  # fmt: skip


def common_properties(request: Request, machine: Machine, seconds: float) -> dict[str, Any]:
    """Return what all members of a study must have in common, as else speeds cannot be compared."""
    limits, options = request.search or Limits(), request.baseline().options
    return {
        "gpus": [gpu.name for gpu in machine_gpus.visible_gpus(options, machine)],
        "processor": processor(),
        "cpus": machine.cpus,
        "tensorflow": storage.version("tensorflow"),
        "preset": hashlib.sha256(json.dumps(asdict(options), sort_keys=True, default=str).encode()).hexdigest()[:16],
        "only": sorted(limits.only),
        "leave": sorted(limits.leave),
        "memory_bytes": limits.memory_bytes,
        "largest_batch": limits.largest_batch,
        "precisions": sorted(limits.precisions) if limits.precisions else None,
        "seconds": seconds,
    }


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return the first property of `common` in which two members differ, in words. Empty if they differ in none."""
    for key, name in NAMES.items():
        if there.get(key) != here[key]:
            if key == "preset":
                return "another preset, or other settings of it"
            return f"other {name} (there {_value_text(there.get(key))}, here {_value_text(here[key])})"
    return ""


def _value_text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        counts = {str(item): list(value).count(item) for item in value}
        return ", ".join(item if count == 1 else f"{count} x {item}" for item, count in counts.items()) or "none"
    return "none" if value is None else units.count(value) if isinstance(value, int) else str(value)
