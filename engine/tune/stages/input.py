"""The input: how fast the training were without it, and its options until that speed is reached within 5 %."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...proof import diagnosing
from ..measuring.screening import Screening
from ..measuring.space import BATCH, Space

REACHED = 0.05  # a speed that is not further below the ceiling is not held back by its input
ONE_BATCH = "input.one_batch"


class InputStage:
    """Takes the input out of the trials and puts it back, and tries its options."""

    def __init__(self, screening: Screening, space: Space) -> None:
        self._screening, self._space, self._search = screening, space, screening.search

    def leave_out(self) -> bool:
        """Measure the training without its input; whether candidates are measured in this way from now on."""
        self._search.stage = "ceiling"
        if not self._can_be_left_out:
            return False
        with_input = self._screening.best
        self._screening.measure_best("ceiling", "one batch again and again: no input", without_input=True)
        self._search.ceiling = self._screening.best.speed
        if self._search.ceiling > (1 + REACHED) * with_input.speed:
            return True
        self._screening.resume(with_input)
        return False

    def put_back(self) -> None:
        """Measure the best settings with their input, as all candidates from now on."""
        self._search.ceiling = self._screening.best.speed
        self._screening.measure_best("input", "the fastest settings so far, with their input", without_input=False)

    def run(self) -> None:
        """Try its options until the ceiling is reached, where the input holds the training back."""
        if "input" not in self._space.limits.only or not self._holds_back():
            return
        self._search.stage = "input"
        seen: list[Mapping[str, Any]] = []
        for settings in self._candidates():
            if settings not in seen and not self._screening.has(settings):
                seen.append(settings)
                self._screening.attempt("input", settings)
                if self.is_harmless:
                    return

    @property
    def _can_be_left_out(self) -> bool:
        return ONE_BATCH not in self._space.started.inapplicable

    def _holds_back(self) -> bool:
        """Whether the input holds the best settings back."""
        best = self._screening.best
        if self._search.ceiling is None or not self._can_be_left_out:
            return True
        waited = best.trials[-1].input_wait
        return best.speed < (1 - REACHED) * self._search.ceiling or (waited or 0.0) > REACHED

    @property
    def is_harmless(self) -> bool:
        """Whether the best settings are about as fast as without their input."""
        ceiling = self._search.ceiling
        return ceiling is not None and self._screening.best.speed >= (1 - REACHED) * ceiling

    def _candidates(self) -> Iterator[Mapping[str, Any]]:
        """All that is advised for any input in one trial, then what the diagnosis of the best settings proposes."""
        together, *alone = self._space.of("input", self._screening.best.preset) or [{}]
        if together:
            yield together
        yield from self._remedies()
        yield from alone

    def _remedies(self) -> Iterator[Mapping[str, Any]]:
        """What the diagnosis of the best settings proposes for their input."""
        best = self._screening.best
        found = diagnosing.of_trial(self._screening.trials.run_of(best.trials[-1]), best.preset)
        for remedy in found["remedies"]:
            changes = remedy["changes"]
            of_input = changes and BATCH not in changes and all(key.startswith("input.") for key in changes)
            if of_input and not remedy["changes_learning"] and self._space.allows(changes):
                yield changes
