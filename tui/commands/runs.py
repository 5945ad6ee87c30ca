"""The commands about runs: list, stop, delete, note and tag them; print logs and histories; follow them."""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click
from rich.table import Table
from rich.text import Text

from ...engine import runs as run_folders
from ...engine.figures import shown
from ...engine.files import writing
from ...engine.files.reading import open_regular
from ...engine.files.values import to_json
from ...engine.files.writing import refuse_existing, used_bytes, write_new
from ...engine.follow import start, to_tensorboard
from ...engine.follow.start import FollowerState
from ...engine.presets import SHIPPED
from ...engine.process.known_failures import RESUMED
from ...engine.runs import Run, RunError, event_reading, history, run_cluster, titles, trash
from ...engine.runs.event_reading import RunEvents
from ...engine.runs.events import fields_of
from ...engine.runs.run import STATE_LABELS, WAITING
from ...engine.runs.run_state import Epoch
from ...engine.runs.trash import Deletable, Reserve
from ...engine.units import counted, size
from ..base.errors import DONE, FAILED, INTERRUPTED, STDOUT, WRONG, Refused, clean, complain
from ..base.glyphs import takes_keys
from ..drawing.log_rows import epoch_text, judged
from ..printing.plain_tables import show_table
from ..reading.run.reader import EpochTail
from ..reading.run_columns import COLUMNS, ONLY_GOING_ON, SPEED, STEP_TIME
from ..reading.run_list import Entry, entry_of, folded, measured
from .train import code_of

NAMED = 12  # of the runs to be deleted


def show_runs(as_json: bool, tags: Sequence[str] = (), states: Sequence[str] = (), last: int | None = None) -> None:
    """Print the runs that match the filters as a table, or as one JSON object per line. A run must have all `tags` and
    one of the `states`; an empty filter matches every run. `last` is the number of the newest runs to print, None for
    all. The table has one line for each sweep, unless there is a filter."""
    survey = run_folders.survey()
    fold = not (as_json or tags or states)
    entries, chosen = _newest(survey.runs, titles.tags_in(tags), states, last, fold)
    _print_damage(str(survey), entries)
    if as_json:
        for entry in chosen:
            print(to_json(_as_json(entry)))
    elif chosen:
        show(chosen)
    elif entries:
        print("No run matches; gputui runs without filters lists all.")
    elif not survey.closed:
        print("No runs so far; gputui --preset quickstart makes the first.")


def _newest(
    runs: Sequence[Run], tags: Sequence[str], states: Sequence[str], last: int | None, fold: bool
) -> tuple[list[Entry], list[Entry]]:
    """Return the newest entries that match, with the sizes of their folders. Only as many are read as are needed."""
    entries: list[Entry] = []
    chosen: list[Entry] = []
    rows: set[str] = set()  # the ids of runs, and of sweeps
    for run in runs:
        entries.append(entry_of(run))
        if not _fits(entries[-1], tags, states):
            continue
        chosen.append(entries[-1])
        sweep = chosen[-1].sweep if fold else ""
        rows.add(sweep or run.id)
        if last is not None and len(rows) >= last + bool(sweep):  # of the last sweep all trials are read
            shown = _rows(chosen, fold)[:last]
            if len(shown) == last and not any(_waits_for_chief(entry, chosen) for entry in shown):
                break
    return entries, _rows([measured(entry) for entry in chosen], fold)[:last]


def _rows(chosen: Sequence[Entry], fold: bool) -> list[Entry]:
    """Return a row for each run, one for a training on several machines and, with `fold`, one for a sweep."""
    rows = folded(chosen)
    sweeps = {entry.sweep for entry in rows if entry.sweep} if fold else set()
    if not sweeps:
        return rows
    from ..reading.sweep_rows import in_sweeps  # only if there is a sweep
    from ..reading.trial_curves import SweepRecords  # only if there is a sweep

    return in_sweeps(rows, SweepRecords().read(sweeps))


def _fits(entry: Entry, tags: Sequence[str], states: Sequence[str]) -> bool:
    state = STATE_LABELS.get(entry.state, entry.state)
    return all(tag in entry.notes.tags for tag in tags) and (not states or state in states)


def _waits_for_chief(entry: Entry, chosen: Sequence[Entry]) -> bool:
    chief = run_cluster.local_chief(entry.run)
    return chief is not None and all(other.run != chief for other in chosen)


def _as_json(entry: Entry) -> dict[str, object]:
    return {
        "id": entry.run.id,
        "name": entry.run.name,
        "state": STATE_LABELS.get(entry.state, entry.state),
        "host": entry.host or None,
        "path": str(entry.run.path),
        "title": entry.title.whole,
        "note": entry.notes.note,
        "tags": list(entry.notes.tags),
        "bytes": entry.size,
        "workers": list(entry.workers),
        "sweep": entry.sweep or None,
        "progress": fields_of(entry.latest) if entry.is_active and entry.latest else None,
        "result": entry.run.result or {},
    }


def _print_damage(closed: str, entries: Sequence[Entry]) -> None:
    if closed:
        complain(closed)
    damaged = [f"{entry.run.name}: {entry.damage}" for entry in entries if entry.damage]
    if damaged:
        complain(damaged[0] + (f" (and {len(damaged) - 1} more such runs)" if len(damaged) > 1 else ""))


def stop_runs(names: Sequence[str]) -> int:
    """Ask runs to stop, one after the other. Return WRONG if one of them was refused, whose reason is printed, else
    DONE."""
    code = DONE
    for name in dict.fromkeys(names):
        try:
            _stop(name)
        except RunError as fault:
            complain(fault)
            code = WRONG
    return code


def _stop(name: str) -> None:
    """Print its state at most 2 s later. One that the queue is starting is waited for up to 20 s."""
    run = run_folders.find(name)
    if run.queue_file.exists():
        from ...engine.queue import entry_changes, slurm_queue  # only for a queued run

        entry_changes.wait_for_start(run.id)
        if run.state == WAITING:
            entry_changes.remove(run.id)
            print(f"{run.name} is taken out of the queue")
            return
        if slurm_queue.stop(run.id):
            print(f"{run.name} is asked to stop by Slurm; repeat the command to end it at once")
            return
        entry_changes.end_for_good(run.id)
    run_folders.request_stop(run)
    deadline = time.monotonic() + 2
    while run.state in ("running", "stopping") and time.monotonic() < deadline:
        time.sleep(0.1)
    state = run.state
    stopping = "is stopping; repeat the command to end it at once"
    print(f"{run.name} {stopping if state in ('running', 'stopping') else STATE_LABELS.get(state, state)}")


# ---- deleting -------------------------------------------------------------------------------------


def remove_runs(names: Sequence[str], latest: bool, yes: bool) -> int:
    """Delete the named runs, and with `latest` the newest, permanently, with the runs of their other workers. Runs that
    have not ended stay. Asks first unless `yes`. Raises Abort if the answer is no, RunError if a name fits no run or
    several, and Refused without a terminal or a run, or for the name `latest`."""
    to_delete = _with_workers(_to_remove(names, latest))
    states = {run: run.state for run in to_delete}
    going_on = [run for run, state in states.items() if state in run_folders.ACTIVE_STATES or state == WAITING]
    for run in going_on:
        stops = "takes it out of the queue" if states[run] == WAITING else "stops it"
        complain(f"{run.name} is not deleted: it is {states[run]}; gputui stop {run.name} {stops}")
    to_delete = [run for run in to_delete if run not in going_on]
    if not to_delete:
        return WRONG
    if not yes:
        _ask(to_delete)
    return WRONG if delete(to_delete, "runs") or going_on else DONE


def delete(items: Sequence[Deletable], what: str, reserve: Reserve | None = None) -> bool:
    """Delete the items permanently, and print the freed bytes and a reason for each item that was not deleted. Return
    True if there is such an item. `what` is the noun for the items. `reserve` is passed to `trash.delete_all`."""
    sizes = {item.id: used_bytes(item.path) for item in items}
    gone, refused = trash.delete_all(items, reserve) if reserve else trash.delete_all(items)
    for reason in refused:
        complain(reason)
    freed = f": {size(sum(sizes[item.id] for item in gone))} are free" if gone else ""
    print(f"deleted {counted(len(gone), what)}{freed}")
    return bool(refused)


def _to_remove(names: Sequence[str], latest: bool) -> list[Run]:
    # The name `latest` means another run after every start, so that the option --latest is needed.
    if "latest" in names:
        raise Refused("latest may be another run by now, and is not deleted; name the run, or give --latest")
    if not names and not latest:
        raise Refused("name the runs to delete; gputui runs lists them")
    return list(dict.fromkeys(run_folders.find(name) for name in (*names, *(["latest"] if latest else []))))


def _with_workers(named: Sequence[Run]) -> list[Run]:
    """Return the runs and, for a run of several machines, the runs of its other workers, which are also printed."""
    all_runs = dict.fromkeys(named)
    for run in named:
        others = run_cluster.other_workers(run)
        if others:
            named_too = ", ".join(clean(other.name) for other in others)
            print(f"with {clean(run.name)} go the runs of its other workers: {named_too}")
        all_runs |= dict.fromkeys(others)
    return list(all_runs)


def _ask(to_delete: Sequence[Run]) -> None:
    lines = ["  ".join(dict.fromkeys((run.name, run.id, run_folders.title(run)))) for run in to_delete]
    ask_before_deleting(to_delete, lines, "run", "events, checkpoints and log")


def ask_before_deleting(items: Sequence[Deletable], lines: Sequence[str], what: str, contents: str) -> None:
    """Print the items that are to be deleted, one of the `lines` for each, and ask. Raises Abort if the answer is no,
    and Refused without a terminal. `what` is the noun for the items, and `contents` says what is deleted with them."""
    if not takes_keys():
        raise Refused("deleting asks first, which needs a terminal; give --yes to delete them for good")
    for line in lines[:NAMED]:
        print(f"  {clean(line)}")
    if len(lines) > NAMED:
        print(f"  and {len(lines) - NAMED} more")
    several = f"these {len(items)} {what}s" if len(items) > 1 else f"this {what}"
    used = size(used_bytes(*(item.path for item in items)))
    if not click.confirm(f"Delete {several} for good, with {contents}? This frees {used}."):
        raise click.Abort


# ---- a person's own words --------------------------------------------------------------------------


def note(name: str, words: Sequence[str]) -> None:
    """Write the words as the note on a run. Without words, print the note. A single empty word removes it."""
    run = run_folders.find(name)
    written = titles.write_note(run, " ".join(words)) if words else titles.read_notes(run)
    if not words:
        print(clean(written.note) or f"{clean(run.name)} has no note")


def tag(name: str, tags: Sequence[str], remove: bool) -> None:
    """Add tags to a run, or remove them with `remove`, and print its tags after the change. Without tags, only print
    them. Raises Refused for `remove` without tags, and for tags that the run does not have."""
    run = run_folders.find(name)
    if remove and not tags:
        raise Refused("name the tags to remove")
    if remove and (
        missing := [
            name_of_tag for name_of_tag in titles.tags_in(tags) if name_of_tag not in titles.read_notes(run).tags
        ]
    ):
        raise Refused(f"{run.name} has no tag {' or '.join(missing)}; gputui tag {run.name} prints its tags")
    written = titles.retag(run, () if remove else tags, tags if remove else ()) if tags else titles.read_notes(run)
    text = " ".join(f"#{name_of_tag}" for name_of_tag in written.tags)
    print(clean(text) or f"{clean(run.name)} has no tags")


SCHEMA = SHIPPED / "run-schema.json"  # made by docs/tables.py


def show_history(name: str, form: str, output: str | None) -> None:
    """Write the figures of the named run over time. `form` is csv, jsonl or tensorboard; or schema, for any run.
    `output` is the file to write, or the folder for tensorboard; Refused is raised if it exists. If it is None or `-`,
    csv and jsonl are printed; without it the folder has the id of the run as its name."""
    if form == "schema":
        _write(SCHEMA.read_text(encoding="utf-8"), output)
        return
    run = run_folders.find(name)
    if output == STDOUT and form != "tensorboard":
        output = None
    if output is not None:
        refuse_existing(Path(output))
    if form == "tensorboard":
        _to_tensorboard(run, Path(output or run.id))
        return
    recorded = event_reading.read_events(run.path)
    for damage in recorded.damage:
        complain(f"{run.name}: {damage}")
    text = _as_csv(run, recorded) if form == "csv" else _as_json_lines(recorded)
    _write(text, output)


def _write(text: str, output: str | None) -> None:
    if output is None or output == STDOUT:
        sys.stdout.write(text)
    else:
        write_new(Path(output), text)
        print(f"{clean(output)} written")


def _as_csv(run: Run, recorded: RunEvents) -> str:
    table = history.rows(recorded.events)
    if not table:
        goes_on = run.is_active or run.state == WAITING
        why = " so far" if goes_on else ": it ended before its first step"
        raise Refused(f"{run.name} has no figures{'' if recorded.damage else why}")
    out = io.StringIO()
    writer = csv.DictWriter(out, history.columns(table), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def _as_json_lines(recorded: RunEvents) -> str:
    return "".join(to_json(fields_of(event), short=True) + "\n" for event in recorded.events)


def _to_tensorboard(run: Run, folder: Path) -> None:
    refuse_existing(folder)
    if (path := to_tensorboard.write_all(run, folder)) is None:
        raise Refused(f"{run.name} has no figures")
    print(f"{clean(str(path))} written; tensorboard --logdir {clean(str(folder))} shows it")


POLL_SECONDS = 0.2


def follow_run(name: str, targets: Sequence[str], detach: bool) -> int:
    """Start a follower of the run for each target and, without `detach`, wait until they have ended. Without targets,
    print the run's followers. Ctrl-C ends the followers, which go on from their places later. Raises Refused if the
    library of a target is missing, or if the disk of the run takes nothing more."""
    run, targets = run_folders.find(name), tuple(dict.fromkeys(targets))
    if not targets:
        if detach:
            raise Refused("--detach needs --to TARGET")
        _show(run)
        return DONE
    if lines := start.missing(targets):
        raise Refused("\n".join(lines))
    if full := writing.try_writing(run.path):
        raise Refused(f"{full}; a follower notes there how far it is")
    followers = {target: start.start(run.path, target) for target in targets}
    if detach:
        print(f"{run.name} is followed in the background; gputui follow {run.name} shows how far it is")
        return DONE
    try:
        return _wait(run, followers)
    except KeyboardInterrupt:
        for process in followers.values():
            process.terminate()
        complain(f"gputui follow {run.name} {' '.join(f'--to {target}' for target in targets)} goes on from here")
        return INTERRUPTED


def _show(run: Run) -> None:
    states = start.states(run.path)
    if not states:
        raise Refused(
            f"{run.name} has no followers; --to tensorboard starts one, and gputui follow --help lists others"
        )
    for state in states:
        print(clean(f"{state.target}: {_line(state)}"))


def _line(state: FollowerState) -> str:
    where = f" to {state.place.where}" if state.place.where else ""
    return f"{state.words}, {counted(state.place.number, 'rows')} written{where}"


def _wait(run: Run, followers: dict[str, subprocess.Popen[bytes]]) -> int:
    """Print each change of the followers' states until all have ended. DONE if all have written everything."""
    code, words = DONE, dict.fromkeys(followers, "")
    while followers:
        time.sleep(POLL_SECONDS)
        for target, process in list(followers.items()):
            ended, state = process.poll() is not None, start.state(run.path, target)
            if ended and process.returncode == 0 and state.is_alive:
                continue  # another follower of this target goes on
            if ended:
                del followers[target]
                code = code if process.returncode == 0 else FAILED
                print(clean(f"{target}: {_line(state)}"), flush=True)
            elif state.is_alive and state.place.problem != words[target]:
                words[target] = state.place.problem
                complain(f"{target}: {state.words}")
    return code


# In the order of their columns, and in the order in which they get room.
LISTED = (
    "name",
    "id",
    "state",
    "run",
    "done",
    "left",
    *(figure.narrow_head for figure in shown("listing")),
    "size",
    "when",
    "tags",
    "note",
)
FIRST = (
    "name", "state", "run", SPEED, "loss", "done", "left", "when", "tags", "id", "memory", "host", STEP_TIME,
    "size", "wait", "time",
)  # fmt: skip
LEAST_TITLE, LEAST_NOTE = 28, 16
APART = 2


def show(entries: Sequence[Entry]) -> None:
    """Print one line per run. On a terminal the columns are fitted to its width. Elsewhere no text is cut."""
    terminal = sys.stdout.isatty()
    columns = [name for name in LISTED if _is_informative(name, entries)]
    widths = _fitting(columns, entries, shutil.get_terminal_size().columns) if terminal else dict.fromkeys(columns, 0)
    table = Table(box=None, pad_edge=False, padding=(0, APART, 0, 0))
    for name in widths:
        table.add_column(_head(name), justify="right" if COLUMNS[name].right else "left", no_wrap=True, overflow="crop")
    for entry in entries:
        table.add_row(*(Text(_cell(name, entry, width)) for name, width in widths.items()))
    show_table(table)


def _head(name: str) -> str:
    return "title" if name == "run" else COLUMNS[name].head


def _cell(name: str, entry: Entry, width: int) -> str:
    if name == "run":
        return clean(entry.title.within(width) if width else entry.title.whole)
    text = clean(COLUMNS[name].show(entry)).replace("\n", " ")
    return f"{text[: width - 2]}.." if width and name == "note" and len(text) > width else text


def _is_informative(name: str, entries: Sequence[Entry]) -> bool:
    if name == "name":
        return any(entry.number or entry.group for entry in entries)
    if name in ONLY_GOING_ON:
        return any(entry.is_active for entry in entries)
    return name not in ("tags", "note") or any(COLUMNS[name].show(entry) for entry in entries)


def _fitting(columns: Sequence[str], entries: Sequence[Entry], room: int) -> dict[str, int]:
    """Room that is left is given to the title, then to the note. Each run is named by its short name or else its id."""
    naming = ["name"] if all(entry.number or entry.group for entry in entries) else ["name", "id"]
    longest = {name: max(len(_head(name)), *(len(_cell(name, entry, 0)) for entry in entries)) for name in columns}
    least = longest | {"run": min(LEAST_TITLE, longest["run"]), "note": min(LEAST_NOTE, longest.get("note", 0))}
    widths: dict[str, int] = {}
    order = [*naming, *FIRST]
    for name in sorted(columns, key=lambda name: order.index(name) if name in order else len(order)):
        if least[name] + APART <= room + APART or name in naming:
            widths[name] = least[name]
            room -= least[name] + APART
    for name in ("run", "note"):
        if name in widths and room + APART > 0:
            more = min(room + APART, longest[name] - widths[name])
            widths[name] += more
            room -= more
    return {name: widths[name] for name in columns if name in widths}


BLOCK_BYTES = 1 << 16
# Lines that are written over one another come one below the other; the last character may be half an end of a line.
_LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")


def show_log(name: str, follow: bool, last: int | None) -> int:
    """Print the `last` lines of a run's log (None: all) with a line for each epoch. With `follow`, print new lines
    until the run ends, and return the training's exit code, INTERRUPTED after Ctrl-C, which does not stop the run.
    Raises Refused if there is no log (only without `follow`)."""
    run = run_folders.find(name)
    try:
        for text in _texts(run, follow, last):
            sys.stdout.write(text)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED  # of looking on: the run goes on
    return code_of(run, (run.result or {}).get("outcome")) if follow else DONE


def _texts(run: Run, follow: bool, last: int | None) -> Iterator[str]:
    """Yield the present lines and, with `follow`, the new ones until the run ends. Each text ends with a line break."""
    stream = _opened(run, follow)
    if stream is None:
        return
    lines = _InOrder(run)
    with stream:
        if last is None:
            yield from lines.with_epochs(iter(partial(stream.read, BLOCK_BYTES), b""))
        else:
            yield from _last_of(lines, stream, last, follow)
        while follow:
            ended = not _goes_on(run)
            yield from lines.with_epochs([stream.read()], arrived=time.time())
            if ended:
                break
            time.sleep(POLL_SECONDS)
    yield from lines.rest()


def _last_of(lines: _InOrder, stream: BinaryIO, last: int, follow: bool) -> Iterator[str]:
    """Ended epochs among them. `stream` is then at its end; with `follow` an incomplete line is left."""
    stream.seek(max(0, stream.seek(0, 2) - max(BLOCK_BYTES, last * 1000)))
    cut = stream.tell() > 0
    block = stream.read()
    block = block[block.find(b"\n") + 1 :] if cut else block
    present = list(lines.with_epochs([block], cut=cut))
    if not follow:
        present += lines.rest()
    yield from present[max(0, len(present) - last) :]


class _InOrder:
    """The lines of the log and of the epochs, in the order of time. A line without a time follows the line before it in
    the log. A line that arrives while the log is followed has the time of its arrival."""

    def __init__(self, run: Run) -> None:
        self._events = EpochTail(run)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a block may end within a character
        self._begun = ""  # a line whose end is still to come
        self._epoch_t = 0.0
        self._resumes: tuple[float, ...] = ()
        self._resumes_told = 0

    def with_epochs(self, blocks: Iterable[bytes], arrived: float = 0.0, cut: bool = False) -> Iterator[str]:
        """Yield the complete lines in `blocks` and, by time, a line for each new epoch. `arrived` is the Unix time of
        lines that have no time; with 0 such a line follows the one before it. `cut` is True if the beginning of the log
        is missing."""
        now = self._events.read()
        epochs = deque(epoch for epoch in now.epochs if epoch.t > self._epoch_t)
        self._resumes = now.resumes
        for block in blocks:
            *whole, self._begun = _LINE_END.split(self._begun + self._decoder.decode(block))
            if cut:
                self._resumes_told = max(0, len(now.resumes) - whole.count(RESUMED))
            for line in whole:
                t = self._time(line) or arrived
                while epochs and epochs[0].t < t:
                    yield self._epoch_line(epochs.popleft())
                yield f"{_shown(line)}\n"
        yield from map(self._epoch_line, epochs)

    def _time(self, line: str) -> float:
        if line != RESUMED:
            return judged(line).t
        self._resumes_told += 1
        return self._resumes[self._resumes_told - 1] if self._resumes_told <= len(self._resumes) else math.inf

    def _epoch_line(self, epoch: Epoch) -> str:
        self._epoch_t = epoch.t
        return f"{epoch_text(epoch)}\n"

    def rest(self) -> Iterator[str]:
        if self._begun:
            yield _shown(self._begun.rstrip("\r"))
            self._begun = ""


def _opened(run: Run, follow: bool) -> BinaryIO | None:
    """None if the run ends without a log. With `follow`, wait for that of a run that will start."""
    while True:
        try:
            return open_regular(run.file("engine.log"))
        except FileNotFoundError:
            if not follow:
                raise Refused(f"{run.name} has no log") from None
        if not _goes_on(run):
            return None
        time.sleep(POLL_SECONDS)


def _goes_on(run: Run) -> bool:
    return run.is_active or run.state == WAITING


def _shown(line: str) -> str:
    return clean(line.expandtabs(8))
