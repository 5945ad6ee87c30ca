"""The input: the speed of the training without it, and its options until that speed is reached within 5 %."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...proof import trial_diagnosis
from ...trials.trial_preset import ONE_BATCH
from ..candidates.screening import Screening
from ..candidates.search_space import BATCH, Space

REACHED = 0.05  # relative; with a speed this near to the ceiling the input does not hold the training back
HIGH = 0.2  # share of the time waited for the input that XProf's input-pipeline analyzer calls high


class InputStage:
    """Measures the training without its input and with it again, and tries the options of the input. If `is_short`,
    there is time for a few changes only, and a trial that would show nothing new is left out.
    """

    def __init__(self, screening: Screening, space: Space, is_short: bool = False) -> None:
        self._is_short = is_short
        self._screening, self._space, self._search = screening, space, screening.search
        self._tried: list[Mapping[str, Any]] = []  # each is tried once, as a slow input limits all devices alike

    def try_first(self) -> None:
        """Try the recommended settings of the input before any other option, if the training waits long for it."""
        if self.is_waited_for:
            self._search.stage = "input"
            self._try(next(self._untried(), {}))

    def leave_out(self) -> bool:
        """Measure the training without its input, and return True if candidates now are: not if the input does not hold
        it back. If the training waits long, the options of the input are tried first.
        """
        if not self._can_be_left_out or (self._is_short and self._hardly_waits):
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
        if not self._is_to_try or not self._holds_back():
            return
        self._search.stage = "input"
        for settings in self._untried():
            self._try(settings)
            if self.is_harmless:
                return

    def _untried(self) -> Iterator[Mapping[str, Any]]:
        for settings in self._candidates():
            if not self._screening.has(settings):
                yield settings

    def _try(self, settings: Mapping[str, Any]) -> None:
        if settings and settings not in self._tried:
            self._tried.append(settings)
            self._screening.attempt("input", settings)

    @property
    def _hardly_waits(self) -> bool:
        # known on a CPU only
        waited = self._waited
        return self._screening.waits_count and waited is not None and waited <= REACHED

    @property
    def _is_to_try(self) -> bool:
        return "input" in self._space.limits.only

    @property
    def is_waited_for(self) -> bool:
        """True if the best settings wait at least HIGH (20 %) of the time for their input, which may be changed."""
        return self._is_to_try and (self._waited or 0.0) >= HIGH

    @property
    def _waited(self) -> float | None:
        return self._screening.best.trials[-1].input_wait

    @property
    def _can_be_left_out(self) -> bool:
        return not ONE_BATCH.keys() & self._space.started.inapplicable.keys()

    def _holds_back(self) -> bool:
        # also if the speed without the input is not known
        best = self._screening.best
        if self._search.ceiling is None or not self._can_be_left_out:
            return True
        return best.speed < (1 - REACHED) * self._search.ceiling or (self._waited or 0.0) > REACHED

    @property
    def is_harmless(self) -> bool:
        """True if the best settings are at most REACHED (5 %) slower than without input, or else wait at most 5 % for
        it.
        """
        ceiling, waited = self._search.ceiling, self._waited
        if ceiling is None:
            return waited is not None and waited <= REACHED
        return self._screening.best.speed >= (1 - REACHED) * ceiling

    def _candidates(self) -> Iterator[Mapping[str, Any]]:
        together, *alone = self._space.of("input", self._screening.best.preset) or [{}]
        if together:
            yield together
        yield from self._remedies()
        yield from alone

    def _remedies(self) -> Iterator[Mapping[str, Any]]:
        # of the diagnosis, without those that affect what is learnt or that the limits forbid
        best = self._screening.best
        diagnosis = trial_diagnosis.of_trial(self._screening.trials.run_of(best.trials[-1]), best.preset)
        for remedy in diagnosis["remedies"]:
            changes = remedy["changes"]
            of_input = changes and BATCH not in changes and all(key.startswith("input.") for key in changes)
            if of_input and not remedy["changes_learning"] and self._space.allows(changes):
                yield changes
