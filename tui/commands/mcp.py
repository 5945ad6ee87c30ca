"""The command `gputui mcp`: tools for language models, by the Model Context Protocol over stdin and stdout, through its
official library (an extra). A tool does what a command does, in this process: it answers what `--json` prints, and what
the command refuses is the tool's error, in the same words.
Deferred imports: mcp is imported only by this command."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import click

from ..base.errors import WRONG, Refused, complain, report
from . import is_called

if is_called():
    from ...engine import __version__
    from ...engine import runs as run_folders
    from ...engine.files.values import to_json
    from ...engine.proof import folder, proof_start, request
    from ...engine.proof.request import ProofError
    from ...engine.queue import adding
    from ..reading.run_list import entry_of, measured
    from . import measuring, runs

REQUIREMENT = "mcp>=2,<3"
MOST_EVENTS = 200  # in an answer
READINGS = ("gpu", "host", "allocator", "input_stages")  # types of events
OF_RUN, OF_RESULT = ("id", "name", "state", "title", "note", "tags"), ("samples_per_second", "metrics", "learning")
OF_RECORD = ("kind", "state", "preset_name", "gain_total", "changes_kept", "error")
State = Literal["waiting", "running", "starting", "stopping", "done", "stopped", "failed", "oom", "timeout", "crashed"]
Answer = dict[str, Any]

INSTRUCTIONS = """\
gputui trains TensorFlow and Keras models on this machine, says what limits their speed, and proves by measurements
which changes of options make them faster. A preset is a YAML file with the options of a training. To make a training
faster: diagnose_run, propose_change, prove_change, then show_measurement until its state is done. A change is faster
only if pairs of trials have proved it; if they are undecided, say so. Only what is proved can be saved, by save_proved,
in a new file."""

_group: click.Group
_one_at_a_time = threading.Lock()  # the standard output of a command is that of the process


@click.command()
@click.pass_context
def mcp(context: click.Context) -> None:
    """The program that runs the model starts this command, and talks to it over stdin and stdout; nothing listens on
    the network. Its tools list, follow and diagnose runs, check a change of a preset, prove it by pairs of trials, save
    what is proved in a new file, queue presets, and stop runs. No tool overwrites a preset.

    \b
    {"mcpServers": {"gputui": {"command": "gputui", "args": ["mcp"]}}}
    """
    global _group
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError:
        raise Refused(f"gputui mcp needs the package mcp; pip install '{REQUIREMENT}' adds it") from None
    if sys.stdin.isatty():
        raise Refused("gputui mcp talks to a program: enter it as an MCP server where your language model runs")
    _group = context.find_root().command  # type: ignore[assignment]
    server = MCPServer("gputui", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")
    for tool in (*READ, *ACT):
        server.tool(annotations=ToolAnnotations(read_only_hint=tool in READ, destructive_hint=False))(tool)
    server.run()


def _done(work: Callable[[], Any]) -> tuple[Any, str, list[str]]:
    """Return what `work` returns and prints, and its remarks. Raises ToolError with what a command refuses."""
    from mcp.server.mcpserver.exceptions import ToolError

    printed, remarks = StringIO(), StringIO()
    with _one_at_a_time, redirect_stdout(printed), redirect_stderr(remarks):
        try:
            value = work()
        except click.ClickException as fault:
            complain(fault.format_message())
            value = WRONG
        except Exception as fault:  # noqa: BLE001 - as for a command
            value = report(fault)
    complaints = remarks.getvalue().strip()
    if isinstance(value, int) and value and not printed.getvalue():  # an exit code without an answer
        raise ToolError(complaints)
    return value, printed.getvalue().strip(), complaints.splitlines()


def _text(name: str, *words: str) -> Answer:
    """Run a command, and return what it prints by this name."""
    _, text, remarks = _done(lambda: _group.main(args=list(words), prog_name="gputui", standalone_mode=False))
    return {name: text, "remarks": remarks}


def _rows(name: str, *words: str) -> Answer:
    answer = _text(name, *words)
    return answer | {name: [json.loads(line) for line in answer[name].splitlines()]}


def _object(*words: str) -> Answer:
    answer = _text("object", *words)
    return {**json.loads(answer["object"]), "remarks": answer["remarks"]}


def _preset(preset: str, settings: Sequence[str]) -> list[str]:
    return [f"--preset={preset}", *(f"--set={setting}" for setting in settings)]


# ---- tools that read: their docstrings are for the model -------------------------------------------


def list_runs(last: int = 10, state: State | None = None, tag: str | None = None) -> Answer:
    """List the newest runs with their speed in samples/s and last metrics, also only those in a state or with a tag."""
    chosen = [*([f"--state={state}"] if state else []), *([f"--tag={tag}"] if tag else [])]
    answer = _rows("runs", "runs", "--json", f"--last={last}", *chosen)
    for row in answer["runs"]:
        result = row["result"]
        brief = {name: row[name] for name in OF_RUN} | {name: result.get(name) for name in OF_RESULT}
        row.clear()
        row.update(brief)
    return answer


def run_state(run: str) -> Answer:
    """Return the state of a run, its newest progress while it trains, and its result or error when it has ended. A run
    is named by its id, its short name such as r42, or `latest`."""
    row, _, remarks = _done(lambda: runs.as_json_of_run(measured(entry_of(run_folders.find(run)))))
    return {**json.loads(to_json(row)), "remarks": remarks}


def events_since(run: str, since: str = "0", readings: bool = False) -> Answer:
    """Return the newest 200 events of a run after a place, and its state. Begin with "0", and give the `since` of the
    answer the next time. With `readings`, also those of GPUs, host, memory and input pipeline."""
    answer = _rows("events", "history", "--jsonl", f"--since={since}", "--", run)
    *events, end = answer["events"]
    events = [event for event in events if readings or event["type"] not in READINGS]
    left_out = max(0, len(events) - MOST_EVENTS)
    place = {"since": end["since"], "state": end["state"]}
    return answer | {"events": events[left_out:], "left_out": left_out} | place


def diagnose_run(run: str) -> Answer:
    """Say by the recorded figures of a run what limits its speed, with the evidence and the changes that could help."""
    return _object("diagnose", "--json", "--", run)


def doctor() -> Answer:
    """Examine the machine: GPUs, driver, TensorFlow and host. A finding has a level, what was found, and a remedy."""
    return _object("doctor", "--json")


def list_presets() -> Answer:
    """List the presets that ship with gputui and those of the user, with their files."""
    return _rows("presets", "presets", "list", "--json")


def explain_options(words: list[str]) -> Answer:
    """Explain options by their keys, such as batch_size, or those that words such as "slow input" are about."""
    return _rows("options", "options", "--json", "--", *words)


def propose_change(preset: str, settings: list[str]) -> Answer:
    """Check a change of a preset (its name, file, or run:RUN) against the machine: `settings` are texts KEY=VALUE. The
    answer is the whole changed preset; nothing is saved or trained. What does not fit is an error."""
    return _text("preset", *_preset(preset, settings), "--dry-run")


def show_measurement(measurement: str, details: bool = False) -> Answer:
    """Return the state of a measurement by its id or `latest`, its answer in words, and the changes that it has proved
    (changes_kept). With `details`, also the record of all trials."""
    record = _object("proof", "--json", "--", measurement)
    brief = {name: record.get(name) for name in OF_RECORD} | _text("answer", "proof", "--", measurement)
    return brief | ({"record": record} if details else {})


READ = (
    list_runs, run_state, events_since, diagnose_run, doctor, list_presets, explain_options, propose_change,
    show_measurement,
)  # fmt: skip


# ---- tools that act --------------------------------------------------------------------------------


def prove_change(preset: str, settings: Sequence[str] = (), repeats: int = 3, in_queue: bool = False) -> Answer:
    """Measure by pairs of trials whether a change (texts KEY=VALUE) makes a preset faster; without `settings`, try the
    remedies of its diagnosis one by one. Returns the measurement's id at once. It is refused while others train on the
    same devices; with `in_queue` it waits for them."""

    def begin() -> Answer:
        if settings:
            asked = request.of_change(preset, settings, repeats=repeats)
        else:
            asked = request.of_preset("loop", preset, (), repeats=repeats, ablation_repeats=1)
        proof = adding.queue_proof(asked).run if in_queue else proof_start.begin(asked)[0].id
        return {"measurement": proof, "plan": measuring.budget(asked)}

    value, _, remarks = _done(begin)
    return {**value, "remarks": remarks}


def save_proved(measurement: str, file: str) -> Answer:
    """Save the preset with the changes that a measurement has proved in a new file, NAME.yaml. A change that was not
    proved is not saved, and no file is overwritten."""

    def refuse() -> None:
        if not (proof := folder.find(measurement)).record.changes_kept:
            raise ProofError(f"{proof.id} has proved no change: there is nothing to save")

    _done(refuse)
    return _text("saved", "proof", f"--output={Path(file).expanduser().absolute()}", "--", measurement)


def queue_preset(preset: str, settings: Sequence[str] = ()) -> Answer:
    """Put a training of a preset into the queue, which starts it when its devices are free. Returns its run's id."""
    return _text("run", *_preset(preset, settings), "--queue")


def stop_run(run: str) -> Answer:
    """Ask a run to stop: it finishes its step, and writes its checkpoint and result. A second stop ends it at once. One
    that waits is taken out of the queue."""
    return _text("said", "stop", "--", run)


def stop_measurement(measurement: str) -> Answer:
    """Ask a measurement to stop after its present trial; a second time, at once."""
    return _text("said", "proof", "--stop", "--", measurement)


ACT = (prove_change, save_proved, queue_preset, stop_run, stop_measurement)
