"""The commands about this machine: `gputui gpus` shows the GPUs and their users, `gputui lease` runs a program on GPUs
of its own, and `gputui doctor` examines the machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from ..base.errors import DONE, FAILED, Refused, clean, complain
from . import is_called

if is_called():
    from rich.table import Table as RichTable

    from ...engine.doctor import examine as examine_machine
    from ...engine.files.values import to_json
    from ...engine.finding import Finding, errors, worst_first
    from ...engine.gpu import VISIBLE
    from ...engine.interpreter import interpreter
    from ...engine.job import this_machine
    from ...engine.leases import gpu_use
    from ...engine.leases.gpu_use import HOW_IDLE, GpuUse, IdleNotes, Lease, Wish
    from ...engine.leases.records import NotFree
    from ...engine.options import gpu_choice
    from ...engine.queue import entry_names
    from ...engine.text_table import Table
    from ...engine.units import share, size
    from ..printing.plain_tables import console, show_table
    from ..wording.doctor import cells, conclusion, terminal

WAIT_SECONDS = 5.0
PER_USER = 3  # of the processes that a line names
HEAD: tuple[str, ...] = ("GPU", "model", "memory", "busy", "state")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per GPU and line; [] if there is none.")
def gpus(as_json: bool) -> None:
    """A GPU is free for device.visible=free:N if no process computes on it, its memory is not used, and nobody has
    leased it.
    """
    try:
        listed = IdleNotes().of(gpu_use.read())
    except NotFree as fault:
        if as_json:
            print("[]")
        raise Refused(f"{fault}\ngputui doctor says what to do; trainings run on the CPU") from None
    following = _following(listed)
    if as_json:
        if not listed:
            print("[]")
        for gpu in listed:
            print(to_json(as_json_of(gpu) | {"next": following.get(gpu.key)}))
        return
    if not listed:
        print("This machine has no NVIDIA GPU; trainings run on the CPU.")
        return
    rows, head = [_row(gpu) for gpu in listed], HEAD
    if following:
        from ...engine.queue.entries import name_of  # only if something is queued

        names = {uuid: name_of(run) for uuid, run in following.items()}
        rows, head = [(*row, names.get(gpu.key, "")) for gpu, row in zip(listed, rows, strict=True)], (*HEAD, "next")
    show_table(Table(head, rows, right=(0, 2, 3)))
    if any(process.idle_hours for gpu in listed for process in gpu.processes or ()):
        print(f"idle: {HOW_IDLE}")


def _following(gpus: Sequence[GpuUse]) -> dict[str, str]:
    """Return by a GPU's UUID the first waiting run or measurement that the queue could start there."""
    if not entry_names():
        return {}
    from ...engine.queue import entries, queue_devices, queue_settings  # only if something is queued

    seen = [entries.Device(gpu) for gpu in gpus]
    settings, at_once = queue_settings.read(), queue_devices.shown_at_once(seen)
    allowed = queue_devices.allowed(seen, settings)
    following: dict[str, str] = {}
    for entry in entries.all_entries():
        devices, number = queue_devices.usable(entry, allowed), queue_devices.count(entry, at_once)
        can_start = number <= min(len(devices), settings.most or number)
        if entry.state == "waiting" and not entry.is_of_slurm and can_start:
            for device in devices:
                following.setdefault(device.name, entry.run)
    return following


def _row(gpu: GpuUse) -> tuple[str, ...]:
    memory = f"{size(gpu.memory_used_bytes)} / {size(gpu.memory_total_bytes)}" if gpu.memory_total_bytes else "-"
    busy = "-" if gpu.busy is None else share(gpu.busy)
    model = (gpu.name or "GPU").removeprefix("NVIDIA ") + (" MIG" if gpu.instance is not None else "")
    return gpu.number, clean(model), memory, busy, clean(_state(gpu))


def _state(gpu: GpuUse) -> str:
    """Say that the GPU is free, or why not: the lease, a fault, or at most PER_USER of its processes."""
    why = gpu.why_not_free()
    if not why:
        if gpu.has_display:
            return f"free, with a display (limits: {size(gpu.limit_bytes)} and {share(gpu.limit_busy)})"
        return "free" if gpu.processes is not None else "free, by its memory: its processes are not visible from here"
    users = [
        f"{each} ({size(each.memory_used_bytes)})" if each.memory_used_bytes else str(each) for each in gpu.computing
    ]
    if gpu.leased:
        return why
    more = f" and {len(users) - PER_USER} more" if len(users) > PER_USER else ""
    return f"used by {', '.join(users[:PER_USER])}{more}" if users and not gpu.missing else why


def as_json_of(gpu: GpuUse) -> dict[str, Any]:
    holder, names = gpu.holder, ("pid", "user", "name", "type", "started", "memory_used_bytes")
    processes = None if gpu.processes is None else [
        {name: getattr(process, name) for name in names}
        | {"idle_seconds": None if process.idle_seconds is None else round(process.idle_seconds)}
        for process in gpu.processes
    ]  # fmt: skip
    return {
        "index": gpu.index, "instance": gpu.instance, "uuid": gpu.key, "name": gpu.name or "GPU",
        "memory_used_bytes": gpu.memory_used_bytes, "memory_total_bytes": gpu.memory_total_bytes, "busy": gpu.busy,
        "free": not gpu.why_not_free(),
        "why_not_free": gpu.why_not_free() or None,
        "processes": processes,
        "lease": None if holder is None or not gpu.leased else
        {"user": holder.user, "pid": holder.pid, "since": holder.since, "what": holder.what,
         "runs": len(holder.sharers) or 1, "per_gpu": holder.per_gpu},
        "stuck": (holder.stuck or None) if holder else None,
    }  # fmt: skip


# ---- lease ----------------------------------------------------------------------------------------


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("gpus", metavar="N[@KIND]")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--wait", is_flag=True, help="Wait until N GPUs are free.")
def lease(gpus: str, command: Sequence[str], wait: bool) -> int:
    """No other user of gputui takes them until the program ends.

    \b
    gputui lease 1 -- python train.py            a GPU that nobody uses
    gputui lease --wait 2@40GB -- torchrun ...   two with 40 GB or more, as soon as they are free

    The program finds them in CUDA_VISIBLE_DEVICES. The exit code is that of the program.
    """
    choice = gpu_choice.parse(f"free:{gpus}")
    if choice is None:
        raise Refused(f"{gpus!r} is no number of GPUs; write 1, 2@24GB or 1@A100")
    command = command[1:] if command[:1] == ("--",) else command
    if command and shutil.which(command[0]) is None:
        raise Refused(f"there is no program {command[0]}")
    if not command:
        raise Refused("name the program: gputui lease 1 -- python train.py")
    wish = Wish.of(choice, this_machine.read())
    if len(wish.names) < choice.count:
        raise Refused(
            f"{choice.kind} cannot be leased: this process may use {len(wish.names)} such; gputui gpus lists all"
        )
    last = ""
    while True:
        try:
            chosen, leases = gpu_use.choose(wish, os.path.basename(command[0]), tell=complain)
            break
        except NotFree as fault:
            if not wait:
                raise Refused(f"{fault}\n--wait starts when that has changed") from None
            if str(fault) != last:
                complain(f"waiting: {fault}")
                last = str(fault)
            time.sleep(WAIT_SECONDS)
    complain(f"on GPU {', '.join(gpu.number for gpu in chosen)}")
    try:
        return _run(command, ",".join(gpu.key for gpu in chosen), leases)
    finally:
        for line in gpu_use.give_back(leases):
            complain(line)


def _run(command: Sequence[str], uuids: str, leases: Sequence[Lease]) -> int:
    """The program inherits the locks of the `leases`, so that it keeps its GPUs if this process is killed."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # the signals that came before there was a program

    def pass_on(number: int, _frame: object) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    signal.signal(signal.SIGINT, lambda *_: None)  # a terminal sends it to the program as well
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # the program would ignore it too, as after nohup
            signal.signal(number, pass_on)
    try:
        process = subprocess.Popen(command, env=os.environ | {VISIBLE: uuids, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
                                   pass_fds=[held.lock.fd for held in leases])  # fmt: skip
    except OSError as fault:
        raise Refused(f"{command[0]}: {fault.strerror}") from None
    for held in leases:
        held.write(os.path.basename(command[0]), pid=process.pid)
    for missed in early:
        process.send_signal(missed)
    code = process.wait()
    return code if code >= 0 else 128 - code


STYLES = {"ok": "green", "note": "dim", "warning": "yellow", "error": "bold red"}


def examine(deep: bool, python: str | None = None) -> list[Finding]:
    """Return all findings, the worst first. `deep` also imports TensorFlow, of `python` or the Python that trains."""
    return worst_first([*examine_machine(deep, python), *terminal(os.environ, shutil.get_terminal_size())])


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.option("--deep", is_flag=True, help="Also import TensorFlow to see which GPUs it finds; takes up to 20 s.")
@click.option(
    "--python", metavar="PATH", help="The Python that trains, as run.python; by default GPUTUI_PYTHON or gputui's own."
)
def doctor(as_json: bool, deep: bool, python: str | None) -> int:
    """The exit code is 1 if something prevents training on the GPUs, or on the CPU of a machine without GPUs."""
    if python is not None and not python.strip():
        raise Refused("--python needs the path of a Python, or of the folder of an environment that has one")
    findings = examine(deep, interpreter.file_of(python) if python else None)
    blocked = bool(errors(findings))
    if as_json:
        names = ("level", "about", "what", "remedy")
        rows = [{name: getattr(finding, name) for name in names} for finding in findings]
        print(to_json({"blocked": blocked, "findings": rows}))
    else:
        if sys.stdout.isatty():
            table = RichTable(box=None, pad_edge=False, show_header=False)
            for no_wrap in (True, True, False):
                table.add_column(no_wrap=no_wrap)
            for finding in findings:
                table.add_row(*cells(finding, STYLES[finding.level], "dim"))
            console().print(table)
        else:
            for finding in findings:
                remedy = f"\n{'':21}{clean(finding.remedy)}" if finding.remedy else ""
                print(f"{finding.level:<8} {finding.about:<11} {clean(finding.what)}{remedy}")
        print(conclusion(findings))
    return FAILED if blocked else DONE
