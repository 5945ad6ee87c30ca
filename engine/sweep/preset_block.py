"""The block `sweep:` of a preset, options of `gputui sweep`, which runs ignore: `sweep: {over: {learning_rate: [1e-3,
3e-3], weight_decay: 0..0.1}, seeds: 2}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .. import presets
from ..options.catalogue import nearest
from ..proof.request import ProofError
from ..trials import SAMPLERS
from ..trials.change_texts import value as text_of

# The entries by the parameter of the command that each stands for, with the type, the least and the largest value.
ENTRIES: Mapping[str, tuple[str, type, float, float]] = {
    "metric": ("metric", str, 0, 0),
    "seeds": ("seeds", int, 1, 100),
    "minutes": ("minutes", float, 0.01, 1e7),
    "sampler": ("sampler", str, 0, 0),
    "trials": ("most_trials", int, 2, 10_000),
    "halving": ("halve_from", int, 0, 1_000_000),
    "proof_seeds": ("proof_seeds", int, 0, 100),
    "finalists": ("finalists", int, 2, 20),
    "parallel": ("parallel", int, 1, 1000),
    "study": ("study", str, 0, 0),
    "name": ("study_name", str, 0, 0),
}
OVER = "over"


def parameters(name: str) -> dict[str, Any]:
    """Return the parameters of `gputui sweep` in a preset; empty without a block. Raises PresetError and ProofError."""
    return of_block(presets.resolve(name).sweep, f"{name}: sweep.")


def of_block(block: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return the parameters of `gputui sweep` in a block. Messages begin with `place`. Raises ProofError."""
    made: dict[str, Any] = {}
    for key, given in block.items():
        if key == OVER:
            made[OVER] = tuple(_over(place, given))
            continue
        if key not in ENTRIES:
            near = nearest(key, [OVER, *ENTRIES])
            meant = f", did you mean {near}?" if near else f"; there are {', '.join([OVER, *ENTRIES])}"
            raise ProofError(f"{place}{key}: there is no such entry{meant}")
        made[ENTRIES[key][0]] = _checked(place, key, given)
    if made.get("sampler", SAMPLERS[0]) not in SAMPLERS:
        raise ProofError(f"{place}sampler: give {', '.join(SAMPLERS[:-1])} or {SAMPLERS[-1]}")
    return made


def _over(place: str, given: Any) -> list[str]:
    if not isinstance(given, dict) or not given:
        raise ProofError(f"{place}{OVER}: give options with their values, such as {{learning_rate: [1e-3, 3e-3]}}")
    return [f"{key}={_listed(values)}" for key, values in given.items()]


def _listed(values: Any) -> str:
    return ",".join(map(_quoted, values)) if isinstance(values, list) else text_of(values)


def _quoted(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) and "," in value else text_of(value)


def _checked(place: str, key: str, given: Any) -> Any:
    """Return the value of an entry. Raises ProofError if it has another type, or is too low or too large."""
    _, kind, least, most = ENTRIES[key]
    accepted: tuple[type, ...] = (int, float) if kind is float else (kind,)
    is_wrong = isinstance(given, bool) or not isinstance(given, accepted)
    if is_wrong or (kind is not str and not least <= given <= most):
        ends = f"from {least:g} to {most:,.0f}"
        words = "a text" if kind is str else f"a {'whole ' if kind is int else ''}number {ends}"
        raise ProofError(f"{place}{key}: {text_of(given)} does not fit: give {words}")
    return given
