"""The options that several commands have, such as --preset and --set, --queue and --after, --cluster and --worker.
Deferred imports: the help and completion need neither presets nor clusters."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from ..base.errors import Refused, complain
from . import completion

Command = Callable[..., Any]
NEEDS_QUEUE = "--after RUN needs --queue"
SET_HELP = (
    "Set one option, overriding the preset; may be given several times. The group may be left out if the name is "
    "unique. A relative path is resolved from the current folder, one in a preset's file from that file's folder."
)

new_code_option = click.option("--code", type=click.Choice(["new", "copy"]),
    help="If your code has changed since the run was started: resume with the present code (new), "
    "or with the run's own copy (copy).")  # fmt: skip


JSON_OR_DETACH = "--json follows the run, and --detach does not: leave one of them out"
wait_option = click.option("--wait", is_flag=True, help="Wait until the devices are free, then start.")


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """A decorator that declares several options, in this order."""
    return lambda command: functools.reduce(lambda declared, option: option(declared), reversed(options), command)


queue_options = together(
    click.option("--queue", is_flag=True, help="Put it in the queue, which starts it when its devices are free."),
    click.option("--after", metavar="RUN", shell_complete=completion.run,
                 help="With --queue: not before this run or measurement has ended."),
)  # fmt: skip
# What a training without a screen takes.
training_options = together(
    click.option("--name", "run_name", metavar="NAME",
                 help="Call the run so instead of by its preset, in lists and as RUN."),
    click.option("--json", "as_json", is_flag=True, help="Print the run's events on stdout, one JSON object per line."),
    click.option("--detach", is_flag=True, help="Start the run, print its id and return at once."),
    click.option("--dry-run", is_flag=True,
                 help="Check the preset and print it as YAML with every value, without starting it."),
    click.option("--resume-if-any", is_flag=True,
                 help="Resume the newest run of this preset with these settings, if it can be resumed; else start a "
                 "new one."),
    queue_options,
    new_code_option,
    wait_option,
    click.option("--anyway", is_flag=True,
                 help="Start without a warning about other users of the same GPUs. With --queue: do not wait for "
                 "trainings outside of the queue that use the CPU."),
)  # fmt: skip
# The command gets --cluster as `workers`.
cluster_options = together(
    click.option("--cluster", "workers", metavar="HOST:PORT,...",
                 help="The workers of strategy.kind=multi_worker, the same list on each machine; the first is the "
                 "chief."),
    click.option("--worker", type=click.IntRange(min=0), metavar="N",
                 help="With --cluster: which of its addresses is this worker's, counted from 0."),
)  # fmt: skip


def one_of(default: str | None = None, **forms: str) -> Callable[[Command], Command]:
    """A flag for each form, with its help. The command gets the given one as `form`; two of them are refused."""

    def declare(command: Command) -> Command:
        @functools.wraps(command)
        def chosen(*arguments: Any, **options: Any) -> Any:
            names = [name for name in forms if options.pop(name)]
            if len(names) > 1:
                raise Refused(f"--{names[0]} and --{names[1]} do not go together")
            return command(*arguments, form=next(iter(names), default), **options)

        for name, text in reversed(forms.items()):
            click.option(f"--{name}", is_flag=True, help=text)(chosen)
        return chosen

    return declare


def preset_option(help: str, required: bool = False) -> Callable[[Command], Command]:
    return click.option("--preset", metavar="NAME_OR_PATH", required=required, help=help,
                        shell_complete=completion.preset, callback=preset_name)  # fmt: skip


def preset_name(context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    """`run:latest` becomes `run:ID`. Warns if the current folder has a preset file that may have been meant. Raises
    RunError if there is no run.
    """
    if name is None or context.resilient_parsing:
        return name
    from ...engine.presets.paths import RUN, twin

    if name == f"{RUN}latest":
        from ...engine import runs

        return RUN + runs.find("latest").id
    if remark := twin(name):
        complain(remark)
    return name


def settings_option(help: str = SET_HELP) -> Callable[[Command], Command]:
    return click.option(
        "--set", "settings", metavar="KEY=VALUE", multiple=True, help=help, shell_complete=completion.setting
    )


def join_cluster(workers: str | None, worker: int | None) -> None:
    """Make this process the worker `worker` (from 0) of the cluster from now on. Raises Refused."""
    if workers is None and worker is not None:
        raise Refused("--worker needs --cluster HOST1:PORT,HOST2:PORT, the addresses of all workers")
    if workers is not None:
        from ...engine.job import start_worker

        start_worker.use_command_line(workers, worker)


def refuse_contradictions(context: click.Context) -> None:
    """Refuse options of a training that contradict each other. Raises Refused."""
    used = {*given(context)}
    if "dry_run" in used and used & {"as_json", "detach", "resume_if_any", "wait", "anyway"}:
        raise Refused("--dry-run starts and resumes nothing: it goes with --preset, --set and --cluster alone")
    if used >= {"as_json", "detach"}:
        raise Refused(JSON_OR_DETACH)
    if "code" in used and "resume_if_any" not in used:
        code = context.params["code"]
        raise Refused(f"--code={code} is for a run that is resumed: gputui resume RUN, or --resume-if-any")
    if "queue" in used and used & {"as_json", "detach", "dry_run", "resume_if_any", "wait", "workers"}:
        raise Refused("--queue starts nothing now: it goes with --preset, --set, --after and --anyway alone")
    if "after" in used and "queue" not in used:
        raise Refused(NEEDS_QUEUE)


SECONDS = click.FloatRange(min=0.1, max=3600)


class Minutes(click.FloatRange):
    """A number of minutes above 0. click's own type takes nan and inf as well."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True, max=10_000_000)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        minutes = float(super().convert(value, param, ctx))
        if math.isnan(minutes):
            self.fail(f"{value} is not a number of minutes.", param, ctx)
        return minutes


MINUTES = Minutes()


def given(context: click.Context) -> list[str]:
    """Return the names of the parameters that the user has given on the command line, so not by defaults."""
    return [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
