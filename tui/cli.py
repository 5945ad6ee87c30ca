"""The command `gputui`: its subcommands, options and exit codes. The subcommands are implemented in commands/.

Click parses the command line; everything that it or gputui refuses becomes one or two lines on stderr and exit code 2.

Deferred imports: a command pays only for what it uses.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..engine.proof import LEAST_REPEATS, TRIAL_SECONDS
from ..engine.system.gc_freeze import exempt_from_gc
from .base.errors import INTERRUPTED, UNHEARD, WRONG, Refused, complain, discard_output, open_closed_streams, report
from .commands import about, completion

if TYPE_CHECKING:
    from ..engine.runs import Run

Command = Callable[..., Any]
SECONDS = click.FloatRange(min=0.1, max=3600)
ANYWAY_HELP = "Measure even if another gputui run uses the same devices; the figures may be wrong."
SET_HELP = (
    "Set one option, overriding the preset; may be given several times. The group may be left out where the name is "
    "unique. A relative path is resolved from the current folder, one in a preset's file from that file's folder."
)


def _preset(help: str, required: bool = False) -> Callable[[Command], Command]:
    return click.option(
        "--preset", metavar="NAME_OR_PATH", required=required, help=help, shell_complete=completion.preset
    )


def _settings(help: str = SET_HELP) -> Callable[[Command], Command]:
    return click.option(
        "--set", "settings", metavar="KEY=VALUE", multiple=True, help=help, shell_complete=completion.setting
    )


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@_preset("Train this preset without the screen.")
@_settings()
@click.option("--json", "as_json", is_flag=True, help="Print the run's events on stdout, one JSON object per line.")
@click.option("--detach", is_flag=True, help="Start the run, print its id and return at once.")
@click.option(
    "--dry-run", is_flag=True, help="Check the preset and print it as YAML with every value, without starting it."
)
@click.version_option(package_name="gputui", message="gputui %(version)s")
@click.pass_context
def cli(
    context: click.Context, preset: str | None, settings: Sequence[str], as_json: bool, detach: bool, dry_run: bool
) -> None:
    """Train TensorFlow and Keras models: set every GPU option, watch the run, find and measure what makes it faster.

    \b
    gputui                                   open the form, to set options and start runs
    gputui --preset quickstart               train a shipped preset without the screen
    gputui --preset fast.yaml --set xla=true train your own with one option changed
    gputui presets                           list the shipped presets and your own
    gputui options [KEY]                     explain the options for --set and presets
    gputui completion bash                   set up tab completion; also for zsh and fish
    """
    if context.invoked_subcommand is not None:
        if preset or settings or as_json or detach or dry_run:
            raise Refused(f"--preset and what belongs to it do not go with the command {context.invoked_subcommand!r}")
        return
    if preset is None:
        if settings or as_json or detach or dry_run:
            raise Refused("name a preset, such as gputui --preset quickstart; gputui presets lists them")
        context.exit(_open_screen())
    from .commands import train

    context.exit(train.run_preset(preset, settings, as_json=as_json, detach=detach, dry_run=dry_run))


@cli.command()
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option(
    "--replay", metavar="[SPEED]", is_flag=False, flag_value="1", help="Replay a recorded run, SPEED times as fast."
)
@click.pass_context
def watch(context: click.Context, run: str, replay: str | None) -> None:
    """Show RUN in the live view, running or finished; by default the latest."""
    from ..engine import runs as run_folders

    context.exit(_open_screen(watch=run_folders.find(run), replay_speed=_speed(replay)))


@cli.command()
@_preset("The preset to export.", required=True)
@_settings()
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout.")
def export(preset: str, settings: Sequence[str], output: str | None) -> None:
    """Export a preset as a plain TensorFlow script that trains the same without gputui."""
    from .commands import runs_and_presets

    runs_and_presets.export_preset(preset, settings, output)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def runs(as_json: bool) -> None:
    """List runs, the latest first."""
    from .commands import runs_and_presets

    runs_and_presets.show_runs(as_json)


@cli.command()
@click.argument("run", shell_complete=completion.run)
def stop(run: str) -> None:
    """Stop RUN gracefully: it finishes its step and writes its result. A second time ends it at once."""
    from .commands import runs_and_presets

    runs_and_presets.stop_run(run)


@cli.command()
@click.argument("run", shell_complete=completion.run)
@click.option("--json", "as_json", is_flag=True, help="Print the run's events on stdout, one JSON object per line.")
@click.option("--detach", is_flag=True, help="Resume in the background: print the run's id and return at once.")
@click.pass_context
def resume(context: click.Context, run: str, as_json: bool, detach: bool) -> None:
    """Resume RUN from its last checkpoint."""
    from .commands import train

    context.exit(train.resume_run(run, as_json=as_json, detach=detach))


@cli.command("history")
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option("--csv", "form", flag_value="csv", default=True, help="One row for each progress report (the default).")
@click.option("--jsonl", "form", flag_value="jsonl", help="The run's events, one JSON object per line.")
@click.option("--tensorboard", "form", flag_value="tensorboard", help="A folder for TensorBoard; takes some seconds.")
@click.option(
    "-o", "--output", metavar="PATH", help="The file, or TensorBoard's folder; by default stdout or a folder of RUN."
)
def history(run: str, form: str, output: str | None) -> None:
    """Export the figures of RUN over time; by default of the latest run."""
    from .commands import history as history_command

    history_command.show_history(run, form, output)


@cli.group(invoke_without_command=True)
@click.pass_context
def presets(context: click.Context) -> None:
    """List, show and check presets."""
    if context.invoked_subcommand is None:
        from .commands import runs_and_presets

        runs_and_presets.list_presets()


@presets.command("list")
def presets_list() -> None:
    """The presets that ship and your own."""
    from .commands import runs_and_presets

    runs_and_presets.list_presets()


@presets.command("show")
@click.argument("name", shell_complete=completion.preset)
def presets_show(name: str) -> None:
    """The resolved preset NAME, every value explicit."""
    from .commands import runs_and_presets

    runs_and_presets.show_preset(name)


@presets.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=completion.preset)
@click.pass_context
def presets_check(context: click.Context, files: Sequence[str]) -> None:
    """Check preset files, and the options in them against this machine."""
    from .commands import runs_and_presets

    context.exit(runs_and_presets.check_presets(files))


@presets.command("schema")
def presets_schema() -> None:
    """The JSON Schema of presets, for editors."""
    from .commands import runs_and_presets

    runs_and_presets.show_schema()


@cli.command()
@click.argument("names", nargs=-1, metavar="RUN...", shell_complete=completion.run)
@click.option("--baseline", metavar="RUN", shell_complete=completion.run, help="Compare with this run, this time only.")
@click.option("--pin", metavar="RUN", shell_complete=completion.run, help="Make this run the baseline from now on.")
@click.option("--unpin", is_flag=True, help="Forget the pinned baseline.")
@click.option("--json", "form", flag_value="json", help="Print one JSON object.")
@click.option("--markdown", "form", flag_value="markdown", help="Print a Markdown table.")
@click.option("--csv", "form", flag_value="csv", help="Print comma-separated values.")
def compare(names: Sequence[str], baseline: str | None, pin: str | None, unpin: bool, form: str | None) -> None:
    """Compare runs side by side: the options that differ, and the figures relative to the baseline.

    The baseline comes first: the pinned run, or the first that is named where none is pinned.
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


@cli.command("ab")
@_preset("The preset to measure with and without the change.", required=True)
@_settings("The change to measure; several settings are measured as one change.")
@click.option(
    "--repeats", type=click.IntRange(min=LEAST_REPEATS), default=LEAST_REPEATS, show_default=True,
    help="Number of pairs of trials.",
)
@click.option(
    "--seconds", type=SECONDS, default=TRIAL_SECONDS, show_default=True, help="Measured seconds of each trial."
)
@click.option("--json", "as_json", is_flag=True, help="Print the proof as one JSON object on stdout, at the end.")
@click.option("--anyway", is_flag=True, help=ANYWAY_HELP)
@click.pass_context
def ab(
    context: click.Context,
    preset: str,
    settings: Sequence[str],
    repeats: int,
    seconds: float,
    as_json: bool,
    anyway: bool,
) -> None:
    """Measure a preset with and without a change, in alternating trials, each in a new process.

    \b
    gputui ab --preset quickstart --set steps_per_execution=16
    gputui ab --preset mine.yaml --set device.visible=none         GPU against CPU
    """
    from .commands import proof as proof_command

    context.exit(proof_command.measure_change(preset, settings, repeats, seconds, as_json, anyway))


@cli.command("diagnose")
@click.argument("run", required=False, shell_complete=completion.run)
@_preset("Measure this preset, with and without its input.")
@_settings()
@click.option("--apply", "apply", is_flag=True, help="Try the remedies one by one, and keep what is faster.")
@click.option(
    "--repeats", type=click.IntRange(min=1),
    help=f"Number of pairs of trials (default: 1; for a remedy {LEAST_REPEATS})."
)
@click.option("--seconds", type=SECONDS, help=f"Measured seconds of each trial (default: {TRIAL_SECONDS:g}).")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), help="Time limit: start no remedy that would take longer."
)
@click.option("--profile", is_flag=True, help="With --preset: also profile 20 steps, and read the profile with XProf.")
@click.option("-o", "--output", metavar="FILE", help="With --apply: save the improved preset to FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print the diagnosis, or the proof, as one JSON object.")
@click.option("--anyway", is_flag=True, help=ANYWAY_HELP)
@click.pass_context
def diagnose(
    context: click.Context, /, run: str | None, preset: str | None, settings: Sequence[str], **wanted: Any
) -> None:
    """Say what limits the speed of RUN or of a preset: the verdict, its evidence, and what to do about it."""
    from .commands import diagnose as diagnose_command

    context.exit(diagnose_command.diagnose(run, preset, settings, wanted))


@cli.command("proof")
@click.argument("name", metavar="[PROOF]", required=False, shell_complete=completion.proof)
@click.option("--json", "form", flag_value="json", help="Print one JSON object.")
@click.option("--markdown", "form", flag_value="markdown", help="Print a report in Markdown.")
@click.option("-o", "--output", metavar="FILE", help="Save the improved preset to FILE.")
@click.option("--stop", is_flag=True, help="Stop the proof after its present trial; a second time at once.")
def proof(name: str | None, form: str | None, output: str | None, stop: bool) -> None:
    """List proofs, or show PROOF: every trial, before and after."""
    from .commands import proof as proof_command

    if name is None and (form == "markdown" or output or stop):
        raise Refused("name a proof; gputui proof lists them")
    if sum(map(bool, (form, output, stop))) > 1:
        raise Refused("use only one of --json, --markdown, -o and --stop")
    if name is None:
        proof_command.show_proofs(as_json=form == "json")
    else:
        proof_command.show_proof(name, form or "table", output, stop)


@cli.command("init")
@click.argument("folder", metavar="[DIR]", default=".")
def init(folder: str) -> None:
    """Write a preset.yaml and a small train.py to start from, into DIR or the current folder; never overwrites."""
    from .commands import init as init_command

    init_command.begin(folder)


@cli.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.option("--deep", is_flag=True, help="Also import TensorFlow to see which GPUs it finds; takes up to 20 s.")
@click.pass_context
def doctor(context: click.Context, as_json: bool, deep: bool) -> None:
    """Check GPUs, driver, TensorFlow and host for problems.

    The exit code is 1 if something prevents training as intended, on the GPUs of a machine that has some, else on the
    CPU.
    """
    from .commands import doctor as doctor_command

    context.exit(doctor_command.show_doctor(as_json, deep))


for command in (about.options, about.guide, about.completion):
    cli.add_command(command)


def _open_screen(watch: Run | None = None, replay_speed: float | None = None) -> int:
    """The TUI, and what to know after it; its exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise Refused("the screen needs a terminal; gputui --preset NAME trains without one")
    with exempt_from_gc():
        from .app import GputuiApp

    app = GputuiApp(watch=watch, replay_speed=replay_speed)
    app.run()
    for run in app.going_on():
        print(f"{run.id} is still running; show it again with: gputui watch")
    return app.return_code or 0


def _speed(text: str | None) -> float | None:
    try:
        speed = None if text is None else float(text)
    except ValueError:
        raise Refused(f"--replay takes a number such as --replay=10, not {text!r}") from None
    if speed is not None and not 0 < speed < 1e6:
        raise Refused("--replay takes a number above 0")
    return speed


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs the command and exits with its code; never lets a traceback out."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """The command's exit code."""
    open_closed_streams()
    code = _code(arguments)
    try:
        sys.stdout.flush()
    except OSError as fault:
        discard_output()
        if not isinstance(fault, BrokenPipeError):
            complain(f"standard output cannot be written ({fault.strerror or fault})")
            return code or UNHEARD
    return code


def _code(arguments: Sequence[str] | None) -> int:
    try:
        code: Any = cli.main(args=arguments, prog_name="gputui", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.UsageError as fault:
        words = fault.ctx.command_path if fault.ctx else "gputui"
        complain(f"{fault.format_message()}\n{words} --help shows what there is")
        return WRONG
    except SystemExit as leave:
        if not isinstance(leave.__context__, BrokenPipeError):
            raise
        discard_output()  # the reader has closed the pipe; click would turn this into an exit
        return 0
    except Exception as fault:
        return report(fault)
