"""What a search has found so far, read from proof.json: its candidates in order, and what each option brought.

What is missing in the file or of another kind is left out. sentences.py tells the same in words.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...files.values import mapping, number
from ...proof.improved_preset import leading_to, together
from ...trials import STAGES
from ...trials.sentences import changes, to_take
from ...units import MINUTE, change, spread

Told = Mapping[str, Any]
PAIRS = "pairs"  # the stage of a candidate that was measured in pairs with the preset
WITHOUT_INPUT = "*"  # the mark of what was measured without its input
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


def search_of(data: Told) -> Told:
    """Its `search`; empty where there is none."""
    return mapping(data.get("search"))


def limits_of(data: Told) -> Told:
    return mapping(search_of(data).get("limits"))


def listed(value: Any) -> list[Told]:
    """A list of objects, whatever stands there."""
    return [mapping(one) for one in value] if isinstance(value, list) else []


def limit_seconds(data: Told) -> float | None:
    """The time that the search may take."""
    minutes = number(limits_of(data).get("minutes"))
    return None if minutes is None else minutes * MINUTE


# ---- the candidates -------------------------------------------------------------------------------


def ranked(data: Told) -> list[Told]:
    """Those being measured, then by speed, the best first: with their input, without it, and those without a speed.

    Each has its `number` in the order of the search. The preset itself stands among them, unless it is a candidate
    already, and so does each side that was measured in pairs.
    """
    listed_ones = enumerate(listed(search_of(data).get("candidates")))
    found: list[Told] = [{**one, "number": number_} for number_, one in listed_ones]
    if (was := _preset(data)) and not any(not mapping(one.get("settings")) for one in found):
        found.append(was)
    return sorted([*found, *_of_pairs(data)], key=_place)


def _place(candidate: Told) -> tuple[bool, bool, bool, float]:
    speed = number(candidate.get("samples_per_second"))
    without = bool(candidate.get("without_input"))
    return candidate.get("decision") != "running", speed is None, without, -(speed or 0.0)


def _preset(data: Told) -> Told:
    """The preset as it was, as a candidate; empty before it was measured."""
    trials = listed(data.get("baseline_trials"))
    peaks = [peak for trial in trials if (peak := number(trial.get("peak_memory_bytes"))) is not None]
    speed = number(search_of(data).get("before_speed"))
    if speed is None:
        return {}
    return {
        "stage": "", "settings": {}, "tried": {}, "reason": "the preset as it was", "trials": trials,
        "samples_per_second": speed, "peak_bytes": max(peaks, default=None), "decision": "reference", "number": -1,
    }  # fmt: skip


def _of_pairs(data: Told) -> Iterator[Told]:
    """Both sides of each comparison in pairs as candidates, with the speeds that the head of the search shows."""
    for place, one in enumerate(listed(data.get("comparisons"))):
        for side, settings in (("a", {}), ("b", mapping(one.get("changes")))):
            trials = [trial for trial in listed(one.get("trials")) if trial.get("side") == side]
            speeds = [speed for trial in trials if trial.get("outcome") == "ok"
                      and (speed := number(trial.get("samples_per_second"))) is not None]  # fmt: skip
            if speeds:
                told = {name: one.get(name) for name in ("why", "gain", "spread")} if settings else {}
                yield {
                    "stage": PAIRS, "settings": settings, "tried": {}, "trials": trials,
                    "samples_per_second": statistics.median(speeds), "decision": one.get("decision"),
                    "reason": f"in pairs: {changes(settings) if settings else 'the preset'}",
                    "why": told.get("why"), "since_start": told.get("gain"), "spread": told.get("spread"),
                    "number": -2 - 2 * place - (side == "b"),
                }  # fmt: skip


def since_start(candidate: Told, data: Told) -> float | None:
    """The gain against the start: the preset, measured as the candidate was, with or without its input.

    None of the preset itself, and where the preset was not measured without its input.
    """
    if candidate.get("stage") == PAIRS:
        return number(candidate.get("since_start"))
    speed, before = number(candidate.get("samples_per_second")), number(search_of(data).get("before_speed"))
    if candidate.get("without_input"):
        alike = [one for one in listed(search_of(data).get("candidates")) if one.get("without_input")]
        speeds = (number(one.get("samples_per_second")) for one in alike if not mapping(one.get("settings")))
        before = next(speeds, None)
    return None if speed is None or not before or not mapping(candidate.get("settings")) else speed / before - 1


def is_best(candidate: Told, data: Told) -> bool:
    """Whether these are the best settings so far."""
    best = mapping(search_of(data).get("best"))
    return bool(best) and candidate.get("settings") == best and candidate.get("decision") == "kept"


def chosen(data: Told) -> Told:
    """The settings that the search has chosen, proved or not; before that what the pairs measure, or the fastest."""
    if is_decided(data):
        return to_take(data)
    decided = listed(data.get("comparisons"))
    return mapping(decided[-1].get("changes")) if decided else mapping(search_of(data).get("best"))


def is_decided(data: Told) -> bool:
    """Whether the search has ended with a decision; one that was stopped before has none."""
    return data.get("state") == "done" or (data.get("state") != "running" and bool(data.get("comparisons")))


def is_chosen(candidate: Told, data: Told) -> bool:
    """Whether these are the chosen settings; a learning rate scaled with the batch size is chosen beside them."""
    settings, taken = mapping(candidate.get("settings")), chosen(data)
    beside = [key for key in taken if key not in settings]
    alike = all(key in taken and taken[key] == value for key, value in settings.items())
    stands = candidate.get("decision") == "kept" or candidate.get("stage") == PAIRS
    return bool(settings) and alike and all(key in SCALED for key in beside) and stands


def is_dropped(candidate: Told, data: Told) -> bool:
    """Whether it was faster than what was the best then, and was not chosen in the end: what it tried, or all of it."""
    whole = is_best(candidate, data) and bool(candidate.get("tried")) and not is_chosen(candidate, data)
    return _is_undone(candidate, data) or (is_decided(data) and whole)


def _is_undone(candidate: Told, data: Told) -> bool:
    """Whether what it tried was kept then, and is not among what was chosen in the end."""
    best, taken, tried = mapping(search_of(data).get("best")), chosen(data), mapping(candidate.get("tried"))
    kept = is_decided(data) and candidate.get("decision") == "kept"
    return kept and any(taken.get(key) != best.get(key) for key in tried)


# ---- what each option brought ---------------------------------------------------------------------


@dataclass(frozen=True)
class Brought:
    """What the options of a stage brought: `state` is kept, not chosen, nothing, trying, to come or not tried.

    With nothing kept, `gain` is that of the best candidate; where its values were kept only with those of other stages,
    the gain is that of the combination and told there. `settings` are those that were kept. `not chosen`: trials have
    found it faster, and it was refused at the end.
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
    def figures(self) -> str:
        """`+148 % ± 4.1 %`, or what is known instead."""
        if self.state in ("kept", "not chosen", "nothing") and self.gain is not None:
            beside = f" ± {spread(self.spread)}" if self.spread is not None else ""
            return f"{change(self.gain)}{beside}{WITHOUT_INPUT if self.without_input else ''}"
        return {"nothing": "no gain", "trying": "being tried", "kept": "kept"}.get(self.state, self.state)


def brought(data: Told) -> list[Brought]:
    """Of every option that may be searched, in the order of the search, and of combinations that were kept."""
    wanted = limits_of(data).get("only")
    stages = [stage for stage in STAGES if stage in wanted] if isinstance(wanted, list) else list(STAGES)
    candidates = [one for one in listed(search_of(data).get("candidates")) if one.get("tried")]
    going_on = data.get("state") == "running"
    best = mapping(search_of(data).get("best"))
    kept = [one for one in candidates if one.get("decision") == "kept" and one.get("stage") in _COMBINED]
    stages += [stage for stage in _COMBINED if any(one.get("stage") == stage for one in kept)]
    found = [_brought(stage, [one for one in candidates if one.get("stage") == stage], going_on) for stage in stages]
    combined = {key: value for key, value in _merged(kept).items() if best.get(key) == value}
    found = [one if _stands(one, best) else _with_others(one, combined) for one in found]
    dropped = {str(one.get("stage")) for one in candidates if _is_undone(one, data)}
    left = {key for key, value in best.items() if is_decided(data) and chosen(data).get(key) != value}
    return [
        replace(one, state="not chosen", settings={}) if one.stage in dropped or left & set(one.settings) else one
        for one in found
    ]


def _with_others(one: Brought, combined: Told) -> Brought:
    """Of values that no trial of the stage itself has kept: whether a combination has."""
    mine = {
        key: value
        for key, value in combined.items()
        if one.stage == _STAGE_OF.get(key, _STAGE_OF.get(key.partition(".")[0]))
    }
    if mine:
        return Brought(one.stage, "kept", mine)
    return Brought(one.stage, "nothing", {}) if one.state == "kept" else one


def _brought(stage: str, tried: list[Told], going_on: bool) -> Brought:
    kept = [one for one in tried if one.get("decision") == "kept"]
    if any(one.get("decision") == "running" for one in tried) and going_on:
        return Brought(stage, "trying", _merged(kept), *_gain(kept))
    if kept:
        return Brought(stage, "kept", _merged(kept), *_gain(kept), bool(kept[0].get("without_input")))
    measured = [one for one in tried if one.get("decision") in ("rejected", "failed")]
    if measured:
        best = max(measured, key=_gain_of)
        figures = number(best.get("gain")), number(best.get("spread"))
        return Brought(stage, "nothing", {}, *figures, bool(best.get("without_input")))
    return Brought(stage, "to come" if going_on else "not tried", {})


def _gain_of(candidate: Told) -> float:
    gain = number(candidate.get("gain"))
    return -math.inf if gain is None else gain


def _stands(one: Brought, best: Told) -> bool:
    """Whether something was kept that the best settings still have, and not another option in its place."""
    return one.state == "trying" or any(best.get(key) == value for key, value in one.settings.items())


def _gain(kept: list[Told]) -> tuple[float | None, float | None]:
    return together(leading_to(_merged(kept), kept) or kept)


def _merged(kept: list[Told]) -> dict[str, Any]:
    return {key: value for one in kept for key, value in mapping(one.get("tried")).items()}


# ---- memory ---------------------------------------------------------------------------------------


def memory_of(data: Told) -> Told:
    return mapping(search_of(data).get("memory"))


def predicted(memory: Told, batch: float) -> float | None:
    """The bytes that this batch size is expected to take."""
    base, each = number(memory.get("base_bytes")), number(memory.get("bytes_per_sample"))
    return None if base is None or each is None else base + each * batch


def largest_error(memory: Told) -> float | None:
    """The largest relative error of the predictions that were measured afterwards."""
    errors = []
    for point in listed(memory.get("points")):
        peak, said = number(point.get("peak_bytes")), number(point.get("predicted_bytes"))
        if peak and said is not None:
            errors.append(abs(said - peak) / peak)
    return max(errors, default=None)


# ---- speeds ---------------------------------------------------------------------------------------


def gain_so_far(data: Told) -> float | None:
    """What the trials so far show; the pairs at the end prove it."""
    search = search_of(data)
    before, best = number(search.get("before_speed")), number(search.get("best_speed"))
    return None if not before or best is None or best == before else best / before - 1


def in_all(data: Told) -> tuple[float | None, float | None, bool]:
    """The gain of the chosen settings against the start, its spread, and whether pairs have proved it."""
    proved = [one for one in listed(data.get("comparisons")) if one.get("decision") == "kept"]
    if number(data.get("gain_total")) is not None and proved:
        return number(proved[-1].get("gain")), number(proved[-1].get("spread")), True
    return gain_so_far(data), None, False
