"""The commands about runs: list them, stop one, delete some, write a note and tags on one."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from ...engine import runs as run_folders
from ...engine.files.values import to_json
from ...engine.files.writing import used_bytes
from ...engine.runs import Run, RunError, run_cluster, titles, trash
from ...engine.runs.run import STATE_LABELS, WAITING
from ...engine.runs.trash import Deletable, Reserve
from ...engine.units import counted, size
from ..base.errors import DONE, WRONG, Refused, clean, complain
from ..base.terminal import takes_keys
from ..reading.run_list import Entry, entry_of, folded, measured

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
        from ..printing import runs as listing  # rich, which --json does not need

        listing.show(chosen)
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
    from ..reading.sweep_records import SweepRecords  # only if there is a sweep
    from ..reading.sweep_rows import in_sweeps  # only if there is a sweep

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
        "progress": dict(entry.latest) if entry.is_active and entry.latest else None,
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
    """Ask a run to stop, and print its state at most 2 s later. One that the queue is starting is waited for up to 20
    s."""
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
