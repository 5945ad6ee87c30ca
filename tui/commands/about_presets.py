"""The commands about presets: listing, showing and checking them, exporting one, and beginning one's own.

Deferred imports: a command pays only for what it uses.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from . import completion
from .preset_options import preset_option, settings_option


@click.group(invoke_without_command=True)
@click.pass_context
def presets(context: click.Context) -> None:
    """List, show and check presets."""
    if context.invoked_subcommand is None:
        from . import runs_and_presets

        runs_and_presets.list_presets()


@presets.command("list")
def presets_list() -> None:
    """List the presets that ship with gputui, and your own."""
    from . import runs_and_presets

    runs_and_presets.list_presets()


@presets.command("show")
@click.argument("name", shell_complete=completion.preset)
def presets_show(name: str) -> None:
    """Show preset NAME with the value of every option."""
    from . import runs_and_presets

    runs_and_presets.show_preset(name)


@presets.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=completion.preset)
@click.pass_context
def presets_check(context: click.Context, files: Sequence[str]) -> None:
    """Check preset files, and the options in them against this machine."""
    from . import runs_and_presets

    context.exit(runs_and_presets.check_presets(files))


@presets.command("schema")
def presets_schema() -> None:
    """Print the JSON Schema of presets, for editors."""
    from . import runs_and_presets

    runs_and_presets.show_schema()


@click.command()
@preset_option("The preset to export.", required=True)
@settings_option()
@click.option(
    "-o",
    "--output",
    metavar="FILE|FOLDER/",
    help="Write to FILE instead of stdout; with a name that ends in /, a folder that runs on another machine.",
)
def export(preset: str, settings: Sequence[str], output: str | None) -> None:
    """Write a preset as a plain TensorFlow script.

    The script trains the same model on the same data without gputui. A folder holds the script, the preset, the Python
    files that it needs, and the versions of the packages, without a path of this machine.

    \b
    gputui export --preset mine.yaml -o plain.py
    gputui export --preset mine.yaml -o for-a-colleague/
    """
    from . import runs_and_presets

    runs_and_presets.export_preset(preset, settings, output)


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=".")
@click.option(
    "--example",
    type=click.Choice(["arrays", "images", "records"]),
    help="Write this worked example instead: arrays in memory, a folder of images, or TFRecord files.",
)
def init(folder: str, example: str | None) -> None:
    """Write a preset.yaml and a small train.py to start from.

    They are written into DIR or the current folder. A file that exists is not overwritten.
    """
    from . import init as init_command

    init_command.begin(folder, example)
