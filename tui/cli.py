"""The command `gputui` itself: its help, its options, its error messages and its exit codes. A subcommand is a function
of tui/commands; its module is loaded when the subcommand is named.
Deferred imports: the help and the version need neither presets nor trainings."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ..engine import __version__
from ..engine.files.places import PRESET_SUFFIXES, named_presets
from ..engine.interpreter import interpreter
from ..engine.queue import entry_names
from ..engine.trials.kinds import KINDS
from .base.errors import INTERRUPTED, WRONG, Refused, clean, complain, guarded, interruptible
from .commands import Called, command_of, completion
from .commands.shared_options import (
    cluster_options,
    given,
    join_cluster,
    preset_name,
    preset_option,
    refuse_contradictions,
    settings_option,
    training_options,
)
from .show import need_a_terminal, show

if TYPE_CHECKING:
    from .form.form_state import FormState


HELP = ("-h", "--help")

# By the headings of the help: each command with its module and its purpose, the first sentence of its own help.
COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Runs": {
        "run": ("train", "Train a script as it is: gputui run train.py ARGUMENTS."),
        "runs": ("runs", "List runs, the latest first."),
        "watch": ("run", "Show a run in the live view, by default the latest."),
        "logs": ("logs", "Print the log of a run, by default of the latest."),
        "stop": ("run", "Stop runs gracefully."),
        "tell": ("run", "Ask a run for a checkpoint, an evaluation or its end."),
        "resume": ("train", "Resume a run from its last checkpoint."),
        "queue": ("queue", "Show the queue, change it, or put any command in it."),
        "compare": ("runs", "Show what differs between runs: options and figures."),
        "history": ("run", "Export the figures of a run over time."),
        "follow": ("run", "Write a run's figures to TensorBoard, MLflow or others, live."),
        "note": ("run", "Write a note on a run, or print it."),
        "tag": ("run", "Give a run tags, or print them."),
    },
    "Make it faster": {
        "diagnose": ("diagnose", "Begin here: say what limits it; --apply tries the remedies."),
        "tune": ("tune", "Search all settings for the fastest, in ten minutes."),
        "ab": ("diagnose", "Measure one change that you name."),
        "fit-batch": ("tune", "Search only the batch: the fastest, and the largest that fits."),
        "scaling": ("diagnose", "Measure what more GPUs bring, or several runs on one."),
        **{name: ("measuring", kind.purpose) for name, kind in KINDS.items() if kind.purpose},
        "prepare": ("prepare", "Decode and resize the data once, if the input is slow."),
    },
    "Make it learn better": {
        "sweep": ("tune", "Find which values of options learn best, and prove it."),
    },
    "Measurements": {
        "proof": ("measuring", "List all measurements, show one, or delete some."),
    },
    "Presets and your own code": {
        "presets": ("presets", "List, show and check presets."),
        "options": ("presets", "List the options of presets, or explain one of them."),
        "init": ("presets", "Write a preset.yaml and a small train.py to start from."),
        "guide": ("presets", "Explain how to train your own Keras code."),
        "export": ("export", "Write a preset as a plain TensorFlow script."),
    },
    "gputui and this machine": {
        "doctor": ("gpus", "Check GPUs, driver, TensorFlow and host for problems."),
        "hosts": ("hosts", "Show GPUs, runs and queues of several machines, by ssh."),
        "gpus": ("gpus", "Show which GPUs are free, and who uses the others."),
        "lease": ("gpus", "Run any program on N free GPUs."),
        "serve": ("serve", "Show the screens in a browser."),
        "mcp": ("mcp", "Give a language model tools for runs and proofs, over stdio."),
        "completion": ("completion", "Print a script for tab completion in SHELL."),
    },
}
NAMED = {name: place for commands in COMMANDS.values() for name, place in commands.items()}


class LazyGroup(click.Group):
    """The group of all commands. A command is the function of its name in its module; the group puts its purpose before
    its help. A word that is no command opens the form on the preset of this name. With `only_declares`, commands are
    loaded for their help only."""

    only_declares = False

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(NAMED)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in NAMED and name not in self.commands:
            module, purpose = NAMED[name]
            only_declared = self.only_declares or ctx.resilient_parsing
            command = command_of(module, name.replace("-", "_"), only_declared)
            text = cleandoc(command.help or "")
            command.help = text if text.startswith(purpose) else f"{purpose}\n\n{text}"  # a kept module gives it again
            if only_declared:
                return command
            self.add_command(command, name)
        return super().get_command(ctx, name)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = formatter.width - 6 - max(map(len, NAMED))
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, _in_brief(purpose, width)) for name, (_, purpose) in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return name, command and remaining words for a command line, as click's method does. A word that names both a
        command and a preset is the command. Raises Refused for an unknown word."""
        if args[0] in NAMED or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        if not ctx.resilient_parsing and not names_preset(args[0]):
            raise Refused(unknown(args[0], args[1:]))
        return "", form_on, args

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = (name for name in sorted(NAMED) if name.startswith(incomplete))
        commands = [CompletionItem(name, help=_in_brief(NAMED[name][1])) for name in names]
        return commands + completion.preset(ctx, self.params[0], incomplete)


def _in_brief(purpose: str, *width: int) -> str:
    return click.Command(None, help=purpose).get_short_help_str(*width)


def names_preset(word: str) -> bool:
    """True if the word is the name of a preset or run:ID, or looks like a path or a script."""
    is_file = word.endswith((*PRESET_SUFFIXES, ".py")) or os.sep in word
    return is_file or word.startswith("run:") or word in named_presets()


def unknown(word: str, following: Sequence[str] = ()) -> str:
    """The error message for a word that is neither a command nor a preset, with similar names. `following` are the
    words after it; words for a training are answered with the command line that begins one."""
    from ..engine.options.catalogue import nearest

    for suffix in PRESET_SUFFIXES:
        if os.path.isfile(word + suffix):
            return f"there is no command or preset {word!r}, but there is a file: gputui {shlex.quote(word + suffix)}"
    if word in ("train", "start", "fit"):  # with these words, other programs begin a training
        name = shlex.quote(clean(following[0])) if following and names_preset(following[0]) else "NAME"
        return f"there is no command {word!r}: gputui --preset {name} trains a preset; gputui alone opens the form"
    meant = [f"the {what} {near}" for what, names in (("command", NAMED), ("preset", named_presets()))
             if (near := nearest(word, names))]  # fmt: skip
    lists = "gputui --help lists the commands, and gputui presets the presets"
    hint = f"did you mean {' or '.join(meant)}?" if meant else lists
    return f"there is no command or preset {clean(word)!r}; {hint}"


def form_state(name_or_path: str, settings: Sequence[str]) -> FormState:
    """Return the form's state for a preset, by its name or path. `settings` are texts KEY=VALUE and become unsaved
    changes. Raises PresetError if the preset or a setting is invalid."""
    from ..engine import presets
    from .form.form_state import FormState

    changed = presets.resolve(name_or_path, settings)
    if name_or_path.endswith(".py"):
        from ..engine.trials import script_fit

        changed = script_fit.as_trained(changed) or changed
    state = FormState.open(presets.find(name_or_path).absolute())
    state.become(changed.options)
    return state


# Options of a training without a screen, by the words about them in a message: the first one given is named.
WITHOUT_SCREEN = {
    "--cluster and --worker need": {"workers", "worker"},
    "--queue needs": {"queue"},
    "--after needs": {"after"},
    "--name needs": {"run_name"},
    "--code needs": {"code"},
    "--wait and --anyway need": {"wait", "anyway"},
    "--resume-if-any needs": {"resume_if_any"},
    "--json, --detach and --dry-run need": {"as_json", "detach", "dry_run"},
}


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog="RUN in the help of a command is an id that `gputui runs` lists, a part of one that no other run has, a "
    "name that you gave, or `latest`.",
    subcommand_metavar="[PRESET | COMMAND [ARGS]...]",
    context_settings={"help_option_names": HELP},
)
@preset_option("Train this preset without the screen; run:RUN takes the options of that run.")
@settings_option()
@training_options
@cluster_options
@click.version_option(__version__, message="gputui %(version)s")
@click.pass_context
def cli(
    context: click.Context, /, preset: str | None, settings: Sequence[str], workers: str | None, worker: int | None,
    **how: Any,
) -> int | None:  # fmt: skip
    """Train TensorFlow and Keras models: set every GPU option, watch the run, find and measure what makes it faster.

    \b
    gputui                                   open the form, to set options and start runs
    gputui fast.yaml                         open it on a preset, by its file or its name
    gputui --preset quickstart               train a shipped preset without the screen
    gputui --preset fast.yaml --set xla=true train your own with one option changed
    gputui run train.py ARGUMENTS            train your own script as it is
    gputui presets                           list the shipped presets and your own
    gputui options [KEY]                     explain the options for --set and presets
    gputui doctor                            check GPUs, driver and TensorFlow
    gputui completion bash                   set up tab completion; also for zsh and fish

    \b
    Make it faster, with proof (what limits it: minutes; all settings: 10 min):
    gputui diagnose --preset fast.yaml --apply -o better.yaml
    gputui tune --preset fast.yaml -o fastest.yaml

    \b
    Make it learn better, with proof (the learning rate; any option):
    gputui tune --preset fast.yaml --learning-rate-test
    gputui sweep --preset fast.yaml --over weight_decay=0,0.1

    Runs continue when the screen is closed. A fit that starts elsewhere can be watched, too:

    \b
    from gputui.engine import Monitor
    model.fit(x, y, callbacks=[Monitor("my model")])
    """
    interruptible()  # the command's module is loaded
    if entry_names():
        _go_on_with_queue()
    interpreter.notice = lambda python: complain(f"asking {python} what is installed for it ...")
    _refuse(context)
    if context.invoked_subcommand is not None:
        return None
    if preset is None:
        return show()
    join_cluster(workers, worker)
    from .commands import train

    return train.run_preset(preset, settings, **how)


def _go_on_with_queue() -> None:
    """Start the runner of the queue if none runs, as after a restart of the machine. A fault is only printed."""
    from ..engine.queue import entries
    from ..engine.runs import RunError

    try:
        entries.ensure_runner()
    except (OSError, RunError) as fault:
        complain(f"the queue: {fault}")


def _refuse(context: click.Context) -> None:
    """Refuse options of a training with which no training is started, and such that contradict each other."""
    command, used = context.invoked_subcommand, {*given(context)}
    without_screen = next((words for words, names in WITHOUT_SCREEN.items() if used & names), "")
    if command == "":  # a preset was named; its command gets the settings, too
        if "preset" in used:
            raise Refused("name one preset: gputui --preset NAME trains without the screen, gputui NAME opens the form")
        if without_screen:
            raise Refused(f"{without_screen} no screen: gputui --preset NAME")
    elif command is not None:
        if used:
            raise Refused(f"--preset and what belongs to it do not go with the command {command!r}")
    elif "preset" not in used and used:
        raise Refused("name a preset, such as gputui --preset quickstart; gputui presets lists them")
    else:
        refuse_contradictions(context)


@click.command()
@click.argument("preset", shell_complete=completion.preset, callback=preset_name)
@settings_option()
@cluster_options
@click.pass_context
def form_on(
    context: click.Context, preset: str, settings: Sequence[str], workers: str | None, worker: int | None
) -> int:
    """Open the form on a preset, for `gputui FILE.yaml`. `settings` (KEY=VALUE) become changes that are not saved."""
    if workers is not None or worker is not None:
        raise Refused(f"--cluster and --worker need no screen: gputui --preset {shlex.quote(preset)} --cluster ...")
    before = context.parent.params["settings"] if context.parent else ()
    state = form_state(preset, [*before, *settings])
    need_a_terminal(f"gputui --preset {shlex.quote(preset)} trains")
    return show(state)


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    return guarded(lambda: _code(arguments))


def _code(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    cli.only_declares = any(word in words for word in HELP)
    try:
        try:
            code: Any = cli.main(args=arguments, prog_name="gputui", standalone_mode=False)
        except Called:  # the word was no request for help, but for another program or the value of an option
            cli.only_declares = False
            code = cli.main(args=arguments, prog_name="gputui", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.UsageError as fault:
        named = ["gputui", *(word for word in words[:1] if word in NAMED)]
        command = fault.ctx.command_path.strip() if fault.ctx else " ".join(named)  # no context: no value of an option
        complain(f"{fault.format_message()}\n{command} --help shows what there is")
        return WRONG
    except click.ClickException as fault:
        complain(fault)
        return WRONG
