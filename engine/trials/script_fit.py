"""The options that the fit of a script decides, which a measurement has to know before it changes one of them.

Deferred imports: the form is painted without what exports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..presets import Preset
from ..runs import RunError, launched_with

_SAME = ("workload.argv", "workload.args", "workload.fit")


def as_in_fit(preset: Preset) -> Preset:
    """The preset with what the fit of its script says: by the newest run of it, or else by running it up to its fit.
    Raises RunError for what a run refuses. A preset without a script is unchanged.
    """
    if not preset.options.workload.left_to_fit:
        return preset
    if (trained := as_trained(preset)) is not None:
        return trained
    from ..export import own_code

    try:
        return _known(preset, own_code.described(preset)[0])
    except own_code.RefusedError as fault:
        raise RunError("\n".join(filter(None, (str(fault), fault.hint)))) from None


def as_trained(preset: Preset) -> Preset | None:
    """The preset with what the fit of its script said in the newest run of it; None if there is none."""
    left, earlier = preset.options.workload.left_to_fit, launched_with.of_same_code(preset.options)
    if not left or earlier is None or any(earlier.option(key) != preset.options.value(key) for key in _SAME):
        return None
    then = earlier.option("workload.left_to_fit") or []
    return _known(preset, {key: earlier.option(key) for key in left}) if {*left}.issubset(then) else None


def _known(preset: Preset, values: Mapping[str, Any]) -> Preset:
    # The fit still decides them until they are changed: it may follow an argument of the script.
    return replace(preset, options=preset.options.with_values(values))
