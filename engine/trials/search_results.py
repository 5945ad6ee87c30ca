"""The results of a search so far, read from proof.json: its candidates in order, and the gain of each option."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..text_table import Interval
from ..units import MINUTE, change, spread
from . import STAGES, significance
from .proof_sentences import changes, to_take
from .record import Candidate, Limits, Memory, Record, search_of

BATCH = "input.batch_size"
PAIRS = "pairs"  # the stage of a candidate that was measured in pairs with the preset
WITHOUT_INPUT = "*"  # marks a value that was measured without the input
SCALED = ("train.learning_rate", "train.hold_steps", "train.decay_steps", "train.warmup_steps")  # with the batch size
WORDS = {
    "batch_size": "batch size", "precision": "precision", "xla": "XLA", "steps_per_execution": "steps per execution",
    "strategy": "strategy", "threads": "threads", "input": "input", "together": "combination", "wide": "combination",
}  # fmt: skip
_COMBINED = ("together", "wide")  # stages that change options of several others
_STAGE_OF = {
    "input.batch_size": "batch_size", "compile.steps_per_execution": "steps_per_execution", "compile.xla": "xla",
    "precision": "precision", "strategy": "strategy", "device": "threads", "input": "input",
}  # fmt: skip


def limits_of(data: Record) -> Limits:
    return search_of(data).limits


def limit_seconds(data: Record) -> float | None:
    """Return the time in seconds that the search may take. None if the proof is no search."""
    return data.search.limits.minutes * MINUTE if data.search else None


# ---- the candidates -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Ranked(Candidate):
    """A row of the leaderboard: a candidate with its `number` in the order of the search (-1: the preset). A side that
    was measured in pairs has a lower number, and in `since_start` its gain against the preset (0.05: 5 % faster).
    """

    number: int
    since_start: float | None = None

    @property
    def interval(self) -> Interval | None:
        """The gain over the best settings before, with its error; measured in pairs, over the preset."""
        if self.stage != PAIRS:
            return significance.interval(self.gain, self.spread)
        return significance.interval(self.since_start, self.spread, len(self.good))


def ranked(data: Record) -> list[Ranked]:
    """Return the leaderboard: candidates being measured, then the fastest first, those with their input before those
    without, those without a speed last. The preset and each side measured in pairs have a row.
    """
    rows = [Ranked(**vars(candidate), number=number) for number, candidate in enumerate(search_of(data).candidates)]
    if all(candidate.settings for candidate in rows):
        rows += _preset(data)
    return sorted([*rows, *_of_pairs(data)], key=_place)


def _place(candidate: Candidate) -> tuple[bool, bool, bool, float]:
    speed = candidate.samples_per_second
    return candidate.decision != "running", speed is None, candidate.without_input, -(speed or 0.0)


def _preset(data: Record) -> list[Ranked]:
    speed, trials = search_of(data).before_speed, data.baseline_trials
    if speed is None:
        return []
    peaks = [trial.peak_memory_bytes for trial in trials if trial.peak_memory_bytes is not None]
    return [Ranked(
        stage="", settings={}, tried={}, reason="the preset as it was", trials=trials, samples_per_second=speed,
        peak_bytes=max(peaks, default=None), decision="reference", number=-1,
    )]  # fmt: skip


def _of_pairs(data: Record) -> Iterator[Ranked]:
    """A row for each side of each comparison that has a speed: that in the pair of the median gain."""
    sides: tuple[tuple[str, bool], ...] = (("a", False), ("b", True))
    for place, comparison in enumerate(data.comparisons):
        for side, is_changed in sides:
            trials = [trial for trial in comparison.trials if trial.side == side]
            if (speed := comparison.figures(side)["samples_per_second"]) is not None:
                yield Ranked(
                    stage=PAIRS, settings=comparison.changes if is_changed else {}, tried={}, trials=trials,
                    samples_per_second=speed, decision=comparison.decision,
                    reason=f"in pairs: {changes(comparison.changes) if is_changed else 'the preset'}",
                    why=comparison.why if is_changed else "", since_start=comparison.gain if is_changed else None,
                    spread=comparison.spread if is_changed else None, number=-2 - 2 * place - is_changed,
                )  # fmt: skip


def since_start(candidate: Ranked, data: Record) -> float | None:
    """Return the gain against the preset, measured in the same way (0.05: 5 % faster). None if it was not."""
    if candidate.stage == PAIRS:
        return candidate.since_start
    speed, before = candidate.samples_per_second, search_of(data).before_speed
    if candidate.without_input:
        alike = [candidate for candidate in search_of(data).candidates if candidate.without_input]
        speeds = (candidate.samples_per_second for candidate in alike if not candidate.settings)
        before = next(speeds, None)
    return None if speed is None or not before or not candidate.settings else speed / before - 1


def is_best(candidate: Candidate, data: Record) -> bool:
    best = search_of(data).best
    return bool(best) and candidate.settings == best and candidate.decision == "kept"


def chosen(data: Record) -> Mapping[str, Any]:
    """Return the settings that the search has chosen; before the end those in pairs, or the fastest so far."""
    if is_decided(data):
        return to_take(data)
    decided = data.comparisons
    return decided[-1].changes if decided else search_of(data).best


def is_decided(data: Record) -> bool:
    return data.state == "done" or (data.state != "running" and bool(data.comparisons))


def is_chosen(candidate: Candidate, data: Record) -> bool:
    """Return True if the candidate has the chosen settings, without a learning rate scaled with the batch size."""
    settings, taken = candidate.settings, chosen(data)
    beside = [key for key in taken if key not in settings]
    alike = all(key in taken and taken[key] == value for key, value in settings.items())
    stands = candidate.decision == "kept" or candidate.stage == PAIRS
    return bool(settings) and alike and all(key in SCALED for key in beside) and stands


def is_dropped(candidate: Candidate, data: Record) -> bool:
    """Return True if the candidate was kept in the search, but not chosen in the end."""
    whole = is_best(candidate, data) and bool(candidate.tried) and not is_chosen(candidate, data)
    return _is_undone(candidate, data) or (is_decided(data) and whole)


def _is_undone(candidate: Candidate, data: Record) -> bool:
    best, taken, tried = search_of(data).best, chosen(data), candidate.tried
    kept = is_decided(data) and candidate.decision == "kept"
    return kept and any(taken.get(key) != best.get(key) for key in tried)


# ---- what each option brought ---------------------------------------------------------------------


@dataclass(frozen=True)
class Brought:
    """The gain of the options of a stage (0.05: 5 % faster), of the best candidate if nothing was kept, None if it is
    in the row of a combination. `settings` are the kept values. `state` is kept, not chosen (faster in trials, but
    refused at the end), nothing, trying, to come or not tried.
    """

    stage: str
    state: str
    settings: Mapping[str, Any]
    gain: float | None = None
    spread: float | None = None
    without_input: bool = False  # measured on one repeated batch

    @property
    def name(self) -> str:
        return WORDS.get(self.stage, self.stage)

    @property
    def interval(self) -> Interval | None:
        """The gain with its standard error. None while the gain is not final."""
        is_final = self.state in ("kept", "not chosen", "nothing")
        return significance.interval(self.gain, self.spread) if is_final else None

    @property
    def figures(self) -> str:
        """The gain and its spread, such as `+148 % ± 4.1 %`. If there is no gain, the state in words."""
        if self.state in ("kept", "not chosen", "nothing") and self.gain is not None:
            beside = f" ± {spread(self.spread)}" if self.spread is not None else ""
            return f"{change(self.gain)}{beside}{WITHOUT_INPUT if self.without_input else ''}"
        return {"nothing": "no gain", "trying": "being tried", "kept": "kept"}.get(self.state, self.state)


def brought(data: Record) -> list[Brought]:
    """Return the gain of each stage that is searched, in order, and then that of kept combinations."""
    stages = [stage for stage in STAGES if stage in limits_of(data).only]
    candidates = [candidate for candidate in search_of(data).candidates if candidate.tried]
    going_on = data.state == "running"
    best = search_of(data).best
    kept = [candidate for candidate in candidates if candidate.decision == "kept" and candidate.stage in _COMBINED]
    stages += [stage for stage in _COMBINED if any(candidate.stage == stage for candidate in kept)]
    options = [
        _brought(stage, [candidate for candidate in candidates if candidate.stage == stage], going_on)
        for stage in stages
    ]
    combined = {key: value for key, value in _merged(kept).items() if best.get(key) == value}
    options = [option if _stands(option, best) else _with_others(option, combined) for option in options]
    dropped = {candidate.stage for candidate in candidates if _is_undone(candidate, data)}
    left = {key for key, value in best.items() if is_decided(data) and chosen(data).get(key) != value}
    return [
        replace(option, state="not chosen", settings={})
        if option.stage in dropped or left & set(option.settings)
        else option
        for option in options
    ]


def _with_others(option: Brought, combined: Mapping[str, Any]) -> Brought:
    """A stage without a kept trial is `kept` if the kept combinations have changed its options."""
    mine = {
        key: value
        for key, value in combined.items()
        if option.stage == _STAGE_OF.get(key, _STAGE_OF.get(key.partition(".")[0]))
    }
    if mine:
        return Brought(option.stage, "kept", mine)
    return Brought(option.stage, "nothing", {}) if option.state == "kept" else option


def _brought(stage: str, tried: list[Candidate], going_on: bool) -> Brought:
    kept = [candidate for candidate in tried if candidate.decision == "kept"]
    if any(candidate.decision == "running" for candidate in tried) and going_on:
        return Brought(stage, "trying", _merged(kept), *_gain(kept))
    if kept:
        return Brought(stage, "kept", _merged(kept), *_gain(kept), kept[0].without_input)
    measured = [candidate for candidate in tried if candidate.decision in ("rejected", "failed")]
    if measured:
        best = max(measured, key=_gain_of)
        return Brought(stage, "nothing", {}, best.gain, best.spread, best.without_input)
    return Brought(stage, "to come" if going_on else "not tried", {})


def _gain_of(candidate: Candidate) -> float:
    return -math.inf if candidate.gain is None else candidate.gain


def _stands(option: Brought, best: Mapping[str, Any]) -> bool:
    return option.state == "trying" or any(best.get(key) == value for key, value in option.settings.items())


def _gain(kept: list[Candidate]) -> tuple[float | None, float | None]:
    return together(leading_to(_merged(kept), kept) or kept)


def _merged(kept: list[Candidate]) -> dict[str, Any]:
    return {key: value for candidate in kept for key, value in candidate.tried.items()}


def leading_to(final: Mapping[str, Any], kept: Sequence[Candidate]) -> list[Candidate]:
    """Return the kept candidates up to the last that agrees with `final`, of those measured like the first."""
    if not kept:
        return []
    alike = [candidate for candidate in kept if candidate.without_input == kept[0].without_input]
    ends = [
        number
        for number, candidate in enumerate(alike)
        if all(final[key] == value for key, value in candidate.tried.items() if key in final)
    ]
    return alike[: ends[-1] + 1] if ends else []


def together(kept: Sequence[Candidate]) -> tuple[float | None, float | None]:
    """Return the total gain (0.05: 5 % faster) of changes kept one after another, the product of 1 + gain, and its
    standard error, the root of the sum of the squares. None without any.
    """
    gains = [candidate.gain for candidate in kept if candidate.gain is not None]
    spreads = [candidate.spread for candidate in kept if candidate.spread is not None]
    gain = math.prod(1 + gain for gain in gains) - 1 if gains else None
    return gain, math.hypot(*spreads) if spreads else None


# ---- memory ---------------------------------------------------------------------------------------


def memory_of(data: Record) -> Memory:
    """Return the memory of the batches. If none was measured, the result has no points."""
    return search_of(data).memory or Memory(of="")


# ---- speeds ---------------------------------------------------------------------------------------


def speeds(data: Record) -> tuple[float | None, float | None]:
    """Return the samples per second before and after; of a search without pairs those of single trials. The second is
    None if the settings were not kept.
    """
    before, after = ((side or {}).get("samples_per_second") for side in (data.before, data.after))
    if data.search is None or (data.gain_total is not None and before is not None and after is not None):
        return before, after
    is_refused = is_decided(data) and not to_take(data)
    return data.search.before_speed, None if is_refused else data.search.best_speed


def gain_so_far(data: Record) -> float | None:
    """Return the gain of the best settings by trials (0.05: 5 % faster), not proved by pairs. None without one."""
    search = search_of(data)
    before, best = search.before_speed, search.best_speed
    return None if not before or best is None or best == before else best / before - 1


def in_all(data: Record) -> tuple[float | None, float | None, bool]:
    """Return the gain of the chosen settings, its spread (None: single trials), and whether pairs proved it."""
    proved = [comparison for comparison in data.comparisons if comparison.decision == "kept"]
    if data.gain_total is not None and proved:
        return proved[-1].gain, proved[-1].spread, True
    search, taken = search_of(data), chosen(data)
    if not is_decided(data) or search.best.items() <= taken.items():
        return gain_so_far(data), None, False
    alike = [each for each in search.candidates if is_chosen(each, data) and not each.without_input]
    speeds = [each.samples_per_second for each in alike if each.samples_per_second]
    return (speeds[-1] / search.before_speed - 1 if speeds and search.before_speed else None), None, False
