"""The wide search: measures combinations that Optuna proposes, until the time has ended. What is known (of the ordered
search, before it was resumed, of other members) or does not fit into memory is reported, not measured again. Faster
settings of another member are measured here, as the pairs at the end decide about the best of the study.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from ...job import machine_gpus
from ...presets import Preset, PresetError
from ...proof.measurement import OutOfTime
from ...trials import STAGES, proof_sentences
from ...trials.comparing import Stopped
from ...trials.record import Candidate, StudyState, Trial
from ...trials.significance import LEAST_GAIN
from ...trials.trial_preset import with_changes
from ...trials.trial_runner import SLOWER, Judge, below
from ..memory_model import MemoryModel
from ..screening import SIDE, Screening, speed
from ..search_space import BATCH, POLICY, STEPS_TOGETHER, TOGETHER, XLA, Settings, Space
from ..stages import rounded
from . import storage
from .storage import StudyError
from .study import Axis, Params, Proposal, SettingsResult, Study

AS_IT_IS = "as in the preset"
MOST_DRAWN = 1000  # their settings take about 0.2 s
STAGE = "wide"
AGAIN = "measured before the search was resumed"
MOST_REPEATS = 5  # proposals in a row without a trial: the model repeats itself, so the next are drawn at random
LEANER = 2  # unknown settings may need only half the memory of the known ones, as with 16 bits
# The options, apart from the batch size, that decide how much memory a training takes.
OF_MEMORY = (POLICY, XLA, "strategy.kind", "strategy.devices", "input.cache", "input.prefetch_to_device", "input.cast")


class WideSearch:
    """Measures proposals of a study against the best settings, several at once if there are several GPUs."""

    def __init__(self, study: Study, screening: Screening) -> None:
        self._study, self._screening, self._preset, space = study, screening, screening.baseline, screening.space
        self._axes = study.agree(axes_of(space, self._preset))
        self._combinations = Combinations(self._axes, space, self._preset)
        self.state = StudyState(storage=storage.shown(study.location), name=study.name)
        self._places = Places(screening)
        self._repeats = 0  # proposals in a row that needed no trial
        self._exhausted = False  # nothing was drawn that can be measured

    def run(self) -> str:
        """Search until nothing is left or the storage fails; return why. Raises OutOfTime and Stopped."""
        try:
            if not self._axes:
                return "the limits leave nothing to combine"
            noted = [result.settings for result in self._study.of_this_search()]
            for candidate in self._screening.search.candidates:
                # without the input only what ran out of memory or failed counts
                result = self._settings_result(candidate)
                measured = result.speed is not None and not candidate.without_input
                useful = candidate.trials and (measured or not result.is_feasible)
                params = self._combinations.params(candidate.settings)
                if useful and params is not None and result.settings not in noted:
                    noted.append(result.settings)
                    self._study.learn(params, result, self._axes)
            self._note()
            self._measure_again()
            self._places.find(STAGE)
            self.state.at_once = self._places.count
            self._measure_settings_of_others()
            while not (ended := self._ended()):
                self._try_next()
                self._measure_settings_of_others()
                self._note()
            return ended
        except StudyError as fault:
            self.state.note = str(fault)
            return str(fault)

    def _measure_again(self) -> None:
        """The trials from before the search was resumed are known, and go into the record."""
        done = [candidate.settings for candidate in self._screening.search.candidates]
        for result in self._study.of_this_search():
            if result.settings not in done and self._screening.remembers(self._combined(result.settings)):
                done.append(result.settings)
                candidate = self._attempt(result.settings, AGAIN)
                params = self._combinations.params(result.settings)
                if result.found is None and params is not None:
                    self._study.learn(params, self._settings_result(candidate), self._axes)

    def _measure_settings_of_others(self) -> None:
        theirs = [each.found for each in self._study.known() if each.found and each.member != self._study.member]
        good = (result for result in theirs if result.outcome == "ok")
        other = max(good, key=lambda result: result.speed or 0.0, default=None)
        mine = [dict(each.settings) for each in self._screening.search.candidates if not each.without_input]
        least = (1 + LEAST_GAIN) * self._screening.best.speed
        if other and other.settings not in mine and (other.speed or 0.0) > least:
            self._attempt(other.settings, "the fastest of another member of the study")

    def _ended(self) -> str:
        measured = {json.dumps(result.settings, sort_keys=True) for result in self._study.settings_results()}
        if len(measured) >= len(self._combinations):
            return "every combination was measured"
        return "no new combination was found" if self._exhausted else ""

    def _try_next(self) -> None:
        """If the time ends or a stop is requested, the proposals that were not measured are given back."""
        proposals: list[Proposal] = []
        try:
            while len(proposals) < self._places.count and not self._ended():
                proposals += self._new_proposal([proposal.settings for proposal in proposals])
            if len(proposals) > 1:
                self._places.measure_ahead([self._combined(proposal.settings) for proposal in proposals], self._judge)
            while proposals:
                reason = f"proposal {proposals[0].trial.number} of the study"
                candidate = self._attempt(proposals[0].settings, reason, self._judge)
                self._study.tell(proposals.pop(0), self._settings_result(candidate))
        except (OutOfTime, Stopped):
            for proposal in proposals:
                self._study.give_back(proposal)
            raise

    def _new_proposal(self, taken: Sequence[Settings]) -> list[Proposal]:
        """Empty if its result is known, if it is in `taken`, or if it needs too much memory."""
        study, results, params = self._study, self._study.settings_results(), None
        if self._repeats >= MOST_REPEATS:
            measured = [*taken, *(result.settings for result in results)]
            for drawn in self._combinations.in_random_order(study.seed()):
                settings = self._combinations.settings(drawn)
                if settings not in measured and self._excess(settings) is None:
                    params = drawn
                    break
            else:
                self._exhausted = True
                return []
        proposal = study.ask(self._axes, self._combinations.settings, params)
        settings = proposal.settings
        twin = next((result for result in study.settings_results() if result.settings == settings), None)
        self._repeats += 1
        if twin is not None:
            study.tell(proposal, twin)
        elif settings in taken:
            study.give_back(proposal)
        elif (excess := self._excess(settings)) is not None:
            why, predicted = "more memory is predicted than may be taken", self._memory(settings)[0]
            self._screening.leave_out(STAGE, self._combined(settings), why, predicted)
            study.tell(proposal, SettingsResult(settings, "memory", None, self._batch(settings)), excess)
        else:
            self._repeats = 0
            return [proposal]
        return []

    @property
    def _judge(self) -> Judge:
        speeds = [result.speed or 0.0 for result in self._study.settings_results()[:1]]
        return below(SLOWER * max(self._screening.best.speed, *speeds, 0.0))

    def _attempt(self, settings: Settings, reason: str, judge: Judge | None = None) -> Candidate:
        # options that the best settings change and `settings` do not are set to the preset's values
        predicted, _ = self._memory(settings)
        return self._screening.attempt(STAGE, self._combined(settings), reason, predicted, judge)

    def _combined(self, settings: Settings) -> dict[str, Any]:
        best = self._screening.best
        before = {key: self._preset.options.value(key) for key in best.settings}
        return {key: value for key, value in {**before, **settings}.items() if best.preset.options.value(key) != value}

    def _memory(self, settings: Settings) -> tuple[int | None, int | None]:
        # the predicted bytes, and the largest batch that should fit, None if unknown
        def of_memory(settings: Settings) -> tuple[str, ...]:
            return tuple(str(settings.get(key, self._preset.options.value(key))) for key in OF_MEMORY)

        limit, kind = self._screening.memory.limit_bytes, self._screening.memory.of
        models = {of_memory(settings): MemoryModel(limit, kind)}
        for result in self._study.settings_results():
            if result.outcome == "oom" or result.peak_bytes:
                model = models.setdefault(of_memory(result.settings), MemoryModel(limit, kind))
                model.add(result.batch, None if result.outcome == "oom" else result.peak_bytes)
        own = models[of_memory(settings)]
        if own.is_known:
            return own.predict(self._batch(settings)), own.largest()
        usable = [model for model in models.values() if model.is_known] or list(models.values())
        largest = [batch for model in usable if (batch := model.largest()) is not None]
        return own.predict(self._batch(settings)), LEANER * max(largest) if largest else None

    def _excess(self, settings: Settings) -> float | None:
        # by which share the batch is predicted to be too large (0.5: 50 %)
        (_, largest), batch = self._memory(settings), self._batch(settings)
        return None if largest is None or batch <= largest else batch / max(1, largest) - 1

    def _settings_result(self, candidate: Candidate) -> SettingsResult:
        last = candidate.trials[-1].outcome if candidate.trials else "left out"
        return SettingsResult(
            dict(candidate.settings), "ok" if candidate.good else last, candidate.samples_per_second,
            self._batch(candidate.settings), candidate.peak_bytes,
        )  # fmt: skip

    def _batch(self, settings: Mapping[str, Any]) -> int:
        return int(settings.get(BATCH, self._preset.options.value(BATCH)))

    def _note(self) -> None:
        members = [result.member for result in self._study.known()]
        self.state.trials, self.state.members = len(members), len({*members, self._study.member})
        self.state.of_others = len(members) - members.count(self._study.member)


# ---- the combinations -----------------------------------------------------------------------------

# A study keeps the axes of its first member, as Optuna's categories cannot change later and machines differ (in free
# memory, for instance).


def axes_of(space: Space, preset: Preset) -> list[Axis]:
    """Return the axes of an Optuna study: the options that the search may change, with the values to try."""
    axes: list[Axis] = []
    for stage in STAGES:
        if stage not in space.limits.only:
            continue
        if stage == "batch_size":
            axes += _numbers(space, preset, BATCH, halves(space.most_batch(preset)))
        elif stage == "steps_per_execution":
            axes += _numbers(space, preset, TOGETHER, doubles(STEPS_TOGETHER[-1]))
        else:
            axes += _choices(stage, space.of(stage, preset), preset)
    return axes


def doubles(most: int) -> list[int]:
    return sorted({1 << power for power in range(most.bit_length())} | {most})


def halves(most: int) -> list[int]:
    """Return the batch sizes 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 ... below `most`, and `most`, rounded as they are."""
    between = {3 << power for power in range(most.bit_length())}
    return sorted({number for number in between | set(doubles(most)) if number < most} | {rounded(most)})


def _numbers(space: Space, preset: Preset, key: str, numbers: Sequence[int]) -> list[Axis]:
    values = sorted({*numbers, int(preset.options.value(key))})
    return [Axis(key, values)] if len(values) > 1 and space.allows({key: 1}) else []


def _choices(stage: str, tried: Sequence[Settings], preset: Preset) -> list[Axis]:
    # the sampler combines single options of the input itself
    together = [settings for settings in tried if len(settings) > 1]
    choices = [_axis(stage, together, preset)] if together and stage != "input" else []
    keys = dict.fromkeys(key for settings in tried for key in settings if len(settings) == 1)
    return choices + [_axis(key, [settings for settings in tried if list(settings) == [key]], preset) for key in keys]


def _axis(name: str, tried: Sequence[Settings], preset: Preset) -> Axis:
    as_it_is = {key: preset.options.value(key) for settings in tried for key in settings}
    choices = {AS_IT_IS: as_it_is} | {
        proof_sentences.changes(settings): as_it_is | dict(settings) for settings in tried
    }
    return Axis(name, choices=choices)


class Combinations:
    """Translates the parameters of a study (a value for each of the `axes`) into settings of `preset`, and back."""

    def __init__(self, axes: Sequence[Axis], space: Space, preset: Preset) -> None:
        self.axes, self._space, self._preset = axes, space, preset

    def __len__(self) -> int:
        return math.prod(map(len, self.axes))

    def in_random_order(self, seed: int) -> list[dict[str, Any]]:
        """Return all combinations as parameters of a study in a random order, at most MOST_DRAWN."""
        chance, names = random.Random(seed), [axis.name for axis in self.axes]
        values = [list(axis.choices or range(len(axis))) for axis in self.axes]
        if len(self) > MOST_DRAWN:
            return [dict(zip(names, map(chance.choice, values), strict=True)) for _ in range(MOST_DRAWN)]
        every = [dict(zip(names, combination, strict=True)) for combination in itertools.product(*values)]
        chance.shuffle(every)
        return every

    def settings(self, params: Params) -> dict[str, Any]:
        """Return the changes of the preset, with batch size and steps together at most what the others allow."""
        given: dict[str, Any] = {}
        for axis in self.axes:
            given |= axis.settings(params[axis.name])
        preset, samples = self._preset, self._space.started.train_samples
        # the strategy decides the number of replicas; the attempt leaves out a combination that is refused
        with contextlib.suppress(PresetError):
            preset = with_changes(preset, {key: of for key, of in given.items() if key not in (BATCH, TOGETHER)})
        if BATCH in given and given[BATCH] > (most := self._space.most_batch(preset)):
            given[BATCH] = rounded(most)
        if TOGETHER in given and samples:  # at most the steps of one pass
            batch = given.get(BATCH, self._preset.options.value(BATCH))
            given[TOGETHER] = min(given[TOGETHER], max(1, samples // batch))
        return {key: value for key, value in given.items() if self._preset.options.value(key) != value}

    def params(self, settings: Settings) -> dict[str, Any] | None:
        """Return the parameters of the study for these settings. None if an option, or its value, is on no axis."""
        keys = [key for axis in self.axes for key in axis.keys]
        if any(key not in keys for key in settings):
            return None
        effective = {key: settings.get(key, self._preset.options.value(key)) for key in keys}
        values = {axis.name: axis.value(effective) for axis in self.axes}
        return None if None in values.values() else values


# ---- the GPUs -------------------------------------------------------------------------------------


AT_ONCE = "g"  # the side of a trial that shows whether trials disturb each other
LEAST_SHARE = 0.95  # of the speed of one training alone; below it, trainings at the same time disturb each other


@dataclass(frozen=True)
class Place:
    """A GPU with its name for `device.visible`, and the speed of the best settings on it relative to the first GPU."""

    gpu: str | int
    speed: float = 1.0


class Places:
    """The GPUs on which `count` trials are measured at once: one after another until `find` has found several."""

    def __init__(self, screening: Screening) -> None:
        self._screening, self._machine = screening, screening.measurement.machine
        self._gpus: list[Place] = []

    @property
    def count(self) -> int:
        return max(1, len(self._gpus))

    def find(self, stage: str) -> None:
        """Find, and record, the GPUs on which all can train as fast as one alone. Raises Stopped, OutOfTime."""
        best = self._screening.best
        visible = machine_gpus.visible_gpus(best.preset.options, self._machine)
        # those of one model: a setting that is faster on another model may be slower here
        gpus = [Place(gpu.uuid or gpu.index) for gpu in visible if gpu.name == visible[0].name]
        if len(gpus) < 2 or not self._trains_on_one(best.preset) or any(gpu.in_mig_mode for gpu in visible):
            return
        candidate = self._screening.candidate(stage, {}, f"the best settings on {len(gpus)} GPUs at the same time")
        self._screening.report(candidate.reason)
        presets = [self._screening.measured({}) or best.preset] * len(gpus)
        try:
            candidate.trials += measure_at_once(self._screening, presets, gpus, AT_ONCE)
        except OutOfTime:
            candidate.decision, candidate.why = "left out", "no time was left"
            raise
        candidate.samples_per_second = speed(candidate.good) or None
        speeds = [trial.samples_per_second if trial.good else None for trial in candidate.trials]
        kept = undisturbed(gpus, speeds, best.speed)
        if len(kept) > 1:
            self._gpus, candidate.decision = kept, "kept"
            slow = [str(place.gpu) for place in gpus if place.gpu not in {other.gpu for other in kept}]
            candidate.why = f"slower, and left out: {', '.join(slow)}" if slow else ""
        else:
            candidate.decision = "rejected"
            candidate.why = "trainings at the same time disturb each other: they are measured one after another"
        self._screening.report("")

    def _trains_on_one(self, preset: Preset) -> bool:
        of_one = len(machine_gpus.training_gpus(preset.options, self._machine)) == 1
        return of_one and preset.options.strategy.kind == "single"

    def measure_ahead(self, proposals: Sequence[Settings], judge: Judge) -> None:
        """Measure the first trials of proposals at once, each on a GPU, so that the screening then knows them."""
        presets = [self._screening.measured(tried) for tried in proposals]
        alone = [preset for preset in presets if preset is not None and self._trains_on_one(preset)]
        if len(alone) > 1:
            measure_at_once(self._screening, alone, self._gpus, SIDE, judge)


def measure_at_once(
    screening: Screening, presets: Sequence[Preset], places: Sequence[Place], side: str, judge: Judge | None = None
) -> list[Trial]:
    """Measure trials at once, each on its own place; they are then known. Raises Stopped and OutOfTime."""

    def measured(number: int) -> Trial:
        preset, place = presets[number], places[number]
        pinned = with_changes(preset, {"device.visible": [place.gpu]})
        trial = screening.measurement.measure(
            preset, side, presets[:number].count(preset) + 1, seconds=screening.seconds, trained=pinned,
            # the judge gets the speeds that the first GPU would have reached
            judge=judge and (lambda speeds: judge([speed / place.speed for speed in speeds])),
        )  # fmt: skip
        trial.gpu_speed = place.speed
        return trial

    with ThreadPoolExecutor(len(presets)) as pool:
        jobs = [pool.submit(measured, number) for number in range(len(presets))]
        return [job.result() for job in jobs]


def undisturbed(places: Sequence[Place], speeds: Sequence[float | None], alone: float) -> list[Place]:
    """Return the places, with relative speeds, where a training beside others was LEAST_SHARE as fast as `alone`."""
    shares = ((place, (speed or 0.0) / alone) for place, speed in zip(places, speeds, strict=True))
    return [replace(place, speed=share) for place, share in shares if share >= LEAST_SHARE]
