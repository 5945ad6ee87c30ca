"""What a notice says about the end of a run, a measurement or the queue."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..files.values import harmless, mapping, number, text, whole
from ..runs import Run, titles
from ..runs.event_reading import read_events
from ..runs.events import EVENTS_FILE, EpochEnd
from ..runs.run import STATE_LABELS
from ..units import amount, seconds

FAILED = ("oom", "error", "crashed", "failed")  # outcomes that are failures
KINDS = {"ab": "comparison", "loop": "proof", "tune": "search", "rate": "learning-rate test"}  # other words for kinds
VARIABLES = "GPUTUI_NOTICE_"  # the beginning of the variables that a command gets
_WORDS = STATE_LABELS | {"oom": "out of memory", "timeout": "ended by a time limit"}
_LONGEST = 1000  # characters of a value in a variable


@dataclass(frozen=True)
class Notice:
    """A notice. `kind` is `run`, `queue`, or the kind of a measurement, such as `tune`; `id`, `title` and `folder` are
    empty for the queue. `name` is the short name of a run (`r42`), or the id.

    `seconds` is the duration, None if it is not known. `metrics` are the last values of the loss and the metrics, and
    `best` the best value of `best_metric`, which was reached in epoch `best_epoch`. `error` is the reason of a failure.
    """

    kind: str
    outcome: str
    failed: bool = False
    id: str = ""
    name: str = ""
    title: str = ""
    seconds: float | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    best_metric: str = ""
    best: float | None = None
    best_epoch: int | None = None
    result: str = ""  # of a measurement or the queue, in one sentence
    error: str = ""
    folder: str = ""
    host: str = field(default_factory=socket.gethostname)

    @property
    def subject(self) -> str:
        """One line: the kind, its title and the outcome."""
        title = f" {self.title}" if self.title else ""
        name = f" {self.name}" if self.name not in ("", self.id) else ""
        kind = KINDS.get(self.kind, self.kind)
        return harmless(f"gputui: {kind}{name}{title}: {_WORDS.get(self.outcome, self.outcome)}")

    @property
    def words(self) -> str:
        """The whole notice as text of a few lines, of which the first is the subject."""
        took = f"after {seconds(self.seconds)}" if self.seconds is not None else ""
        last = ", ".join(f"{name} {amount(value)}" for name, value in self.metrics.items() if value is not None)
        best = f"best {self.best_metric} {amount(self.best)} in epoch {self.best_epoch}" if self.best_metric else ""
        where = " on ".join(filter(None, (self.id, self.host)))
        lines = (", ".join(filter(None, (took, last))), best, self.result, self.error, where)
        return "\n".join((self.subject, *(harmless(line) for line in lines if line)))

    def as_dict(self) -> dict[str, object]:
        """Return all fields as plain values, with `subject` and `text`."""
        return asdict(self) | {"subject": self.subject, "text": self.words}

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def variables(self) -> dict[str, str]:
        """Return the environment variables with the fields that are texts or numbers; `failed` is 0 or 1."""
        plain = {name: value for name, value in self.as_dict().items() if not isinstance(value, Mapping)}
        texts = {name: "" if value is None else str(int(value) if isinstance(value, bool) else value)
                 for name, value in plain.items()}  # fmt: skip
        return {VARIABLES + name.upper(): value[:_LONGEST] for name, value in texts.items()}


def of_run(run: Run) -> Notice:
    """Return the notice about a run that has ended, from the files of its folder."""
    result = run.whole_result
    outcome, error = text(result.get("outcome")) or "crashed", mapping(result.get("error"))
    metrics = {name: number(value) for name, value in mapping(result.get("metrics")).items()}
    name, best, epoch = _followed(result) or _best(run)
    return Notice(
        kind="run",
        outcome=outcome,
        failed=outcome in FAILED or error.get("kind") == "hang",  # whose outcome is that of a time limit
        id=run.id,
        name=run.name,
        title=titles.title(run),
        seconds=number(result.get("seconds")),
        metrics=metrics,
        best_metric=name,
        best=best,
        best_epoch=epoch,
        error=text(error.get("message")) or "",
        folder=str(run.path),
    )


def _followed(result: Mapping[str, Any]) -> tuple[str, float | None, int | None] | None:
    """Return the same as `_best` of the figure that train.early_stop or run.keep_best follows. None if neither is
    used.
    """
    for best in result.get("best") or ():
        return str(best["figure"]), number(best.get("value")), whole(best["epoch"])
    return None


def _best(run: Run) -> tuple[str, float | None, int | None]:
    """Return the name, the best value and its epoch of the loss of the validation, or else of the training.

    The name is empty if no epoch has ended.
    """
    epochs = [event for event in read_events(run.path, [EVENTS_FILE]).events if isinstance(event, EpochEnd)]
    for name in ("val_loss", "loss"):
        values = [(value, each.epoch) for each in epochs if (value := number(each.metrics.get(name))) is not None]
        if values:
            value, epoch = min(values, key=lambda pair: pair[0])
            return name, value, epoch
    return "", None, None
