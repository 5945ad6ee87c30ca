"""The workers of a training on several machines in words, one line for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...engine import figures
from ...engine.figures import GPU

_SHOWN = ("samples_per_second", "step_ms.p50", "input_wait")


def lines(event: Mapping[str, Any]) -> Iterator[str]:
    """Of an event `workers`."""
    for one in event.get("workers") or ():
        who = f"worker {one['index']} ({one['address']})"
        if one.get("missing"):
            yield f"{who}: {one['missing']}"
            continue
        told = [figure.phrase(one.get(figure.progress)) for figure in map(figures.of_run, _SHOWN)]
        told += [GPU["busy"].phrase(busy) for busy in one.get("gpus_busy") or ()]
        yield f"{who}: {'  '.join(told)}"
    if event.get("slowest") is not None:
        yield f"the others wait for worker {event['slowest']}, which waits longest for its input"
