"""The stages of the ordered search: batch size, options of the device and of the input, and a recheck. None hides the
gain of the next: on a CPU Python's time between the steps hides all others, so that steps in one execution come
early; on a GPU, where the host runs ahead, precision and XLA do. What was rejected before another option gained is
tried again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..proof import proof_loop
from ..proof.measurement import OutOfTime
from ..trials.record import Candidate
from ..trials.trial_preset import ONE_BATCH
from .screening import Screening, may_be_faster, standard_error, takes_too_much
from .search_space import BATCH, POLICY, TOGETHER

LEAST_GROWTH = 0.05  # gain of a doubling
LEAST_STEP = 1.125  # factor; a batch that is larger by less is not worth a trial
# Of the search for the largest batch.
STEP = 1.0625  # factor; a batch that is larger by less is not searched
MOST_TRIALS = 8
STEPS_OF_A_PROBE = 8  # steps of a probe if a step takes long
MOST_SECONDS = 60.0  # for the steps of one probe


class BatchSize:
    """Searches the batch size of the best settings; `most` is the largest of one replica that may be tried."""

    def __init__(self, screening: Screening, most: int) -> None:
        self._screening, self._memory, self._most = screening, screening.memory, most

    def find(self) -> None:
        before = self.size
        self.grow()
        # smaller batches can be faster on a CPU if they fit into its caches
        gaining = self.size == before
        while gaining and self.size > 1:
            gaining, _ = self._try(self.size // 2)

    @property
    def size(self) -> int:
        return int(self._screening.best.preset.options.value(BATCH))

    def note(self, batch: int, candidate: Candidate) -> None:
        """Add the memory of a candidate with the batch size `batch` to the model, if it was measured or ran out."""
        peak = candidate.peak_bytes = self._memory.peak(candidate.trials)
        if peak is not None or ran_out(candidate):
            self._memory.add(batch, None if ran_out(candidate) else peak, candidate.trials)
            self._screening.search.memory = self._memory.state()

    def grow(self) -> None:
        """Double the batch size while each doubling gains LEAST_GROWTH, in smaller steps if one does not fit."""
        gaining = True
        while gaining:
            larger, largest = min(2 * self.size, self._most), self._memory.worth_trying()
            if largest is not None and largest < larger:
                why = "more memory is predicted than may be taken"
                self._screening.leave_out("batch_size", {BATCH: larger}, why, self._memory.predict(larger))
                larger = rounded(largest)
            if larger < LEAST_STEP * self.size:
                return
            gaining, fits = self._try(larger)
            if not fits:
                self._bisect(larger)
                return

    def _bisect(self, too_large: int) -> None:
        while True:
            largest, middle = self._memory.largest(), rounded((self.size + too_large) // 2)
            if largest is not None and LEAST_STEP * self.size <= rounded(largest) < too_large / LEAST_STEP:
                middle = rounded(largest)
            if middle < LEAST_STEP * self.size:
                return
            _, fits = self._try(middle)
            if self.size != middle and fits:
                return  # the batch fits and is not faster
            too_large = too_large if fits else middle

    def _try(self, batch: int) -> tuple[bool, bool]:
        # whether it gains at least LEAST_GROWTH, and whether it fits into memory
        candidate = self._screening.attempt("batch_size", {BATCH: batch}, predicted_bytes=self._memory.predict(batch))
        self.note(batch, candidate)
        return candidate.decision == "kept" and (candidate.gain or 0.0) >= LEAST_GROWTH, not ran_out(candidate)

    def find_largest(self, most: int, samples_per_second: float) -> None:
        """Find the largest batch that fits, whatever its speed, and the smallest that does not in MOST_TRIALS trials.
        `most` is the largest batch of one replica for which there are samples, which has this speed.
        """
        measurement = self._screening.measurement
        for _ in range(MOST_TRIALS):
            batch = self._next(most)
            if batch is None:
                return
            predicted = self._memory.predict(batch)
            seconds = STEPS_OF_A_PROBE * batch / samples_per_second if samples_per_second else 0.0
            left = measurement.seconds_left - measurement.reserved_seconds - measurement.trial_seconds
            if seconds > min(MOST_SECONDS, left):
                why = f"its steps would take {seconds:.0f} s, and its memory is predicted"
                self._screening.leave_out("batch_size", {BATCH: batch}, why, predicted)
                return
            candidate = self._screening.probe("batch_size", {BATCH: batch}, "the largest that may fit", predicted)
            self.note(batch, candidate)
            if candidate.peak_bytes is None and not ran_out(candidate):  # its memory is not known
                return

    def _next(self, most: int) -> int | None:
        fits, beyond = self._memory.fits, self._memory.beyond
        if fits is None:
            return None if beyond is None or beyond < 2 or self._memory.largest() == 0 else beyond // 2
        predicted = self._memory.largest()
        batch = 2 * fits if predicted is None else predicted if predicted >= most else rounded(predicted)
        if beyond is not None and not fits < batch < beyond / STEP:
            batch = rounded((fits + beyond) // 2)
        batch, further = min(batch, most), batch if beyond is None else beyond
        return batch if batch > fits and further >= STEP * fits else None


def ran_out(candidate: Candidate) -> bool:
    return any(trial.outcome == "oom" for trial in candidate.trials)


def rounded(batch: int) -> int:
    """Return `batch` rounded down to a multiple of 8, which tensor cores need. Below 16 it is unchanged."""
    return batch // 8 * 8 if batch >= 16 else batch


STAGES = ("batch_size", "steps_per_execution", "precision", "xla", "strategy")
ON_GPU = ("batch_size", "precision", "xla", "steps_per_execution", "strategy")
OTHER_MEMORY = ("precision", "strategy")  # stages that change the memory and the work of a step
HIDDEN = ("steps_per_execution", "precision", "xla")  # stages whose gain may be hidden by other options
# Longer executions are not tried, so that a training is stopped and shown in time. They would gain no more: 16 steps
# share Python's time between executions, which is less than 2 ms on the machines measured, 2 % of half a second.
LONGEST_EXECUTION_SECONDS = 0.5


class DeviceStages:
    """Tries options of the device, one or a few that belong together in each of STAGES."""

    def __init__(self, screening: Screening) -> None:
        self._screening, self._space, self._memory = screening, screening.space, screening.memory

    def run(self) -> None:
        for name in ON_GPU if self._space.on_gpu else STAGES:
            self._stage_and_batch(name)
            is_refused = self._decided("xla", "rejected") and not self._decided("xla")
            if name == "xla" and is_refused and self._decided("precision"):
                before = {POLICY: self._screening.baseline.options.value(POLICY)}
                for settings in self._space.of("xla", self._screening.best.preset):
                    if self._gains("xla", {**settings, **before}, "instead of the precision"):
                        self.stage("batch_size")
        for name in HIDDEN:
            if self._may_gain_now(name):
                self._stage_and_batch(name)

    def stage(self, name: str) -> None:
        """Try the values of the stage `name`. Nothing is done if the user's limits do not include it."""
        if name not in self._space.limits.only:
            return
        self._screening.search.stage = name
        if name == "batch_size":
            if self._space.allows({BATCH: 1}):
                self._sizes().find()
        elif name == "steps_per_execution":
            # if the largest number is not faster than the present one, no smaller number will be
            more = [count for count in self._counts() if count > self._together]
            if more and self._gains("steps_per_execution", {TOGETHER: more[-1]}):
                self._fewer_together()
        else:
            for settings in self._space.of(name, self._screening.best.preset):
                if not self._screening.has(settings):
                    self._screening.attempt(name, settings)

    def go_on_from(self, name: str) -> None:
        """After a value was faster in a second measurement: try smaller numbers of steps, or larger batches."""
        if name == "steps_per_execution":
            self._fewer_together()
        elif name == "batch_size":
            self._sizes().grow()

    def _stage_and_batch(self, name: str) -> None:
        # another precision or strategy changes the memory and the work of a step
        kept = len(self._decided(name))
        self.stage(name)
        if name in OTHER_MEMORY and len(self._decided(name)) > kept:
            self.stage("batch_size")

    def largest_batch(self) -> None:
        if self._space.allows({BATCH: 1}):
            best = self._screening.best
            speed, most = best.speed / self._space.replicas(best.preset), self._space.most_samples(best.preset)
            self._sizes().find_largest(most, speed)

    def _sizes(self) -> BatchSize:
        """The memory model has the batches measured with the present best settings."""
        best = self._screening.best
        self._memory.most_batch = self._space.most_samples(best.preset)
        finder = BatchSize(self._screening, self._space.most_batch(best.preset))
        without_input, others = self._screening.without_input, _but_batch(best.settings)
        if self._memory.begin_anew(others, without_input):
            for candidate in self._screening.search.candidates:
                if candidate.without_input == without_input and _but_batch(candidate.settings) == others:
                    finder.note(candidate.settings.get(BATCH, self._screening.baseline.options.value(BATCH)), candidate)
        return finder

    def _fewer_together(self) -> None:
        # fewer are faster if many batches at once do not fit into a cache
        for count in reversed([count for count in self._counts() if count < self._together]):
            if not self._gains("steps_per_execution", {TOGETHER: count}):
                return

    def _counts(self) -> list[int]:
        best = self._screening.best
        step_seconds = (best.trials[-1].step_ms or 0.0) / 1000
        counts = [settings[TOGETHER] for settings in self._space.of("steps_per_execution", best.preset)]
        return [count for count in counts if count * step_seconds <= LONGEST_EXECUTION_SECONDS]

    @property
    def _together(self) -> int:
        return int(self._screening.best.preset.options.value(TOGETHER))

    def _may_gain_now(self, name: str) -> bool:
        """Another option was kept since its latest trial, which has not failed and was not clearly slower."""
        tried = [each for each in self._screening.search.candidates if each.tried and each.stage in STAGES[1:]]
        places = [place for place, candidate in enumerate(tried) if candidate.stage == name]
        if not places or (name != "steps_per_execution" and self._decided(name)):
            return False
        since = tried[places[-1] + 1 :]
        return bool(tried[places[-1]].good) and any(candidate.decision == "kept" for candidate in since)

    def _gains(self, name: str, settings: Mapping[str, Any], reason: str = "") -> bool:
        return self._screening.attempt(name, settings, reason).decision == "kept"

    def _decided(self, name: str, decision: str = "kept") -> list[Candidate]:
        candidates = self._screening.search.candidates
        return [each for each in candidates if each.stage == name and each.decision == decision]


def _but_batch(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != BATCH}


REACHED = 0.05  # relative; with a speed this near to the ceiling the input does not hold the training back
HIGH = 0.2  # share of the time waited for the input that XProf's input-pipeline analyzer calls high


class InputStage:
    """Measures the training without and with its input, and tries options of the input; fewer if `is_short`."""

    def __init__(self, screening: Screening, is_short: bool = False) -> None:
        self._is_short = is_short
        self._screening, self._space, self._search = screening, screening.space, screening.search
        self._tried: list[Mapping[str, Any]] = []  # each is tried once, as a slow input limits all devices alike
        self._is_to_try = "input" in self._space.limits.only
        self._can_be_left_out = not ONE_BATCH.keys() & self._space.started.inapplicable.keys()

    def leave_out(self) -> bool:
        """Measure the training without its input, and return True if candidates now are: not if the input does not hold
        it back. If the training waits long, the options of the input are tried first.
        """
        if self.is_waited_for:  # the recommended settings of the input come before any other option
            self._search.stage = "input"
            self._try(next((each for each in self._candidates() if not self._screening.has(each)), {}))
        waited, on_cpu = self._waited, self._screening.waits_count  # known on a CPU only
        if not self._can_be_left_out or (self._is_short and on_cpu and waited is not None and waited <= REACHED):
            return False
        while True:
            self._search.stage = "ceiling"
            with_input = self._screening.best
            without = self._screening.measure_best("ceiling", "on one repeated batch", without_input=True)
            best_without, self._search.ceiling = self._screening.best, without.samples_per_second or 0.0
            self._screening.resume(with_input)
            if self.is_harmless:
                return False
            if self.is_waited_for:
                self.run()
            if self._screening.best.settings == with_input.settings:
                self._screening.resume(best_without)
                return True

    def put_back(self) -> None:
        """Measure the best settings with their input. Candidates are measured with it from now on."""
        self._search.ceiling = self._screening.best.speed
        self._screening.measure_best("input", "the fastest settings so far, with their input", without_input=False)

    def run(self) -> None:
        """Try the options of the input until the ceiling is reached, if the input holds the training back."""
        ceiling, speed = self._search.ceiling, self._screening.best.speed
        # also if the speed without the input is not known
        holds_back = ceiling is None or not self._can_be_left_out or speed < (1 - REACHED) * ceiling
        if not self._is_to_try or not (holds_back or (self._waited or 0.0) > REACHED):
            return
        self._search.stage = "input"
        for settings in self._candidates():
            if not self._screening.has(settings):
                self._try(settings)
                if self.is_harmless:
                    return

    def _try(self, settings: Mapping[str, Any]) -> None:
        if settings and settings not in self._tried:
            self._tried.append(settings)
            self._screening.attempt("input", settings)

    @property
    def is_waited_for(self) -> bool:
        """True if the best settings wait at least HIGH (20 %) of the time for their input, which may be changed."""
        return self._is_to_try and (self._waited or 0.0) >= HIGH

    @property
    def _waited(self) -> float | None:
        return self._screening.best.trials[-1].input_wait

    @property
    def is_harmless(self) -> bool:
        """True if the best settings are at most REACHED (5 %) slower than without input, or wait no longer."""
        ceiling, waited = self._search.ceiling, self._waited
        if ceiling is None:
            return waited is not None and waited <= REACHED
        return self._screening.best.speed >= (1 - REACHED) * ceiling

    def _candidates(self) -> Iterator[Mapping[str, Any]]:
        together, *alone = self._space.of("input", self._screening.best.preset) or [{}]
        if together:
            yield together
        # the remedies of the diagnosis, without those that affect what is learnt or that the limits forbid
        best = self._screening.best
        diagnosis = proof_loop.of_trial(self._screening.measurement.run_of(best.trials[-1]), best.preset)
        for remedy in diagnosis["remedies"]:
            changes = remedy["changes"]
            of_input = changes and BATCH not in changes and all(key.startswith("input.") for key in changes)
            if of_input and not remedy["changes_learning"] and self._space.allows(changes):
                yield changes
        yield from alone


SHARE = 1 / 3  # of the time of all trials before the second look,
LEAST = 2  # or so many trials, if there were few
MOST_MEASURED = 3  # trials of one candidate
MOST_ENDED = 2  # trials of a candidate that was ended as slower each time
STAGE = "together"


def recheck(screening: Screening, go_on_from: Callable[[str], None]) -> None:
    """Measure candidates again that may have been rejected by chance, for SHARE of the time so far, or that of LEAST
    trials. `go_on_from` is called with the stage of each that is kept now. Raises Stopped and OutOfTime.
    """
    search = screening.search
    combined: list[dict[str, Any]] = []

    def spent() -> float:
        # the same for a resumed search, which a clock would not give
        trials = (trial for candidate in search.candidates for trial in candidate.trials)
        return sum({trial.run: trial.seconds for trial in trials}.values())

    def one_trial() -> float:
        return sum(trial.seconds for trial in screening.best.trials[-1:])

    until = spent() + max(SHARE * spent(), LEAST * one_trial())
    rejected = any(candidate.decision == "rejected" for candidate in search.candidates)
    if rejected and not any(len(candidate.good) > 1 for candidate in search.candidates):  # chance is not known
        screening.best_once_more()
    while spent() + one_trial() <= until and (misses := near_misses(screening)):
        parts = may_gain_together(misses, screening.noise)
        tried = {key: value for part in parts for key, value in part.tried.items()}
        if parts and tried not in combined and not any(_measured(screening, tried)):
            combined.append(tried)
            search.stage = STAGE
            reason = "together, as each was rejected within the spread of the trials"
            candidate = screening.attempt(STAGE, tried, reason)
            stages = [part.stage for part in parts]
        else:
            missed = misses[0]
            search.stage = missed.stage
            if measured := known(screening, missed.tried):
                screening.repeat(measured)
            reason = "once more, as chance may have rejected it"
            candidate = measured or screening.attempt(missed.stage, missed.tried, reason)
            stages = [missed.stage]
        if candidate.decision == "kept":
            for stage in stages:
                go_on_from(stage)


def near_misses(screening: Screening) -> list[Candidate]:
    """Return rejected candidates that were not clearly slower: first of options that have gained nothing, the largest
    gain first. Of an option that has gained (but the batch size), only those not yet measured with the best settings.
    """
    candidates, may_take = screening.search.candidates, screening.memory.may_take
    latest = {repr(sorted(candidate.tried.items())): candidate for candidate in candidates}
    gained = {key for candidate in candidates if candidate.decision == "kept" for key in candidate.tried} - {BATCH}
    first, later = list[Candidate](), list[Candidate]()
    for candidate in latest.values():
        known_as = known(screening, candidate.tried)
        measured = known_as or candidate
        most = MOST_MEASURED if measured.good else MOST_ENDED
        # not if another trial would show the same: it has failed, takes too much memory, or is a combination
        if candidate.stage == STAGE or candidate.decision != "rejected" or screening.has(candidate.tried):
            continue
        if measured.decision == "failed" or len(measured.trials) >= most:
            continue
        if not may_be_faster(candidate, screening.noise) or takes_too_much(candidate, screening.best, may_take):
            continue
        if not gained & set(candidate.tried):
            first.append(candidate)
        elif known_as is None:
            later.append(candidate)
    return [each for group in (first, later) for each in sorted(group, key=lambda near: -(near.gain or 0.0))]


def may_gain_together(misses: Sequence[Candidate], noise: float) -> list[Candidate]:
    """Return candidates of different options to try together, none if fewer than two. Neither a gain nor their sum is
    below 0 by more than one standard error: of parts that gain nothing one in six is, and slows the whole down.
    """
    parts: list[Candidate] = []
    for candidate in misses:
        apart = not any(set(candidate.tried) & set(part.tried) for part in parts)
        if apart and _are_open([candidate], noise) and _are_open([*parts, candidate], noise):
            parts.append(candidate)
    return parts if len(parts) > 1 else []


def _are_open(parts: Sequence[Candidate], noise: float) -> bool:
    errors = (
        max(candidate.spread or 0.0, standard_error(noise, max(1, len(candidate.good)), 1)) for candidate in parts
    )
    return sum(candidate.gain or 0.0 for candidate in parts) > -math.hypot(*errors)


def known(screening: Screening, tried: Mapping[str, Any]) -> Candidate | None:
    """Return the candidate with the changes `tried` of the present best settings. None if they were not measured."""
    return next((candidate for candidate in _measured(screening, tried) if candidate.tried == tried), None)


def _measured(screening: Screening, tried: Mapping[str, Any]) -> Iterator[Candidate]:
    # also if the trial changed other settings
    settings, without_input = screening.settings_with(tried), screening.without_input
    for candidate in screening.search.candidates:
        if candidate.trials and candidate.settings == settings and candidate.without_input == without_input:
            yield candidate


FOR_LARGEST = 3  # trials whose time is kept for the largest batch, if only the batch size is searched


def in_order(screening: Screening, keep_back: Callable[[float], None], is_short: bool) -> None:
    """Search one option after another; `keep_back` reserves seconds for later. Raises Stopped and OutOfTime."""
    device, of_input = DeviceStages(screening), InputStage(screening, is_short)
    if tuple(screening.space.limits.only) == ("batch_size",):
        # First the fastest batch size, with the preset's input, then the largest that fits into memory.
        keep_back(FOR_LARGEST * screening.measurement.trial_seconds)
        try:
            device.stage("batch_size")
        except OutOfTime:
            keep_back(0.0)
            device.largest_batch()
            raise
        keep_back(0.0)
        device.largest_batch()
        return
    left_out = of_input.leave_out()
    device.run()
    if left_out:
        of_input.put_back()
    of_input.run()
    device.stage("threads")
    if left_out and not of_input.is_harmless:
        device.stage("batch_size")  # with the input another batch size may be the fastest
    recheck(screening, device.go_on_from)
