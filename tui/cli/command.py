"""The command `gputui` itself: its help, its options, its error messages and its exit codes. Click parses the command
line. Everything that it or gputui refuses becomes one or two lines on stderr and exit code 2.
Deferred imports: a command loads only the modules that it uses."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ...engine import __version__
from ...engine.files.places import PRESET_SUFFIXES, named_presets
from ...engine.interpreter import interpreter
from ...engine.queue import any_entry
from .. import commands
from ..base.errors import INTERRUPTED, WRONG, Refused, clean, complain, guarded, interruptible
from ..show import need_a_terminal, show
from . import completion, presets, runs, speed
from .shared_options import (
    JSON_OR_DETACH,
    cluster_options,
    join_cluster,
    new_code_option,
    preset_name,
    preset_option,
    queue_options,
    settings_option,
    wait_option,
)

if TYPE_CHECKING:
    from ..form.form_state import FormState


TRAINING = ("train", "run", "start", "fit")  # words with which other programs begin a training


class PresetOrCommand(click.Group):
    """A group of commands. Every word that is no command runs `opens`, a command that gets the word as its argument.
    `sections` are the headings under which the help lists the commands."""

    opens: click.Command | None = None
    sections: Mapping[str, Sequence[str]] = MappingProxyType({})

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = formatter.width - 6 - max(map(len, self.commands), default=0)
        for heading, names in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return name, command and remaining words for a command line, as click's method does. A word that names both a
        command and a preset is the command. If the first word names only a preset, the command is the one that opens
        the form. Raises Refused for an unknown word."""
        if args[0] in self.commands or args[0].startswith("-") or self.opens is None:
            return super().resolve_command(ctx, args)
        if not ctx.resilient_parsing and not names_preset(args[0]):
            raise Refused(unknown(args[0], self.commands, args[1:]))
        return "", self.opens, args

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            return commands
        return commands + completion.preset(ctx, self.params[0], incomplete)


def names_preset(word: str) -> bool:
    """True if the word is the name of a preset or run:ID, or looks like a path."""
    return word.endswith(PRESET_SUFFIXES) or os.sep in word or word.startswith("run:") or word in named_presets()


def unknown(word: str, commands: Iterable[str], following: Sequence[str] = ()) -> str:
    """Return the message for a word that is neither a command nor a preset, with similar names. Words of a training are
    answered with its command line; `following` are the words after them.
    """
    from ...engine.options.catalogue import nearest
    from ...engine.presets.paths import of_python

    if python := of_python(word):
        return f"{clean(word)}: {python}"
    for suffix in PRESET_SUFFIXES:
        if os.path.isfile(word + suffix):
            return f"there is no command or preset {word!r}, but there is a file: gputui {shlex.quote(word + suffix)}"
    if word in TRAINING:
        name = shlex.quote(clean(following[0])) if following and names_preset(following[0]) else "NAME"
        return f"there is no command {word!r}: gputui --preset {name} trains a preset; gputui alone opens the form"
    meant = [f"the {what} {near}" for what, names in (("command", commands), ("preset", named_presets()))
             if (near := nearest(word, names))]  # fmt: skip
    lists = "gputui --help lists the commands, and gputui presets the presets"
    hint = f"did you mean {' or '.join(meant)}?" if meant else lists
    return f"there is no command or preset {clean(word)!r}; {hint}"


def form_state(name_or_path: str, settings: Sequence[str]) -> FormState:
    """Settings KEY=VALUE become unsaved changes. Raises PresetError."""
    from ...engine import presets
    from ..form.form_state import FormState

    changed = presets.resolve(name_or_path, settings)
    state = FormState.open(presets.find(name_or_path).absolute())
    state.become(changed.options)
    return state


# Options of a training without a screen, by the words about them in a message: the first one given is named.
WITHOUT_SCREEN = {
    "--cluster and --worker need": {"workers", "worker"},
    "--queue needs": {"queue"},
    "--after needs": {"after"},
    "--code needs": {"code"},
    "--wait and --anyway need": {"wait", "anyway"},
    "--resume-if-any needs": {"resume_if_any"},
    "--json, --detach and --dry-run need": {"as_json", "detach", "dry_run"},
}


@click.group(
    cls=PresetOrCommand,
    invoke_without_command=True,
    epilog="RUN in the help of a command is an id that `gputui runs` lists, a part of one that no other run has, or "
    "`latest`.",
    subcommand_metavar="[PRESET | COMMAND [ARGS]...]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@preset_option("Train this preset without the screen; run:RUN takes the options of that run.")
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
@queue_options
@new_code_option
@wait_option
@click.option("--anyway", is_flag=True,
    help="Start without a warning about other users of the same GPUs. With --queue: do not wait for trainings outside "
    "of the queue that use the CPU.")  # fmt: skip
@cluster_options
@click.version_option(__version__, message="gputui %(version)s")
@click.pass_context
def cli(
    context: click.Context,
    preset: str | None,
    settings: Sequence[str],
    as_json: bool,
    detach: bool,
    dry_run: bool,
    resume_if_any: bool,
    queue: bool,
    after: str | None,
    code: str | None,
    wait: bool,
    anyway: bool,
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
                                             make it faster: try the remedies, save what helps
    gputui presets                           list the shipped presets and your own
    gputui options [KEY]                     explain the options for --set and presets
    gputui doctor                            check GPUs, driver and TensorFlow
    gputui completion bash                   set up tab completion; also for zsh and fish

    To be faster: diagnose first (what limits the speed), then tune (tries all options); ab measures one change,
    fit-batch the batch, scaling more GPUs. To learn better: sweep.

    Runs continue when the screen is closed. The fit of any script can be a run, too:

    \b
    from gputui.engine import Monitor
    model.fit(x, y, callbacks=[Monitor("my model")])
    """
    if any_entry():
        commands.queue.go_on(context.invoked_subcommand)
    interpreter.notice = lambda python: complain(f"asking {python} what is installed for it ...")
    _refuse_misplaced(context)
    if context.invoked_subcommand is not None:
        return
    if preset is None:
        context.exit(show())
    _refuse_contradictions(context.params)
    join_cluster(workers, worker)
    if queue:
        context.exit(commands.queue.add_preset(preset, settings, after, anyway))
    how = {"as_json": as_json, "detach": detach, "dry_run": dry_run, "resume_if_any": resume_if_any}
    how |= {"wait": wait, "anyway": anyway}
    context.exit(commands.train.run_preset(preset, settings, code=code, **how))


def _refuse_misplaced(context: click.Context) -> None:
    """Options of a training without --preset, with a command, or with a preset's form."""
    given, command = context.params, context.invoked_subcommand
    used = {name for name, value in given.items() if value is not None and value is not False}
    without_screen = next((words for words, names in WITHOUT_SCREEN.items() if used & names), "")
    if command is None:
        if given["preset"] is None and (given["settings"] or without_screen):
            raise Refused("name a preset, such as gputui --preset quickstart; gputui presets lists them")
    elif command == "":  # a preset was named; its command gets the settings, too
        if given["preset"] is not None:
            raise Refused("name one preset: gputui --preset NAME trains without the screen, gputui NAME opens the form")
        if without_screen:
            raise Refused(f"{without_screen} no screen: gputui --preset NAME")
    elif given["preset"] is not None or given["settings"] or without_screen:
        raise Refused(f"--preset and what belongs to it do not go with the command {command!r}")


def _refuse_contradictions(given: Mapping[str, Any]) -> None:
    """Refuse options that contradict each other in a training without the screen."""
    used = {name for name, value in given.items() if value is not None and value is not False}
    if given["dry_run"] and used & {"as_json", "detach", "resume_if_any", "wait", "anyway"}:
        raise Refused("--dry-run starts and resumes nothing: it goes with --preset, --set and --cluster alone")
    if given["as_json"] and given["detach"]:
        raise Refused(JSON_OR_DETACH)
    if given["code"] and not given["resume_if_any"]:
        raise Refused(f"--code={given['code']} is for a run that is resumed: gputui resume RUN, or --resume-if-any")
    if given["queue"] and used & {"as_json", "detach", "dry_run", "resume_if_any", "wait", "workers"}:
        raise Refused("--queue starts nothing now: it goes with --preset, --set, --after and --anyway alone")
    if given["after"] is not None and not given["queue"]:
        raise Refused("--after RUN needs --queue")


@click.command()
@click.argument("preset", shell_complete=completion.preset, callback=preset_name)
@settings_option()
@cluster_options
@click.pass_context
def form_on(
    context: click.Context, preset: str, settings: Sequence[str], workers: str | None, worker: int | None
) -> None:
    """Open the form on a preset, for `gputui FILE.yaml`. `settings` (KEY=VALUE) become changes that are not saved."""
    if workers is not None or worker is not None:
        raise Refused(f"--cluster and --worker need no screen: gputui --preset {shlex.quote(preset)} --cluster ...")
    before = context.parent.params["settings"] if context.parent else ()
    state = form_state(preset, [*before, *settings])
    need_a_terminal(f"gputui --preset {shlex.quote(preset)} trains")
    context.exit(show(state))


assert isinstance(cli, PresetOrCommand)
cli.opens = form_on
cli.sections = {
    "Runs": ("runs", "watch", "logs", "stop", "resume", "queue", "compare", "history", "follow", "note", "tag"),
    "Speed": ("diagnose", "ab", "tune", "fit-batch", "sweep", "scaling", "prepare", "proof"),
    "Presets and your own code": ("presets", "options", "init", "guide", "export"),
    "gputui and this machine": ("doctor", "gpus", "lease", "serve", "completion"),
}


for command in (
    runs.runs, runs.watch, runs.logs, runs.stop, runs.resume, runs.queue, runs.compare, runs.history,
    runs.follow, runs.note, runs.tag,
    speed.diagnose, speed.ab, speed.tune, speed.fit_batch, speed.sweep, speed.scaling, speed.prepare, speed.proof,
    presets.presets, presets.options, presets.init, presets.guide, presets.export, presets.doctor,
    presets.completion_script, presets.gpus, presets.lease, presets.serve,
):  # fmt: skip
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code. An exception is shown as one or two lines, never as a traceback."""
    interruptible()
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
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
        given = sys.argv[1:2] if arguments is None else arguments[:1]
        named = ["gputui", *(word for word in given if word in cli.commands)]
        words = fault.ctx.command_path.strip() if fault.ctx else " ".join(named)  # no context: an option without value
        complain(f"{fault.format_message()}\n{words} --help shows what there is")
        return WRONG
    except click.ClickException as fault:
        complain(fault)
        return WRONG
