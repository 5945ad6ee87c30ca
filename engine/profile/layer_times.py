"""The time of each layer, summed up from the operations of a profile, which TensorFlow names after scopes such as
`gradient_tape/cnn_1/conv2d_1_2/Conv2D`. Their numbers depend on what was traced before, so that the trainer records
each scope's layer in LAYERS_FILE (trainer/measure/layer_scopes.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..files.reading import open_regular

LAYERS_FILE = "layers.json"  # in the folder of the profile: the name of a layer by its scope
BACKWARD = "gradient_tape"  # the scope of the gradients' operations


@dataclass(frozen=True)
class LayerTime:
    """The time of a layer's operations in ms, forward and backward, and its share (0 to 1) of all operations."""

    name: str
    forward_ms: float
    backward_ms: float
    share: float


def scopes_of(folder: Path) -> dict[str, str] | None:
    """Return the layers by their scopes from LAYERS_FILE in `folder`. None if the file is missing or damaged."""
    try:
        with open_regular(folder / LAYERS_FILE) as stream:
            scopes = json.load(stream)
    except (OSError, ValueError):
        return None
    return {str(scope): str(name) for scope, name in scopes.items()} if isinstance(scopes, dict) else None


def layer_times(operations: Iterable[tuple[str, float]], scopes: Mapping[str, str]) -> tuple[LayerTime, ...]:
    """Return the time of each layer, the longest first, from operations in microseconds and layers by scope."""
    times: dict[str, LayerTime] = {}
    whole_ms = 0.0
    for operation, microseconds in operations:
        ms, parts = float(microseconds) / 1000, operation.split("/")
        whole_ms += ms
        name = _layer(parts, scopes)
        if name is not None:
            time = times.get(name, LayerTime(name, 0.0, 0.0, 0.0))
            if BACKWARD in parts:
                times[name] = replace(time, backward_ms=time.backward_ms + ms)
            else:
                times[name] = replace(time, forward_ms=time.forward_ms + ms)
    if not whole_ms:
        return ()
    shared = [replace(time, share=(time.forward_ms + time.backward_ms) / whole_ms) for time in times.values()]
    return tuple(sorted(shared, key=lambda time: time.share, reverse=True))


def _layer(parts: list[str], scopes: Mapping[str, str]) -> str | None:
    # the innermost; scopes before that of the model, such as a replica's, are not in `scopes`
    for begin in range(len(parts)):
        for end in range(len(parts), begin, -1):
            name = scopes.get("/".join(parts[begin:end]))
            if name is not None:
                return name
    return None
