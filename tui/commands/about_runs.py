"""The commands about runs that were made, declared for the command line: `runs` with `rm`, `logs`, `note` and `tag`.

Deferred imports: a command pays only for what it uses.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..base.errors import Refused
from . import completion

STATES = ("running", "starting", "stopping", "done", "stopped", "failed", "oom", "timeout", "crashed")


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option(
    "--tag",
    "tags",
    metavar="TAG",
    multiple=True,
    shell_complete=completion.tag,
    help="Only runs with this tag; given several times, with all of them.",
)
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only runs in this state; given several times, in any of them.",
)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the latest N of them.")
@click.pass_context
def runs(context: click.Context, as_json: bool, tags: Sequence[str], states: Sequence[str], last: int | None) -> None:
    """List runs, the latest first."""
    if context.invoked_subcommand is not None:
        if as_json or tags or states or last:
            raise Refused(f"the filters of the list do not go with {context.invoked_subcommand!r}")
        return
    from . import runs as runs_command

    runs_command.show_runs(as_json, tags, states, last)


@runs.command("rm")
@click.argument("names", nargs=-1, metavar="RUN...", shell_complete=completion.ended_run)
@click.option("--latest", is_flag=True, help="Delete the latest run, too.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.pass_context
def runs_rm(context: click.Context, names: Sequence[str], latest: bool, yes: bool) -> None:
    """Delete runs for good, with their events, checkpoints and log.

    A run that is still running is not deleted.
    """
    from . import runs as runs_command

    context.exit(runs_command.remove_runs(names, latest, yes))


@click.command()
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended, and exit with its exit code.")
@click.option("-n", "--lines", "last", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.pass_context
def logs(context: click.Context, run: str, follow: bool, last: int | None) -> None:
    """Print the log of a run, by default of the latest.

    The log is what the training and gputui have printed.
    """
    from . import logs as logs_command

    context.exit(logs_command.show_log(run, follow, last))


@click.command()
@click.argument("run", shell_complete=completion.run)
@click.argument("text", nargs=-1)
def note(run: str, text: Sequence[str]) -> None:
    """Write a note on a run, or print it.

    Lists and screens show the note. Without TEXT it is printed; "" as the text removes it.
    """
    from . import runs as runs_command

    runs_command.note(run, text)


@click.command()
@click.argument("run", shell_complete=completion.run)
@click.argument("tags", nargs=-1, metavar="[TAG]...", shell_complete=completion.tag)
@click.option("-d", "--delete", "remove", is_flag=True, help="Remove these tags instead.")
def tag(run: str, tags: Sequence[str], remove: bool) -> None:
    """Give a run tags, or print them.

    `gputui runs --tag` and the filter of the screens find runs by their tags. Without TAG the tags are printed.
    """
    from . import runs as runs_command

    runs_command.tag(run, tags, remove)
