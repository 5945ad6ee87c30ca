"""The command `gputui`: its subcommands, options and exit codes. The subcommands are implemented in commands/.

Click parses the command line; everything that it or gputui refuses becomes one or two lines on stderr and exit code 2.

Deferred imports: a command pays only for what it uses.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from ..engine.interpreter import interpreter
from .base.errors import Refused, complain, guarded, interruptible
from .base.exit_codes import INTERRUPTED, WRONG
from .commands import about, about_presets, about_proofs, about_runs, cluster_options, completion, opening
from .commands.preset_options import preset_option, settings_option, tell_twin
from .show import need_a_terminal, show

new_code_option = click.option(
    "--code", type=click.Choice(["new"]), help="Resume with your code as it is now, if it was edited since."
)


@click.group(
    cls=opening.PresetOrCommand,
    invoke_without_command=True,
    epilog="RUN in the help of a command is an id that `gputui runs` lists, a part of one that no other run has, or "
    "`latest`.",
    subcommand_metavar="[PRESET | COMMAND [ARGS]...]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@preset_option("Train this preset without the screen; run:ID takes the options of that run.")
@settings_option()
@click.option("--json", "as_json", is_flag=True, help="Print the run's events on stdout, one JSON object per line.")
@click.option("--detach", is_flag=True, help="Start the run, print its id and return at once.")
@click.option(
    "--dry-run", is_flag=True, help="Check the preset and print it as YAML with every value, without starting it."
)
@click.option(
    "--resume-if-any",
    is_flag=True,
    help="Resume the newest run of this preset with these settings, if it can be resumed; else start a new one.",
)
@new_code_option
@cluster_options.given
@click.version_option(package_name="gputui", message="gputui %(version)s")
@click.pass_context
def cli(
    context: click.Context,
    preset: str | None,
    settings: Sequence[str],
    as_json: bool,
    detach: bool,
    dry_run: bool,
    resume_if_any: bool,
    code: str | None,
    workers: str | None,
    worker: int | None,
) -> None:
    """Train TensorFlow and Keras models: set every GPU option, watch the run, find and measure what makes it faster.

    \b
    gputui                                   open the form, to set options and start runs
    gputui fast.yaml                         open it on a preset, by its file or its name
    gputui --preset quickstart               train a shipped preset without the screen
    gputui --preset fast.yaml --set xla=true train your own with one option changed
    gputui diagnose --preset fast.yaml --apply -o better.yaml
                                             make it faster: measure remedies, save what helps
    gputui presets                           list the shipped presets and your own
    gputui options [KEY]                     explain the options for --set and presets
    gputui doctor                            check GPUs, driver and TensorFlow
    gputui completion bash                   set up tab completion; also for zsh and fish

    Runs go on when the screen is closed. The fit of any script becomes a run, too:

    \b
    from gputui.engine import Monitor
    model.fit(x, y, callbacks=[Monitor("my model")])
    """
    interpreter.notice = lambda python: complain(f"asking {python} what is installed for it ...")
    opens = context.invoked_subcommand == ""  # a preset was named; its command gets the settings, too
    without_screen = as_json or detach or dry_run or resume_if_any or workers is not None or worker is not None
    without_screen = without_screen or code is not None
    if context.invoked_subcommand is not None:
        if preset or (settings and not opens) or without_screen:
            if opens:
                given = "--resume-if-any needs" if resume_if_any else "--json, --detach and --dry-run need"
                given = "--code needs" if code else given
                given = "--cluster and --worker need" if workers is not None or worker is not None else given
                raise Refused(f"{given} no screen: gputui --preset NAME")
            raise Refused(f"--preset and what belongs to it do not go with the command {context.invoked_subcommand!r}")
        return
    if preset is None:
        if settings or without_screen:
            raise Refused("name a preset, such as gputui --preset quickstart; gputui presets lists them")
        context.exit(show())
    if dry_run and resume_if_any:
        raise Refused("--dry-run starts and resumes nothing: leave out --resume-if-any")
    if code and not resume_if_any:
        raise Refused("--code=new is for a run that is resumed: gputui resume RUN, or --resume-if-any")
    cluster_options.join(workers, worker)
    from .commands import train

    how = {"as_json": as_json, "detach": detach, "dry_run": dry_run, "resume_if_any": resume_if_any}
    how["new_code"] = code == "new"
    context.exit(train.run_preset(preset, settings, **how))


@click.command()
@click.argument("preset", shell_complete=completion.preset, callback=tell_twin)
@settings_option()
@cluster_options.given
@click.pass_context
def form_on(
    context: click.Context, preset: str, settings: Sequence[str], workers: str | None, worker: int | None
) -> None:
    """Open the form on a preset; settings become changes that are not saved."""
    if workers is not None or worker is not None:
        raise Refused(f"--cluster and --worker need no screen: gputui --preset {shlex.quote(preset)} --cluster ...")
    before = context.parent.params["settings"] if context.parent else ()
    state = opening.form_on(preset, [*before, *settings])
    need_a_terminal(f"gputui --preset {shlex.quote(preset)} trains")
    context.exit(show(state))


assert isinstance(cli, opening.PresetOrCommand)
cli.opens = form_on
cli.sections = {
    "Runs": ("runs", "watch", "logs", "stop", "resume", "compare", "history", "note", "tag"),
    "Speed": ("diagnose", "ab", "tune", "fit-batch", "scaling", "proof"),
    "Presets and your own code": ("presets", "options", "init", "guide", "export"),
    "gputui and this machine": ("doctor", "completion"),
}


@cli.command()
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option(
    "--replay", metavar="[SPEED]", is_flag=False, flag_value="1", help="Replay a recorded run, SPEED times as fast."
)
@click.pass_context
def watch(context: click.Context, run: str, replay: str | None) -> None:
    """Show a run in the live view, by default the latest."""
    from ..engine import runs as run_folders

    context.exit(show(watch=run_folders.find(run), replay_speed=_speed(replay)))


@cli.command()
@click.argument("run", shell_complete=completion.run)
def stop(run: str) -> None:
    """Stop a run gracefully.

    It finishes its step and writes its result. A second stop ends it at once.
    """
    from .commands import runs_and_presets

    runs_and_presets.stop_run(run)


@cli.command()
@click.argument("run", required=False, shell_complete=completion.run)
@click.option("--latest", is_flag=True, help="The newest run that can be resumed.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's events on stdout, one JSON object per line.")
@click.option("--detach", is_flag=True, help="Resume in the background: print the run's id and return at once.")
@new_code_option
@cluster_options.given
@click.pass_context
def resume(
    context: click.Context, run: str | None, latest: bool, as_json: bool, detach: bool, code: str | None,
    workers: str | None, worker: int | None,
) -> None:  # fmt: skip
    """Resume a run from its last checkpoint."""
    if (run is None) != latest:
        raise Refused("name one run to resume, or give --latest alone; gputui runs lists them")
    cluster_options.join(workers, worker)
    from .commands import train

    context.exit(train.resume_run(run, as_json=as_json, detach=detach, new_code=code == "new"))


@cli.command("history")
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option("--csv", "form", flag_value="csv", default=True, help="One row for each progress report (the default).")
@click.option("--jsonl", "form", flag_value="jsonl", help="The run's events, one JSON object per line.")
@click.option("--tensorboard", "form", flag_value="tensorboard", help="A folder for TensorBoard; takes some seconds.")
@click.option(
    "-o", "--output", metavar="PATH", help="The file, or TensorBoard's folder; by default stdout or a folder of RUN."
)
def history(run: str, form: str, output: str | None) -> None:
    """Export the figures of a run over time.

    By default those of the latest run are exported.
    """
    from .commands import history as history_command

    history_command.show_history(run, form, output)


@cli.command()
@click.argument("names", nargs=-1, metavar="RUN...", shell_complete=completion.run)
@click.option("--baseline", metavar="RUN", shell_complete=completion.run, help="Compare with this run, this time only.")
@click.option("--pin", metavar="RUN", shell_complete=completion.run, help="Make this run the baseline from now on.")
@click.option("--unpin", is_flag=True, help="Forget the pinned baseline.")
@click.option("--json", "form", flag_value="json", help="Print one JSON object.")
@click.option("--markdown", "form", flag_value="markdown", help="Print a Markdown table.")
@click.option("--csv", "form", flag_value="csv", help="Print comma-separated values.")
def compare(names: Sequence[str], baseline: str | None, pin: str | None, unpin: bool, form: str | None) -> None:
    """Show what differs between runs: options and figures.

    The figures are compared with those of the baseline: the pinned run or, if none is pinned, the first RUN.
    """
    from .commands import compare as compare_command

    if pin is None and not unpin:
        compare_command.show_comparison(names, form or "table", baseline)
    elif names or baseline is not None or form or (unpin and pin is not None):
        raise Refused("--pin RUN and --unpin cannot be combined with anything else; compare runs with a second command")
    elif pin is not None:
        compare_command.pin_baseline(pin)
    else:
        compare_command.unpin_baseline()


@cli.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.option("--deep", is_flag=True, help="Also import TensorFlow to see which GPUs it finds; takes up to 20 s.")
@click.option(
    "--python", metavar="PATH", help="The Python that trains, as run.python; by default GPUTUI_PYTHON or gputui's own."
)
@click.pass_context
def doctor(context: click.Context, as_json: bool, deep: bool, python: str | None) -> None:
    """Check GPUs, driver, TensorFlow and host for problems.

    The exit code is 1 if something prevents training on the GPUs, or on the CPU of a machine without GPUs.
    """
    from .commands import doctor as doctor_command

    context.exit(doctor_command.show_doctor(as_json, deep, python))


for command in (
    about.options, about.guide, about.completion, about_presets.presets, about_presets.export, about_presets.init,
    about_runs.runs, about_runs.logs, about_runs.note, about_runs.tag,
    about_proofs.ab, about_proofs.diagnose, about_proofs.tune, about_proofs.fit_batch, about_proofs.proof,
    about_proofs.scaling,
):  # fmt: skip
    cli.add_command(command)


def _speed(text: str | None) -> float | None:
    try:
        speed = None if text is None else float(text)
    except ValueError:
        raise Refused(f"--replay takes a number such as --replay=10, not {text!r}") from None
    if speed is not None and not 0 < speed < 1e6:
        raise Refused("--replay takes a number above 0")
    return speed


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code; never lets a traceback out."""
    interruptible()
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """The command's exit code."""
    return guarded(lambda: _code(arguments))


def _code(arguments: Sequence[str] | None) -> int:
    try:
        code: Any = cli.main(args=arguments, prog_name="gputui", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.UsageError as fault:
        words = fault.ctx.command_path.strip() if fault.ctx else "gputui"
        complain(f"{fault.format_message()}\n{words} --help shows what there is")
        return WRONG
    except click.ClickException as fault:
        complain(fault)
        return WRONG
