"""The commands about several runs: list, compare and delete them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click

from ...engine.figures import shown
from ..base.errors import DONE, WRONG, Refused, clean, complain
from . import completion, is_called
from .shared_options import one_of

if is_called():
    from rich.table import Table
    from rich.text import Text

    from ...engine import runs as run_folders
    from ...engine.compare import comparison as comparisons
    from ...engine.compare import profiles
    from ...engine.files.values import to_json
    from ...engine.files.writing import used_bytes
    from ...engine.runs import Run, run_cluster, titles, trash
    from ...engine.runs.events import fields_of
    from ...engine.runs.run import STATE_LABELS, WAITING
    from ...engine.runs.trash import Deletable, Reserve
    from ...engine.text_table import Table as DrawnTable
    from ...engine.units import counted, size
    from ..base.glyphs import takes_keys
    from ..printing.plain_tables import show_table
    from ..reading.run_columns import COLUMNS, OF_SOME, ONLY_GOING_ON, SPEED, STEP_TIME, is_used
    from ..reading.run_list import Entry, entry_of, folded, measured
    from ..wording import comparison as wording
    from ..wording.comparison import as_csv, as_json, as_markdown

STATES = ("waiting", "running", "starting", "stopping", "done", "stopped", "failed", "oom", "timeout", "crashed")
NAMED = 12  # of the runs to be deleted


class State(click.Choice[str]):
    """A state of a run. The words of its result, `ok` and `error`, are understood as well."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from ...engine.runs.run import STATE_LABELS  # a value is read before the command is called

        return super().convert(STATE_LABELS.get(value, value), param, ctx)


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, shell_complete=completion.tag,
    help="Only runs with this tag; given several times, with all of them.")  # fmt: skip
@click.option("--state", "states", type=State(STATES), multiple=True,
    help="Only runs in this state; given several times, in any of them.")  # fmt: skip
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the latest N of them.")
@click.pass_context
def runs(context: click.Context, as_json: bool, tags: Sequence[str], states: Sequence[str], last: int | None) -> None:
    if context.invoked_subcommand is not None:
        if as_json or tags or states or last:
            raise Refused(f"the filters of the list do not go with {context.invoked_subcommand!r}")
        return
    survey = run_folders.survey()
    fold = not (as_json or tags or states)  # one row for each sweep
    entries, chosen = _newest(survey.runs, titles.tags_in(tags), states, last, fold)
    if survey.closed:
        complain(str(survey))
    if damaged := [f"{entry.run.name}: {entry.damage}" for entry in entries if entry.damage]:
        complain(damaged[0] + (f" (and {len(damaged) - 1} more such runs)" if len(damaged) > 1 else ""))
    if as_json:
        for entry in chosen:
            print(to_json(as_json_of_run(entry)))
    elif chosen:
        show(chosen)
    elif entries:
        print("No run matches; gputui runs without filters lists all.")
    elif not survey.closed:
        print("No runs so far; gputui --preset quickstart makes the first.")


def _newest(
    runs: Sequence[Run], tags: Sequence[str], states: Sequence[str], last: int | None, fold: bool
) -> tuple[list[Entry], list[Entry]]:
    """Return all entries that were read, as many as are needed, and the `last` newest that match, with folder sizes."""
    entries: list[Entry] = []
    chosen: list[Entry] = []
    rows: set[str] = set()  # the ids of runs, and of sweeps
    for run in runs:
        entries.append(entry := entry_of(run))
        state = STATE_LABELS.get(entry.state, entry.state)
        if not set(tags) <= set(entry.notes.tags) or (states and state not in states):
            continue
        chosen.append(entry)
        sweep = entry.sweep if fold else ""
        rows.add(sweep or run.id)
        if last is not None and len(rows) >= last + bool(sweep):  # of the last sweep all trials are read
            shown = _rows(chosen, fold)[:last]
            chiefs = {run_cluster.local_chief(entry.run) for entry in shown} - {None}
            if len(shown) == last and chiefs <= {entry.run for entry in chosen}:
                break
    return entries, _rows([measured(entry) for entry in chosen], fold)[:last]


def _rows(chosen: Sequence[Entry], fold: bool) -> list[Entry]:
    """Return a row for each run, one for a training on several machines and, with `fold`, one for a sweep."""
    rows = folded(chosen)
    sweeps = {entry.sweep for entry in rows if entry.sweep} if fold else set()
    if not sweeps:
        return rows
    from ...engine.proof.folder import Proof, proofs_folder  # only if there is a sweep
    from ..reading.sweep_rows import in_sweeps  # the same

    return in_sweeps(rows, {name: Proof(proofs_folder() / name).record for name in sweeps})


def as_json_of_run(entry: Entry) -> dict[str, object]:
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


# In the order of their columns.
LISTED = (
    *("name", "id", "state", "run", "validation", "test", "done", "left"),
    *(figure.narrow_head for figure in shown("listing")),
    *("size", "when", "tags", "note"),
)
HEADS = {"run": "title", "wait": "wait"}  # those that differ from the screen's
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
    return HEADS.get(name) or COLUMNS[name].head


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
    return name not in OF_SOME or is_used(name, entries)


def _fitting(columns: Sequence[str], entries: Sequence[Entry], room: int) -> dict[str, int]:
    """Room that is left is given to the title, then to the note. Each run is named by its short name or else its id."""
    naming = ["name"] if all(entry.number or entry.group for entry in entries) else ["name", "id"]
    longest = {name: max(len(_head(name)), *(len(_cell(name, entry, 0)) for entry in entries)) for name in columns}
    least = longest | {"run": min(LEAST_TITLE, longest["run"]), "note": min(LEAST_NOTE, longest.get("note", 0))}
    widths: dict[str, int] = {}
    order = [
        *naming, "state", "run", "validation", "test", SPEED, "done", "left", "when", "loss", "tags", "id", "memory",
        "host", STEP_TIME, "size", "wait", "time",
    ]  # fmt: skip
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


# ---- deleting -------------------------------------------------------------------------------------


@runs.command("rm")
@click.argument("names", nargs=-1, metavar="RUN...", shell_complete=completion.ended_run)
@click.option("--latest", is_flag=True, help="Delete the latest run, too.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
def runs_rm(names: Sequence[str], latest: bool, yes: bool) -> int:
    """Delete runs for good, with their events, checkpoints and log.

    A run that has not ended is not deleted.
    """
    if "latest" in names:  # it means another run after every start
        raise Refused("latest may be another run by now, and is not deleted; name the run, or give --latest")
    if not names and not latest:
        raise Refused("name the runs to delete; gputui runs lists them")
    all_runs = dict.fromkeys(run_folders.find(name) for name in (*names, *(["latest"] if latest else [])))
    for run in all_runs.copy():
        if others := run_cluster.other_workers(run):
            named_too = ", ".join(clean(other.name) for other in others)
            print(f"with {clean(run.name)} go the runs of its other workers: {named_too}")
        all_runs |= dict.fromkeys(others)
    states = {run: run.state for run in all_runs}
    going_on = [run for run, state in states.items() if state in run_folders.ACTIVE_STATES or state == WAITING]
    for run in going_on:
        stops = "takes it out of the queue" if states[run] == WAITING else "stops it"
        complain(f"{run.name} is not deleted: it is {states[run]}; gputui stop {run.name} {stops}")
    to_delete = [run for run in all_runs if run not in going_on]
    if not to_delete:
        return WRONG
    if not yes:
        lines = ["  ".join(dict.fromkeys((run.name, run.id, run_folders.title(run)))) for run in to_delete]
        ask_before_deleting(to_delete, lines, "run", "events, checkpoints and log")
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


@click.command()
@click.argument("names", nargs=-1, metavar="RUN...", shell_complete=completion.run)
@click.option("--baseline", metavar="RUN", shell_complete=completion.run, help="Compare with this run, this time only.")
@click.option("--pin", metavar="RUN", shell_complete=completion.run, help="Make this run the baseline from now on.")
@click.option("--unpin", is_flag=True, help="Remove the pinned baseline.")
@click.option("--profile", is_flag=True, help="Also compare their profiles: the parts of a step, layers, operations.")
@one_of(json="Print one JSON object.", markdown="Print a Markdown table.", csv="Print comma-separated values.")
def compare(
    names: Sequence[str], baseline: str | None, pin: str | None, unpin: bool, profile: bool, form: str | None
) -> None:
    """The figures are compared with those of the baseline: the pinned run or, if none is pinned, the first RUN."""
    if (pin is not None or unpin) and (names or baseline is not None or form or profile or (unpin and pin is not None)):
        raise Refused("--pin RUN and --unpin cannot be combined with anything else; compare runs with a second command")
    if pin is not None:
        run = run_folders.find(pin)
        comparisons.pin(run)
        print(f"{run.name} is the baseline of all comparisons from now on; gputui compare --unpin ends that")
    elif unpin:
        print("no baseline is pinned any more" if comparisons.unpin() else "no baseline was pinned")
    else:
        named = [run_folders.find(name) for name in names]
        line_up = comparisons.line_up(named, None if baseline is None else run_folders.find(baseline))
        if len(line_up.runs) < 2:
            if line_up.lost:
                complain(line_up.lost)
            if line_up.choice == "first":
                raise Refused(
                    "name two or more runs, or pin one first: gputui compare --pin RUN; gputui runs lists them"
                )
            raise Refused(f"name a run other than the baseline, {line_up.runs[0].id}; gputui runs lists them")
        comparison = comparisons.compare(line_up)
        if profile:
            comparison = profiles.with_profiles(comparison, line_up.runs)
        if form is None:
            head, *rows = wording.table_rows(comparison)
            show_table(DrawnTable(head, rows, right=range(1, len(head))))
            names = wording.distinct_names(comparison.titles, comparison.names)
            if (speeds := wording.speeds(comparison, names)) is not None:
                print()
                show_table(speeds)
                print()
            print("\n".join(wording.remarks(comparison)))
        else:
            print({"markdown": as_markdown, "csv": as_csv, "json": as_json}[form](comparison))
