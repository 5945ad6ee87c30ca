"""The request for a learning-rate range test, and what is refused before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import presets
from ...proof import request
from ...proof.request import ProofError, Request
from ...runs import launched_with
from ...trials import rate_sentences
from ...trials.rate_record import KEY, RateSettings

LEAST_STEPS, LEAST_FACTOR = 50, 100.0
LIMITS = (1e-12, 1000.0)  # of a rate; the second is that of the option


def of_preset(name: str, settings: Sequence[str], test: RateSettings, **more: Any) -> Request:
    """Return the request for a range test of the preset `name`, changed by the `KEY=VALUE` texts in `settings`. `more`
    are further fields of Request. Raises PresetError and ProofError.
    """
    if not LIMITS[0] <= test.low <= test.high / LEAST_FACTOR or test.high > LIMITS[1]:
        raise ProofError(
            f"--rates {test.low:g}:{test.high:g}: give two rates between {LIMITS[0]:g} and {LIMITS[1]:g}, the second "
            f"at least {LEAST_FACTOR:g} times the first, such as 1e-6:10"
        )
    if test.steps < LEAST_STEPS:
        raise ProofError(f"--ramp-steps {test.steps}: a ramp needs at least {LEAST_STEPS} steps")
    earlier = launched_with.of_same_code(presets.resolve(name, settings).options)
    if earlier is not None and (why := earlier.inapplicable.get(KEY)):
        raise ProofError(f"{name}: {rate_sentences.inapplicable(why)}")
    return request.of_preset("rate", name, settings, rate=test, limit_seconds=60 * test.minutes, **more)
