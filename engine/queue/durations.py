"""How long queued runs are expected to train, by earlier runs with the same title."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from statistics import median

from ..files.reading import read_object
from ..files.values import mapping, number, text
from ..runs import Run, titles

MOST_RUNS = 200  # runs that are read, the newest first
MOST_COMPARED = 9
# Changed options with which a run takes as long as without.
_OTHER = ("device.visible", "train.seed", "train.learning_rate", "run.give_way", "run.tries", "run.code", "run.on_oom")


class Durations:
    """The durations of earlier runs, which are read from their folders once.

    `earlier` has the newest run first; runs that have not completed do not count.
    """

    def __init__(self, earlier: Iterable[Run]) -> None:
        self._seconds: dict[str, list[float]] = {}
        for run in earlier:
            if (seconds := _seconds(run, _written(run, "result.json"))) is not None:
                self._seconds.setdefault(_compared(run), []).append(seconds)

    def expected_seconds(self, run: Run) -> float | None:
        """Return the median duration of the newest runs with the preset and the changed options of `run`, None if
        there is none.

        Options that do not change the duration, such as the seed, are not compared.
        """
        seconds = self._seconds.get(_compared(run), [])[:MOST_COMPARED]
        return median(seconds) if seconds else None


def _compared(run: Run) -> str:
    return _compared_at(run, _written(run, titles.FILE))


@lru_cache(4 * MOST_RUNS)
def _compared_at(run: Run, _written_at: float) -> str:
    origin = read_object(run.file(titles.FILE)).value
    changes = {key: mapping(change).get("to") for key, change in mapping(origin.get("changes")).items()}
    others = {key: value for key, value in sorted(changes.items()) if key not in _OTHER}
    return json.dumps([text(origin.get("preset")) or titles.name_of(run), others])


@lru_cache(4 * MOST_RUNS)
def _seconds(run: Run, written_at: float) -> float | None:
    return number(run.whole_result.get("seconds")) if written_at and run.has_completed() else None


def _written(run: Run, name: str) -> float:
    try:
        return run.file(name).stat().st_mtime
    except OSError:
        return 0.0
