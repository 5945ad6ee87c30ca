"""The commands about runs, declared for the command line: list, watch, stop, resume, compare and export them.
Deferred imports: a command pays only for what it uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ...engine.follow_targets import FOLLOW_TARGETS
from ...engine.runs.run import STATE_LABELS
from .. import commands
from ..base.errors import Refused
from ..show import show
from . import completion
from .shared_options import (
    JSON_OR_DETACH,
    cluster_options,
    join_cluster,
    new_code_option,
    one_of,
    queue_options,
    wait_option,
)

STATES = ("waiting", "running", "starting", "stopping", "done", "stopped", "failed", "oom", "timeout", "crashed")


class State(click.Choice[str]):
    """A state of a run. The words of its result, `ok` and `error`, are understood as well."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
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
    """List runs, the latest first."""
    if context.invoked_subcommand is not None:
        if as_json or tags or states or last:
            raise Refused(f"the filters of the list do not go with {context.invoked_subcommand!r}")
        return
    commands.runs.show_runs(as_json, tags, states, last)


@runs.command("rm")
@click.argument("names", nargs=-1, metavar="RUN...", shell_complete=completion.ended_run)
@click.option("--latest", is_flag=True, help="Delete the latest run, too.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.pass_context
def runs_rm(context: click.Context, names: Sequence[str], latest: bool, yes: bool) -> None:
    """Delete runs for good, with their events, checkpoints and log.

    A run that has not ended is not deleted.
    """
    context.exit(commands.runs.remove_runs(names, latest, yes))


@click.command()
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option("-f", "--follow", is_flag=True, help="Continue until the run has ended, and exit with its exit code.")
@click.option("-n", "--lines", "last", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.pass_context
def logs(context: click.Context, run: str, follow: bool, last: int | None) -> None:
    """Print the log of a run, by default of the latest.

    The log is what the training and gputui have printed.
    """
    context.exit(commands.runs.show_log(run, follow, last))


@click.command()
@click.argument("run", shell_complete=completion.run)
@click.argument("text", nargs=-1)
def note(run: str, text: Sequence[str]) -> None:
    """Write a note on a run, or print it.

    Lists and screens show the note. Without TEXT it is printed; "" as the text removes it.
    """
    commands.runs.note(run, text)


@click.command()
@click.argument("run", shell_complete=completion.run)
@click.argument("tags", nargs=-1, metavar="[TAG]...", shell_complete=completion.tag)
@click.option("-d", "--delete", "remove", is_flag=True, help="Remove these tags instead.")
def tag(run: str, tags: Sequence[str], remove: bool) -> None:
    """Give a run tags, or print them.

    `gputui runs --tag` and the filter of the screens find runs by their tags. Without TAG the tags are printed.
    """
    commands.runs.tag(run, tags, remove)


@click.command()
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option(
    "--replay", metavar="[SPEED]", is_flag=False, flag_value="1", help="Replay a recorded run, SPEED times as fast."
)
@click.pass_context
def watch(context: click.Context, run: str, replay: str | None) -> None:
    """Show a run in the live view, by default the latest."""
    from ...engine import runs as run_folders

    context.exit(show(watch=run_folders.find(run), replay_speed=_speed(replay)))


def _speed(text: str | None) -> float | None:
    try:
        speed = None if text is None else float(text)
    except ValueError:
        raise Refused(f"--replay takes a number such as --replay=10, not {text!r}") from None
    if speed is not None and not 0 < speed < 1e6:
        raise Refused("--replay takes a number above 0")
    return speed


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="RUN...", shell_complete=completion.run)
@click.pass_context
def stop(context: click.Context, names: Sequence[str]) -> None:
    """Stop runs gracefully.

    They finish their step and write their result. A second stop ends them at once.
    """

    context.exit(commands.runs.stop_runs(names))


@click.command()
@click.argument("run", required=False, shell_complete=completion.run)
@click.option("--latest", is_flag=True, help="The newest run that can be resumed.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's events on stdout, one JSON object per line.")
@click.option("--detach", is_flag=True, help="Resume in the background: print the run's id and return at once.")
@queue_options
@new_code_option
@wait_option
@cluster_options
@click.pass_context
def resume(
    context: click.Context, run: str | None, latest: bool, as_json: bool, detach: bool, queue: bool, after: str | None,
    code: str | None, wait: bool, workers: str | None, worker: int | None,
) -> None:  # fmt: skip
    """Resume a run from its last checkpoint."""
    if (run is None) != latest:
        raise Refused("name one run to resume, or give --latest alone; gputui runs lists them")
    if queue and (as_json or detach or wait or workers is not None):
        raise Refused("--queue resumes nothing now: leave out --json, --detach, --wait and --cluster")
    if after is not None and not queue:
        raise Refused("--after RUN needs --queue")
    if as_json and detach:
        raise Refused(JSON_OR_DETACH)
    join_cluster(workers, worker)
    if queue:
        context.exit(commands.queue.add_resumed(run, after, code))
    context.exit(commands.train.resume_run(run, as_json=as_json, detach=detach, code=code, wait=wait))


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.pass_context
def queue(context: click.Context, as_json: bool) -> None:
    """Show the queue, or change its order.

    `gputui --preset NAME --queue` puts a run in it. Runs start by themselves, in the order of the queue, when their
    devices are free, also after you have logged out.
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise Refused(f"--json does not go with {context.invoked_subcommand!r}")
        return
    commands.queue.show_queue(as_json)


_OF_QUEUED = {
    "top": "Move waiting runs to the top.",
    "up": "Move waiting runs up by one place.",
    "down": "Move waiting runs down by one place.",
    "hold": "Do not start these runs until they are released.",
    "release": "Start these held runs in their turn.",
    "rm": "Take waiting runs out of the queue. Those that have never begun end as stopped.",
}
_OF_QUEUE = {"pause": "Start no more runs; those that have begun continue.", "start": "Start runs again after a pause."}


def _change_queue(verb: str) -> None:
    @click.argument("names", nargs=-1, required=True, metavar="RUN...", shell_complete=completion.queued_run)
    def change(names: Sequence[str]) -> None:
        commands.queue.change(verb, names)

    queue.command(verb, help=_OF_QUEUED[verb])(change)


def _pause_queue(verb: str) -> None:
    def change() -> None:
        commands.queue.pause_or_start(verb)

    queue.command(verb, help=_OF_QUEUE[verb])(change)


@queue.command("service")
@one_of("show", install="Write the unit, and enable it.", remove="Disable the unit, and remove it.")
def queue_service(form: str) -> None:
    """Show the systemd user unit that starts the queue after a restart of the machine."""
    commands.queue.service(form)


for word in _OF_QUEUED:
    _change_queue(word)
for word in _OF_QUEUE:
    _pause_queue(word)


@click.command("history")
@click.argument("run", default="latest", shell_complete=completion.run)
@one_of(
    "csv",
    csv="One row for each progress report (the default).",
    jsonl="The run's events, one JSON object per line.",
    tensorboard="A folder for TensorBoard.",
    schema="The JSON Schema of events and of result.json.",
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="The file (default, and -: stdout); with --tensorboard the folder (default: ./RUN, named after the run's id).",
)
def history(run: str, form: str, output: str | None) -> None:
    """Export the figures of a run over time.

    By default those of the latest run are exported.
    """
    commands.runs.show_history(run, form, output)


@click.command("follow")
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option(
    "--to", "targets", type=click.Choice(FOLLOW_TARGETS), multiple=True, help="Where to write; may be repeated."
)
@click.option("--detach", is_flag=True, help="Return at once; the followers go on in the background.")
@click.pass_context
def follow(context: click.Context, run: str, targets: Sequence[str], detach: bool) -> None:
    """Write a run's figures to TensorBoard, MLflow or others, live.

    It can be started before, during and after the run, and stopped at any time: it goes on from its place. Without
    --to, the followers of the run are listed.
    """
    context.exit(commands.runs.follow_run(run, targets, detach))


@click.command()
@click.argument("names", nargs=-1, metavar="RUN...", shell_complete=completion.run)
@click.option("--baseline", metavar="RUN", shell_complete=completion.run, help="Compare with this run, this time only.")
@click.option("--pin", metavar="RUN", shell_complete=completion.run, help="Make this run the baseline from now on.")
@click.option("--unpin", is_flag=True, help="Remove the pinned baseline.")
@one_of(json="Print one JSON object.", markdown="Print a Markdown table.", csv="Print comma-separated values.")
def compare(names: Sequence[str], baseline: str | None, pin: str | None, unpin: bool, form: str | None) -> None:
    """Show what differs between runs: options and figures.

    The figures are compared with those of the baseline: the pinned run or, if none is pinned, the first RUN.
    """
    if pin is None and not unpin:
        commands.compare.show_comparison(names, form or "table", baseline)
    elif names or baseline is not None or form or (unpin and pin is not None):
        raise Refused("--pin RUN and --unpin cannot be combined with anything else; compare runs with a second command")
    elif pin is not None:
        commands.compare.pin_baseline(pin)
    else:
        commands.compare.unpin_baseline()
