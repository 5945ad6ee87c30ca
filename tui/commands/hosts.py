"""The command about several machines: `gputui hosts` shows them in one view, each read by ssh, which starts the same
command there with `--here`: it prints what there is to tell, line by line."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from ..base.errors import DONE, FAILED, Refused
from . import is_called

if is_called():
    from ...engine import __version__, presets
    from ...engine.files.values import to_json
    from ...engine.leases.gpu_use import GpuWatch
    from ...engine.leases.records import NotFree
    from ...engine.queue import entry_names
    from ...engine.text_table import Table
    from ..base.glyphs import takes_keys
    from ..printing.plain_tables import show_table
    from ..reading import hosts as reading
    from ..reading.run_list import RunList
    from ..show import show
    from .gpus import as_json_of
    from .runs import as_json_of_run

GPUS_SECONDS, REST_SECONDS = 0.2, 2.0  # between two readings of load and memory, and of all
NEWEST, ENDED = 20, 2  # runs that are looked at, and ended ones that are printed
FIRST_SECONDS, POLL_SECONDS = 20.0, 0.05  # for which a list without the screen waits for the hosts


@click.command()
@click.argument("names", nargs=-1, metavar="[HOST]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per host and line, without the screen.")
@click.option(
    "--queue", "to_queue", metavar="PRESET", help="Queue PRESET, with its code, on the host that starts it first."
)
@click.option("--here", is_flag=True, hidden=True, help="Print this machine's state until standard input ends.")
def hosts(names: Sequence[str], as_json: bool, to_queue: str | None, here: bool) -> int:
    """Each HOST is a name that ssh connects to without asking for a password; gputui must be installed there. Without
    names, those in hosts.yaml, next to the settings, are shown. Without a terminal the hosts are listed once.
    """
    if here:
        return _tell()
    try:
        chosen = reading.configured(names)
        preset = None if to_queue is None else presets.resolve(to_queue)
    except (ValueError, presets.PresetError) as fault:
        raise Refused(str(fault)) from None
    if preset is None and not as_json and takes_keys():
        return show(opens=("hosts", chosen), instead="gputui hosts --json prints their state")
    links = waiting = [reading.Link(host) for host in chosen]
    until = time.monotonic() + FIRST_SECONDS
    while waiting and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
        for link in waiting:
            link.look()
        waiting = [link for link in waiting if not (link.content or link.fault)]
    for link in links:
        link.close()
    if preset is not None:
        return _queue_on(links, preset)
    for link in links:
        if as_json:
            state = {"host": link.host.name, "fault": link.fault or None, "since": link.since or None}
            print(to_json(state | link.content))
    if not as_json:
        rows = [row for link in links for row in link.rows.values()]
        cells = [(row.name, row.busy, row.memory, row.state) for row in rows]
        show_table(Table(("host", "busy", "GiB", "state"), cells, right=(1, 2)))
    return FAILED if any(not link.content for link in links) else DONE


def _queue_on(links: Sequence[reading.Link], preset: presets.Preset) -> int:
    try:
        host = reading.first_to_start(links, preset).host
        print(f"{host.name}: {reading.send(preset, host)}")
    except (OSError, ValueError) as fault:
        raise Refused(f"{preset.name} is not queued: {fault}") from None
    return DONE


# ---- where ssh leads ------------------------------------------------------------------------------


def _tell() -> int:
    """Print a line for each change, until standard input ends or is silent, as nobody reads it any more."""
    watch, listed, heard_from = GpuWatch(), RunList(), sys.stdin.fileno()
    patience_seconds = 0 if os.isatty(heard_from) else int(reading.GIVE_UP_SECONDS)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends also a write that waits for ever
    signal.alarm(patience_seconds)
    now: dict[str, Any] = {"version": __version__, "gpus": []}
    printed: dict[str, Any] = {}
    rest_due = printed_at = 0.0
    while True:
        began = time.monotonic()
        try:
            if began >= rest_due:
                rest_due = began + REST_SECONDS
                now |= {"runs": _runs(listed), "queue": _queue(), "no_gpus": ""}
                now["gpus"] = [as_json_of(gpu) for gpu in watch.read()]
            else:
                seen = watch.glance()
                now["gpus"] = [gpu | seen.get(gpu["uuid"], {}) for gpu in now["gpus"]]
        except (NotFree, TimeoutError) as fault:
            now |= {"gpus": [], "no_gpus": str(fault)}
        changes = {name: value for name, value in now.items() if printed.get(name) != value}
        if changes or began - printed_at >= reading.BEAT_SECONDS:
            print(to_json(changes, short=True), flush=True)
            printed, printed_at = printed | changes, began
        until = began + (GPUS_SECONDS if now["gpus"] else REST_SECONDS)
        while (left := until - time.monotonic()) > 0:
            if select.select([heard_from], [], [], left)[0]:
                if not os.read(heard_from, reading.BLOCK):
                    watch.close()
                    return DONE
                signal.alarm(patience_seconds)


def _runs(listed: RunList) -> list[dict[str, Any]]:
    """The runs that are running, then the newest that have ended."""
    entries = [entry for entry in listed.read(NEWEST) if not entry.waiting]
    ended = [entry for entry in entries if not entry.is_active][:ENDED]
    return [as_json_of_run(entry) for entry in (*[entry for entry in entries if entry.is_active], *ended)]


def _queue() -> list[dict[str, Any]]:
    if not entry_names():
        return []
    from ...engine.queue import entries  # only if something is queued
    from .queue import rows_of  # the same

    return [row for entry, row in rows_of(entries.listing().entries) if entry.state in entries.WAITS]
