"""The commands about presets and own code: list, show, check and export presets, explain options, begin a training.
Deferred imports: a command pays only for what it uses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from . import completion
from .shared_options import preset_name, preset_option, settings_option


@click.group(invoke_without_command=True)
@click.pass_context
def presets(context: click.Context) -> None:
    """List, show and check presets."""
    if context.invoked_subcommand is None:
        from ..commands import presets as presets_command

        presets_command.list_presets()


@presets.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def presets_list(as_json: bool) -> None:
    """List the presets that ship with gputui, and your own."""
    from ..commands import presets as presets_command

    presets_command.list_presets(as_json)


@presets.command("show")
@click.argument("name", callback=preset_name, shell_complete=completion.preset)
def presets_show(name: str) -> None:
    """Show preset NAME with the value of every option."""
    from ..commands import presets as presets_command

    presets_command.show_preset(name)


@presets.command("check")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    callback=lambda context, parameter, files: tuple(preset_name(context, parameter, file) for file in files),
    shell_complete=completion.preset,
)
@click.pass_context
def presets_check(context: click.Context, files: Sequence[str]) -> None:
    """Check preset files, and the options in them against this machine."""
    from ..commands import presets as presets_command

    context.exit(presets_command.check_presets(files))


@presets.command("schema")
def presets_schema() -> None:
    """Print the JSON Schema of presets, for editors."""
    from ..commands import presets as presets_command

    presets_command.show_schema()


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
    from ..commands import presets as presets_command

    presets_command.export_preset(preset, settings, output)


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=".")
@click.option(
    "--example",
    type=click.Choice(["arrays", "images", "records", "lora", "two-phases", "distillation", "quantisation"]),
    help="Write this worked example instead; gputui guide describes them.",
)
def init(folder: str, example: str | None) -> None:
    """Write a preset.yaml and a small train.py to start from.

    They are written into DIR or the current folder. If that has a train.py, only the preset is written. A file that
    exists is not overwritten.
    """
    from ..commands import presets as presets_command

    presets_command.begin(folder, example)


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
    from ..commands import options as options_command  # tables, which no other command here needs

    options_command.show_options(" ".join(words), as_json)


@click.command()
def guide() -> None:
    """Explain how to train your own Keras code.

    The guide says what your function `build` may return, and which options apply to it.
    """
    click.echo_via_pager(Path(__file__).with_name("own-code.md").read_text(encoding="utf-8"))
