"""The runs as rows of a table with the texts of their cells, which a filter matches, read in a thread and cached."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from ...engine import figures, runs
from ...engine.figures import LOSS, Figure, at
from ...engine.files import located_yaml, writing
from ...engine.files.located_yaml import YamlFault
from ...engine.files.reading import written_at
from ...engine.files.values import EMPTY, harmless
from ...engine.learning import has_learnt_badly
from ...engine.queue import entry_names
from ...engine.runs import ACTIVE_STATES, Run, code_copy, part_of_sweep, run_cluster, titles
from ...engine.runs.checkpoint_files import steps_in
from ...engine.runs.events import EpochEnd, Progress
from ...engine.runs.run import STATE_LABELS, WAITING, StateName
from ...engine.runs.titles import Notes, Title, title_of
from ...engine.units import share
from ..word_search import Place, place
from .queue_places import Kept, Queue, Waiting, last_event, newest_runs, share_done

LEFT = figures.of_run("eta_seconds")
GAIN = "gain"  # by which factor what was measured is faster
NO_NOTES = Notes()
# Every figure that a run can have as a whole; one of a proof's trial has no meaning here.
FIGURES: tuple[Figure, ...] = tuple(
    figure for figure in figures.RUN if {*figure.shown} & {"compare", "summary", "runs"}
)


@dataclass(frozen=True)
class Entry:
    """A run in the table, as it was read. A running run has its latest figures."""

    run: Run
    state: StateName
    title: Title = field(default_factory=lambda: Title(""))
    description: str = ""
    figures: Mapping[str, float | None] = field(default_factory=lambda: EMPTY)  # by the keys of FIGURES, LEFT and GAIN
    when: float = 0.0
    host: str = ""  # the other machine that it runs on, if any
    damage: str = ""  # which of its files are damaged
    notes: Notes = NO_NOTES
    latest: Progress | None = None  # its newest progress, if needed
    has_checkpoint: bool = False
    validation: tuple[str, float | None] = ("", None)  # a metric of the newest evaluation, by Keras's name of it
    test: tuple[str, float | None] = ("", None)  # of the test data, after the training
    workers: tuple[str, ...] = ()  # of a chief: the runs of its other workers in the same home
    size: int | None = None  # bytes on the disk; None: not measured yet
    waiting: Waiting | None = None  # its place in the queue, if it waits
    number: int | None = None  # from which its short name is made
    sweep: str = ""  # the sweep whose trial it is
    trials: tuple[Entry, ...] = ()  # of the row of a sweep: its runs
    fault: str = ""  # why it failed, or that it has diverged, learnt nothing or overfits, as a sentence
    learnt_badly: bool = False  # and none of its best models is kept
    is_open: bool = False  # the row of a sweep whose trials are shown below it

    @property
    def group(self) -> str:
        """What the row stands for, if it is not one run."""
        return ""

    @property
    def name(self) -> str:
        """The short name, such as `r42`; the id if the run has no number."""
        return f"r{self.number}" if self.number else self.run.id

    @property
    def named(self) -> str:
        """The short name and the title, such as `r42 fast: batch_size=256`; the id if the run has no number."""
        return f"{self.name} {self.title}" if self.number else self.run.id

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE_STATES

    @property
    def resumable(self) -> bool:
        return self.has_checkpoint and not self.is_active and self.state not in ("ok", WAITING)

    @property
    def done(self) -> float | None:
        """The share of its steps that a running run has done, from 0 to 1; None for an ended run, or if not known."""
        return share_done(self.latest) if self.is_active else None

    @property
    def reached(self) -> str:
        """How much of it is done, while it goes on; empty if that is not known."""
        return share(self.done) if self.done is not None else ""

    @property
    def state_word(self) -> str:
        held = self.waiting is not None and self.waiting.held
        word = "held" if held else STATE_LABELS.get(self.state, self.state)
        return f"{word} on {self.host}" if self.host else word

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The texts in which the filter searches its words, the most important first."""
        tags = (place(f"#{tag}", 1, label="tag") for tag in self.notes.tags)
        return (
            place(self.name),
            place(self.title.whole),
            *tags,
            place(self.state_word, 1, label="state"),
            place(self.run.id, 1, False, "id"),
            place(time.strftime("%b %d %H:%M %Y", time.localtime(self.when)), 1, False, "start"),
            place(self.notes.note, 2, False, "note"),
            place(self.description, 3, False, "description"),
        )


class RunList:
    """Reads all runs. A finished run is read again only if its files have changed."""

    def __init__(self) -> None:
        self._kept = Kept[Entry](lambda entry: entry.is_active)
        self.total = 0  # runs, also those that were not read
        self.closed = 0  # folders that this user cannot read
        self.queue = Queue()

    def read(self, most: int | None = None) -> list[Entry]:
        """Return the `most` newest runs (None: all), the newest first, and all runs that wait in the queue."""
        entries: list[Entry] = []
        queue, survey = read_queue(), runs.survey()
        self.total, self.closed = len(survey.runs), len(survey.closed)
        older = survey.runs[most:] if most is not None and queue.waiting else ()
        for run in (*survey.runs[:most], *(run for run in older if run.id in queue.waiting)):
            names = ("result.json", "status.json", titles.NOTES_FILE, titles.FILE)
            stamp = (*(changed(run, name) for name in names), written_at(run.queue_file))
            entries.append(self._kept.read(run.id, stamp, partial(entry_of, run)))
        self.queue, places = queue, queue.waiting
        return [replace(each, waiting=places.get(each.run.id)) if each.state == WAITING else each for each in entries]

    def measure(self) -> bool:
        """Measure changed folders for a short time. True if an entry has another size than before."""
        return self._kept.measure(measured)


def read_queue() -> Queue:
    """Return the queue as it is now. If the queue is empty, this costs only the listing of one folder."""
    if not entry_names():
        return Queue()
    from . import queue  # only if there are entries

    return queue.read()


def queue_place(run: Run) -> Waiting | None:
    """Return the place of a run in the queue, None if it does not wait. If it is not queued, this costs one `stat`."""
    return read_queue().waiting.get(run.id) if run.queue_file.exists() else None


def queue_first(entries: Iterable[Entry], running_first: bool = True) -> list[Entry]:
    """Return running runs (with `running_first`), waiting ones in their order, held ones, then all others."""
    entries = list(entries)
    last = len(entries) + 1

    def rank(entry: Entry) -> tuple[int, int]:
        if entry.state == WAITING:
            held = entry.waiting is not None and entry.waiting.held
            return 1 + held, (entry.waiting.place or last) if entry.waiting is not None else last
        return (0 if entry.is_active and running_first else 3), 0

    return sorted(entries, key=rank)


def measured(entry: Entry) -> Entry:
    return replace(entry, size=writing.used_bytes(entry.run.path))


def changed(run: Run, name: str) -> float:
    return written_at(run.file(name))


def entry_of(run: Run, earlier: Entry | None = None) -> Entry:
    """Return a run's present entry; parts that never change are copied from `earlier`."""
    result = run.whole_result
    latest = None if at(result, LOSS.key) is not None else last_event(run, Progress)
    now = run.liveness
    state = run.state_of(now)
    # The loss is the mean that the live view shows. Only a running run has a time left.
    values = {figure.key: at(result, figure.key) if result else at(latest, figure.progress) for figure in FIGURES}
    if latest is not None:
        values[LOSS.key] = latest.loss
    values[LEFT.key] = latest.eta_seconds if latest is not None and state in ACTIVE_STATES else None
    judged = judging(result.get("metrics") or EMPTY)
    if not judged[0] and (epoch := last_event(run, EpochEnd, lambda each: bool(judging(each.metrics)[0]))):
        judged = judging(epoch.metrics)  # as the last epoch had none, by a stop or `validation_freq`
    workers = earlier.workers if earlier else ()
    if not workers and (joined := run_cluster.of_run(run)) is not None and joined.is_chief:
        workers = tuple(other.id for other in run_cluster.other_workers(run))
    return Entry(
        run,
        state,
        title_of(run),  # at its start, changes may prove to do nothing, and it may be renamed
        earlier.description if earlier else description(run),
        values,
        changed(run, "preset.yaml"),
        now.host,
        "; ".join(run.damage),
        titles.read_notes(run),
        latest,
        bool(steps_in(run.file("checkpoints"))),
        judged,
        judging(result.get("metrics") or EMPTY, "test_"),
        workers,
        number=run.number,
        fault=str((result.get("error") or EMPTY).get("message") or result.get("learning") or ""),
        learnt_badly=has_learnt_badly(str(result.get("learning") or ""), result.get("best") or ()),
        sweep=earlier.sweep if earlier else part_of_sweep.read(run).sweep,
        size=earlier.size if earlier else None,
    )


def folded(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries without workers whose chief is among them: a training on several machines is one row."""
    entries = list(entries)
    others = {name for entry in entries for name in entry.workers}
    return [entry for entry in entries if entry.run.id not in others] if others else entries


def judging(metrics: Mapping[str, float | None], prefix: str = "val_") -> tuple[str, float | None]:
    """Return name and value of the first metric with this prefix, else of that loss; else an empty name and None."""
    names = [name for name in metrics if name.startswith(prefix) and metrics[name] is not None]
    chosen = next((name for name in names if name != f"{prefix}loss"), "".join(names[:1]))
    return chosen, metrics.get(chosen)


def description(run: Run) -> str:
    """Return the commit of the user's code and the preset's description as text. Empty if there is neither."""
    commit = code_copy.read(run).short_commit
    value: object = ""
    with contextlib.suppress(OSError, YamlFault):
        head = located_yaml.parse(located_yaml.read_text(run.file("preset.yaml")).partition("\nworkload:")[0])
        value = head["description"].value if "description" in head else ""
    described = harmless(value) if isinstance(value, str) else ""
    return "  ".join(filter(None, (commit and f"code {commit}", described)))


def when_text(then: float, now: float | None = None) -> str:
    """Return a start time in six characters: the time of today, the day of this year, or the year."""
    moment, today = time.localtime(then), time.localtime(now)
    if moment[:3] == today[:3]:
        return time.strftime(" %H:%M", moment)
    return time.strftime("%b %d" if moment[0] == today[0] else "  %Y", moment)


# ---- runs that go on ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """A run that was running at the last reading and has ended since: its name and title, its id and its state."""

    title: str
    id: str
    state: StateName


@dataclass(frozen=True)
class Now:
    """The running runs. `title` is the name and the title of the newest. `done` is the share (0 to 1) of its steps that
    it has done, None if unknown. `ended` are the runs that have ended since the last reading, without trials of
    sweeps."""

    running: tuple[Run, ...] = ()
    title: str = ""
    done: float | None = None
    ended: tuple[Ended, ...] = ()
    queue: Queue = field(default_factory=Queue)


class RunningRuns:
    """Reads which runs are running. One that has ended is read again only if its status file changes."""

    def __init__(self) -> None:
        self._states = Kept[StateName](lambda state: state in ACTIVE_STATES)
        self._going_on: dict[str, Run] = {}

    def read(self) -> Now:
        queue = read_queue()
        newest = {run.id: run for run in newest_runs(lambda run: run.id in queue.waiting)}
        searched = newest | {name: run for name, run in self._going_on.items() if name not in queue.waiting}
        states = {name: self._states.read(name, changed(run, "status.json"), partial(_state_of, run))
                  for name, run in searched.items() if run.path.is_dir()}  # fmt: skip
        running = {name: searched[name] for name, state in states.items() if state in ACTIVE_STATES}
        over = [searched[name] for name in self._going_on if name in states and name not in running]
        alone = (run for run in over if not part_of_sweep.read(run).sweep)
        ended = tuple(Ended(titles.with_name(run), run.id, states[run.id]) for run in alone)
        self._going_on = running
        first = next(iter(running.values()), None)
        if first is None:
            return Now(ended=ended, queue=queue)
        done = share_done(last_event(first, Progress))
        return Now(tuple(running.values()), titles.with_name(first), done, ended, queue)


def _state_of(run: Run, _earlier: StateName | None) -> StateName:
    return run.state
