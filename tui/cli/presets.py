"""The commands about presets and own code, and those about gputui and this machine, declared for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from .. import commands
from . import completion
from .completion import VARIABLE
from .shared_options import preset_name, preset_option, settings_option


@click.group(invoke_without_command=True)
@click.pass_context
def presets(context: click.Context) -> None:
    """List, show and check presets."""
    if context.invoked_subcommand is None:
        commands.presets.list_presets()


@presets.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def presets_list(as_json: bool) -> None:
    """List the presets that ship with gputui, and your own."""
    commands.presets.list_presets(as_json)


@presets.command("show")
@click.argument("name", callback=preset_name, shell_complete=completion.preset)
def presets_show(name: str) -> None:
    """Show preset NAME with the value of every option."""
    commands.presets.show_preset(name)


@presets.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...",
    callback=lambda context, parameter, files: tuple(preset_name(context, parameter, file) for file in files),
    shell_complete=completion.preset)  # fmt: skip
@click.pass_context
def presets_check(context: click.Context, files: Sequence[str]) -> None:
    """Check preset files, and the options in them against this machine."""
    context.exit(commands.presets.check_presets(files))


@presets.command("schema")
def presets_schema() -> None:
    """Print the JSON Schema of presets, for editors."""
    commands.presets.show_schema()


@click.command()
@preset_option("The preset to export.", required=True)
@settings_option()
@click.option(
    "-o",
    "--output",
    metavar="FILE|FOLDER/",
    help="Write to FILE instead of stdout (-); with a name that ends in /, a folder that runs on another machine.",
)
def export(preset: str, settings: Sequence[str], output: str | None) -> None:
    """Write a preset as a plain TensorFlow script.

    The script trains the same model on the same data without gputui. A folder holds the script, the preset, the Python
    files that it needs, and the versions of the packages, without a path of this machine.

    \b
    gputui export --preset mine.yaml -o plain.py
    gputui export --preset mine.yaml -o for-a-colleague/
    """
    commands.presets.export_preset(preset, settings, output)


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=".")
@click.option("--example",
              type=click.Choice(["arrays", "images", "records", "lora", "two-phases", "distillation", "quantisation"]),
              help="Write this worked example instead; gputui guide describes them.")  # fmt: skip
def init(folder: str, example: str | None) -> None:
    """Write a preset.yaml and a small train.py to start from.

    They are written into DIR or the current folder. If that has a train.py, only the preset is written. A file that
    exists is not overwritten.
    """
    commands.presets.begin(folder, example)


@click.command()
@click.argument("words", nargs=-1, metavar="[KEY or WORDS]...", shell_complete=completion.option)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, for each option.")
def options(words: tuple[str, ...], as_json: bool) -> None:
    """List the options of presets, or explain one of them.

    \b
    gputui options                every option, its default, what it takes and does
    gputui options batch_size     one of them: its range, unit, when it helps and what it costs
    gputui options input          those of a group
    gputui options lr             by another name, or by any word of its help
    """
    commands.presets.show_options(" ".join(words), as_json)


@click.command()
def guide() -> None:
    """Explain how to train your own Keras code.

    The guide says what your function `build` may return, and which options apply to it.
    """
    click.echo_via_pager(Path(__file__).with_name("own-code.md").read_text(encoding="utf-8"))


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_script(context: click.Context, shell: str) -> None:
    """Print a script for tab completion in SHELL.

    It completes commands, presets, runs, proofs and options.

    \b
    bash    echo 'eval "$(gputui completion bash)"' >> ~/.bashrc
    zsh     echo 'eval "$(gputui completion zsh)"' >> ~/.zshrc        after compinit
    fish    gputui completion fish > ~/.config/fish/completions/gputui.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    completer = kind(context.find_root().command, {}, "gputui", VARIABLE)
    print(completer.source_template % completer.source_vars())


@click.command("doctor")
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
    context.exit(commands.gpus.show_doctor(as_json, deep, python))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per GPU and line; [] if there is none.")
def gpus(as_json: bool) -> None:
    """Show which GPUs are free, and who uses the others.

    A GPU is free for device.visible=free:N if no process computes on it, its memory is not used, and nobody has leased
    it.
    """
    commands.gpus.show_gpus(as_json)


@click.command()
@click.option("--port", type=click.IntRange(1024, 65535), default=8000, show_default=True, help="Port of localhost.")
@click.pass_context
def serve(context: click.Context, port: int) -> None:
    """Show the screens in a browser.

    The browser needs the printed address, whose token keeps other users of the machine out. From another machine, it
    reaches the port through an SSH tunnel, whose command is printed.
    """
    context.exit(commands.serve.serve(port))


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("gpus", metavar="N[@KIND]")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--wait", is_flag=True, help="Wait until N GPUs are free.")
@click.pass_context
def lease(context: click.Context, gpus: str, command: Sequence[str], wait: bool) -> None:
    """Run any program on N free GPUs.

    No other user of gputui takes them until the program ends.

    \b
    gputui lease 1 -- python train.py            a GPU that nobody uses
    gputui lease --wait 2@40GB -- torchrun ...   two with 40 GB or more, as soon as they are free

    The program finds them in CUDA_VISIBLE_DEVICES. The exit code is that of the program.
    """
    context.exit(commands.gpus.run_on_leased(gpus, command, wait))
