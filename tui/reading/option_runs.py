"""The last runs of a preset by the values of an option, and the gains that proofs have measured with it. Reading
hundreds of runs is done in a thread. Imports no Textual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...engine import runs
from ...engine.runs import Run
from ...engine.runs.launched_with import trained_with
from ...engine.runs.titles import preset_of
from ...engine.system.identity import Place
from ...engine.trials.record import Comparison, Record
from ..form.form_state import INFO, FormState, to_text
from .proofs import all_proofs
from .queue_places import Kept
from .run_list import Entry, changed, entry_of

SEARCHED = 300  # newest runs, among which the runs of the preset are searched
MOST_RUNS, MOST_GAINS, LAST_RUNS = 5, 3, 3
_MEASURED = ("kept", "faster", "slower", "rejected", "no difference")  # the decisions with a gain
_GROUPS = ("precision", "compile", "input", "strategy", "device", "workload", "train")  # which change speed or losses


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended, as it is listed, and its options by key."""

    listed: Entry
    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        return to_text(self.values.get(key, INFO[key].default))

    def has_value_of(self, key: str, state: FormState) -> bool:
        """Return True if the run has the value of the form, however that is written there: 1e-3 is 0.001."""
        return key not in state.errors and self.text(key) == to_text(state.preset.options.value(key))

    def others(self, key: str, state: FormState) -> list[str]:
        """Return the names of the other options in which the run differs from the form."""
        options = state.preset.options
        different = (info for info in INFO.values() if self.text(info.key) != to_text(options.value(info.key)))
        return [info.name for info in different if info.key != key and info.group in _GROUPS]


@dataclass(frozen=True)
class Gain:
    """A change with a measured gain, in its record. `host` is empty if it was measured on this machine."""

    comparison: Comparison
    record: Record
    host: str


@dataclass(frozen=True)
class Experience:
    """The ended runs of the preset, the newest first, and all measured gains, the newest first."""

    preset: str
    runs: tuple[EndedRun, ...] = ()
    gains: tuple[Gain, ...] = ()

    def by_value(self, key: str, state: FormState) -> list[EndedRun]:
        """Return the newest run of each value of the option, at most 5; none if all have the value of the form."""
        newest: dict[str, EndedRun] = {}
        for run in self.runs:
            newest.setdefault(run.text(key), run)
        others = [run for run in newest.values() if not run.has_value_of(key, state)]
        return list(newest.values())[:MOST_RUNS] if others else []

    def gains_with(self, key: str) -> list[Gain]:
        """Return at most 3 gains of changes with the option `key`, first those of this preset, the newest first."""
        gains = [gain for gain in self.gains if key in gain.comparison.changes]
        return sorted(gains, key=lambda gain: gain.record.preset_name != self.preset)[:MOST_GAINS]


class ExperienceReader:
    """Reads the runs and proofs of this home. A file that has not changed is not read again."""

    def __init__(self) -> None:
        self._presets, self._runs = Kept[str](), Kept[EndedRun | None]()

    def read(self, preset: str, most: int | None = None) -> Experience:
        """Return what this home says about the preset's options; with `most` of so many newest runs, without gains."""
        read = (self._read(run, preset) for run in islice(runs.all_runs(), SEARCHED))
        ended = tuple(islice((run for run in read if run is not None), most))
        return Experience(preset, ended, tuple(self._gains()) if most is None else ())

    def _read(self, run: Run, preset: str) -> EndedRun | None:
        """Return the run; None if it has another preset, has not ended, or was damaged."""
        written = changed(run, "result.json")
        if not written or self._presets.read(run.id, None, lambda _: preset_of(run)) != preset:
            return None
        return self._runs.read(run.id, written, lambda _: _ended(run))

    def _gains(self) -> list[Gain]:
        here = Place.here().host
        return [
            Gain(comparison, entry.data, "" if entry.data.host in (None, here) else str(entry.data.host))
            for entry in all_proofs()
            for comparison in entry.data.comparisons
            if comparison.gain is not None and comparison.decision in _MEASURED
        ]


def _ended(run: Run) -> EndedRun | None:
    values = trained_with(run)
    return EndedRun(entry_of(run), values) if values and run.read_result().value else None
