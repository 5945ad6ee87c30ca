"""The commands about the queue: show it, change its order, pause it; and what is printed of a job that is put in it."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click

from ..base.errors import DONE, OutputFault, Refused, complain
from . import completion, is_called
from .shared_options import one_of, settings_option

if is_called():
    from ...engine import checks, presets
    from ...engine import runs as run_folders
    from ...engine.files import run_numbers
    from ...engine.files.places import runs_folder
    from ...engine.files.values import to_json
    from ...engine.finding import errors
    from ...engine.options import gpu_choice
    from ...engine.queue import adding, entries, entry_changes, queue_devices, queue_settings, user_service
    from ...engine.queue.entries import Entry
    from ...engine.runs import RunError, titles
    from ...engine.text_table import Table
    from ...engine.units import since
    from ..printing.plain_tables import show_table
    from ..reading import queue as waiting

EMPTY = "The queue is empty; gputui --preset NAME --queue puts a run in it."
PAUSED = "The queue is paused: no run is started. gputui queue start goes on."
GOES_ON = "The pause has ended. "
SLURM_STARTS = "the queue is not paused: Slurm starts its runs, as queue.yaml says"
HEADS = ("place", "run", "state", "needs", "when", "why")
CHANGES_WIDTH = 30  # of the changed options behind a run's id


def first(name: str | None) -> str | None:
    """Return the id of the run, else of the measurement, that is to end first. Raises RunError."""
    if not name:
        return None
    try:
        return run_folders.find(name).id
    except RunError:
        from ...engine.proof import folder  # only if no run has this name

        with contextlib.suppress(RunError):
            return folder.find(name).id
        raise


def added(entry: Entry) -> int:
    try:
        print(entry.run, flush=True)
    except OutputFault:
        complain(f"{entry.name} is in the queue; take it out with: gputui queue rm {entry.name}")
        raise
    name = f"{entry.name}: " if entry.name != entry.run else ""
    complain(f"{name}{waiting.place_text(entry)}")
    return DONE


# ---- showing ---------------------------------------------------------------------------------------


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.pass_context
def queue(context: click.Context, as_json: bool) -> None:
    """`gputui --preset NAME --queue` puts a run in it. Runs start by themselves, in the order of the queue, when their
    devices are free, also after you have logged out.
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise Refused(f"--json does not go with {context.invoked_subcommand!r}")
        return
    listing = entries.listing()
    for line in (*listing.damage, *queue_settings.read().faults):
        complain(line)
    is_paused = entries.is_paused()
    if not as_json and is_paused:
        print(PAUSED)
    if not as_json and not listing.entries:
        print(EMPTY)
        return
    cells = []
    for entry, row in rows_of(listing.entries):
        if as_json:
            print(to_json(row))
            continue
        about = entry.what
        if entry.kind == "run":
            title = titles.title_of(entry.folder)
            in_brief = title.within(len(title.preset) + len(": ") + CHANGES_WIDTH)
            about = in_brief.removeprefix(title.preset).removeprefix(": ")
        row["run"] = f"{entry.name} ({about})" if about else entry.name
        cells.append([str(row[head] or "") for head in HEADS])
    if not as_json:
        show_table(Table(HEADS, cells))


def rows_of(listed: Sequence[Entry]) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """Yield each entry of the queue and its JSON object: those that have begun first, those that are held last."""
    news, gpus, is_paused = entries.news(), waiting.gpus(), entries.is_paused()
    starts, places = waiting.starts_in(listed, news), waiting.places_of(listed)
    for entry in sorted(listed, key=lambda entry: (entry.state in entries.WAITS, entry.state == "held")):
        waits = entry.run in starts
        when = waiting.when_text(starts[entry.run]) or "unknown" if waits else since(entry.started_at or 0)
        row = {
            "place": places.get(entry.run),
            "run": entry.run,
            "name": entry.name,
            "kind": entry.what or entry.kind,
            "state": entry.state,
            "needs": queue_devices.needs_text(entry, gpus),
            "when": "" if waits and (entry.state == "held" or entry.is_of_slurm or is_paused) else when,
            "starts_in_seconds": starts.get(entry.run),
            "why": waiting.why_of(entry, news.why),
            "group": entry.group,
            "after": entry.after,
            "tries": entry.tries,
            "slurm_job": entry.slurm_job,
            "queued_t": entry.queued_at,
            "started_t": entry.started_at,
        }
        yield entry, row


# ---- adding a command ------------------------------------------------------------------------------


@queue.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--gpus", metavar="N[@KIND]", help="GPUs of its own, such as 2, 1@24GB or 1@A100; 0: none, and it waits "
              "for its turn on the CPU. By default one, on a machine without GPUs none.")  # fmt: skip
@settings_option()
@click.option("--after", metavar="RUN", shell_complete=completion.run, help="Not before this has ended.")
@click.option("--name", "run_name", metavar="NAME", help="Call it so in lists and as RUN.")
@click.option("--anyway", is_flag=True, help="Do not wait for trainings outside of the queue that use the CPU.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
def add(
    command: Sequence[str], gpus: str | None, settings: Sequence[str], after: str | None, run_name: str | None,
    anyway: bool,
) -> int:  # fmt: skip
    """Put any program in the queue.

    \b
    gputui queue add -- python train.py --lr 0.1
    gputui queue add --gpus 2@40GB -- torchrun --nproc-per-node 2 train.py
    gputui queue add --gpus 0 --set max_minutes=60 --after r12 -- ./convert.sh "my data"

    It starts in this folder with the variables of this terminal, finds its GPUs in CUDA_VISIBLE_DEVICES, and is a run:
    shown by watch, logs and runs, stopped by stop. --set takes max_minutes, tries, stop_signal, sample_seconds, pcie
    and notify.
    """
    words = list(command[1:] if command[:1] == ("--",) else command)
    if not words:
        raise Refused("name the program: gputui queue add -- python train.py")
    adding.refuse_here(f"gputui queue add -- {shlex.join(words)}")
    preset, here = presets.defaults(settings), adding.machine()
    visible = preset.options.device.visible
    if gpus is not None or "device.visible" not in preset.origins:
        count = gpus or ("1" if here.shown or here.missing else "0")
        visible = "none" if count == "0" else f"free:{count}"
        if count != "0" and gpu_choice.parse(visible) is None:
            raise Refused(f"{gpus!r} is no number of GPUs; write 0, 1, 2@24GB or 1@A100")
        if count != "0" and not (here.gpus or here.missing):
            raise Refused(f"--gpus {count}: {here.no_gpu_reason}\n--gpus 0 takes none, and waits for the CPU")
    preset = replace(
        preset,
        name=os.path.basename(next((word for word in words if word.endswith((".py", ".sh"))), words[0])),
        options=preset.options.with_values({"workload.command": words, "device.visible": visible}),
        run_name=titles.name_in(run_name or ""),
    )
    for finding in errors(checks.check(preset.options, here)):
        raise Refused(str(finding))
    return added(adding.queue_preset(preset, first(after), anyway))


# ---- changing --------------------------------------------------------------------------------------

_CHANGES: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "top": ("Move waiting runs to the top.", lambda name: entry_changes.move(name, "top"), "is at the top"),
    "up": ("Move waiting runs up by one place.", lambda name: entry_changes.move(name, "up"), "is moved up"),
    "down": ("Move waiting runs down by one place.", lambda name: entry_changes.move(name, "down"), "is moved down"),
    "hold": ("Do not start these runs until they are released.", lambda name: entry_changes.hold(name),
             "is held; gputui queue release lets it be started"),
    "release": ("Start these held runs in their turn.", lambda name: entry_changes.release(name), "is released"),
    "rm": ("Take waiting runs out of the queue. Those that have never begun end as stopped.",
           lambda name: entry_changes.remove(name), "is taken out of the queue"),
}  # fmt: skip
_UNCHANGED = {"up": "is the first already", "down": "is the last already", "release": "was not held"}


def _change(names: Sequence[str], verb: str) -> None:
    """Apply `verb` (a key of _CHANGES) to each of the named runs in the queue. Several runs that are moved to the top
    keep their order. If one is refused, those before it are changed, and named."""
    _, act, done = _CHANGES[verb]
    ids = list(dict.fromkeys(_queued(name) for name in names))
    changed: dict[str, str] = {}
    try:
        for name in reversed(ids) if verb in ("top", "down") else ids:
            before = _place_and_state(name)
            act(name)
            unchanged = verb in _UNCHANGED and _place_and_state(name) == before
            changed[name] = _UNCHANGED[verb] if unchanged else done
    finally:
        for name in ids:
            if name in changed:
                print(f"{entries.name_of(name)} {changed[name]}")


def _place_and_state(name: str) -> tuple[float, str] | None:
    entry = entries.read(name)
    return (entry.place, entry.state) if entry else None


def _queued(name: str) -> str:
    """A run's short name, or a part of only one id; `latest` is the newest. Raises Refused."""
    if name == "latest" and (listed := entries.all_entries()):
        return max(listed, key=lambda entry: entry.queued_at).run
    if (folder := run_numbers.named(name, runs_folder())) is not None:
        name = folder.name
    elif run_numbers.first_name_of(name, runs_folder()):  # another's id may contain the short name of a deleted run
        raise Refused(f"{name} has been deleted; gputui queue lists what is in the queue")
    files = [path.stem for path in sorted(entries.queue_folder().glob("[!.]*.json"))]
    matching = [run for run in files if run == name] or [run for run in files if name and name in run]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise Refused(f"{name} is not in the queue; gputui queue lists what is")
    raise Refused(f"{name!r} matches {len(matching)} queued runs ({', '.join(matching[:3])}); give more of the id")


@queue.command()
@one_of("show", install="Write the unit, and enable it.", remove="Disable the unit, and remove it.")
def service(form: str) -> None:
    """Show the systemd user unit that starts the queue after a restart of the machine."""
    if form == "show":
        print(user_service.text(), end="")
    elif form == "remove":
        gone = user_service.remove()
        print(f"{user_service.path()} {'is removed' if gone else 'does not exist'}")
    else:
        by_hand = user_service.install()
        print(f"{user_service.path()} is written" + (f"; now run: {by_hand}" if by_hand else " and enabled"))
        print("loginctl enable-linger lets it start with the machine, and not only when you log in.")


for word, (purpose, *_) in _CHANGES.items():
    runs = click.Argument(["names"], nargs=-1, required=True, metavar="RUN...", shell_complete=completion.queued_run)
    queue.add_command(click.Command(word, callback=partial(_change, verb=word), params=[runs], help=purpose))


@queue.command()
def pause() -> None:
    """Start no more runs; those that have begun continue."""
    if queue_settings.read().engine == queue_settings.SLURM:
        raise Refused(f"{SLURM_STARTS}\ngputui queue hold RUN... holds their jobs")
    entry_changes.pause()
    print(PAUSED)


@queue.command()
def start() -> None:
    """Start runs again after a pause."""
    was_paused = entries.is_paused()
    entry_changes.resume_queue()
    print("The queue starts runs." if entries.all_entries() else f"{GOES_ON if was_paused else ''}{EMPTY}")
