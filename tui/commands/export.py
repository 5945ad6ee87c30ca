"""The command `gputui export`: a preset as plain TensorFlow code, in a script or a folder for another machine."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ..base.errors import STDOUT, Refused, clean, complain
from . import is_called
from .shared_options import preset_option, settings_option

if is_called():
    from ...engine import checks, entry, options
    from ...engine import presets as preset_files
    from ...engine.export import export_folder
    from ...engine.export import own_code as form_part
    from ...engine.export import script as script_part
    from ...engine.files.writing import refuse_existing, write_new
    from ...engine.interpreter import interpreter
    from ...engine.job import this_machine
    from ...engine.presets import saving
    from ...engine.runs.event_reading import events_of
    from ...engine.runs.events import Control


@click.command()
@preset_option("The preset to export.", required=True)
@settings_option()
@click.option("-o", "--output", metavar="FILE|FOLDER/",
    help="Write to FILE instead of stdout (-); with a name that ends in /, a folder that runs on "
    "another machine.")  # fmt: skip
def export(preset: str, settings: Sequence[str], output: str | None) -> None:
    """The script trains the same model on the same data without gputui. A folder holds the script, the preset, the
    Python files that it needs, and the versions of the packages, without a path of this machine.

    \b
    gputui export --preset mine.yaml -o plain.py
    gputui export --preset mine.yaml -o for-a-colleague/
    """
    output = None if output == STDOUT else output
    exported = preset_files.resolve(preset, settings)
    if preset.startswith("run:") and exported.file is not None:
        for event in events_of(exported.file.parent, Control):
            if event.control in ("rate", "end-epoch") and not event.refused:
                complain(f"the script does not do what the run was told after step {event.step:,}: {event.message}")
    workload = exported.options.workload
    if workload.command:
        raise Refused(f"{clean(preset)} is a command, of which there is nothing to export")
    if workload.is_script:
        changed = {key: value for key, value in exported.changed().items() if not key.startswith("workload.")}
        changes = "; ".join(
            f"{key}={value} ({options.BY_KEY[key].about.call or key})" for key, value in changed.items()
        )
        more = f"what the preset changes in it: {changes}" if changes else "the preset changes nothing in it"
        raise Refused(f"{clean(str(workload.entry))} is plain Keras already\n{clean(more)}")
    try:
        if workload.entry is not None:
            entry.examine(workload.entry, Path(os.path.expanduser(workload.folder or ".")).absolute())
        for finding in checks.of_options(exported.options, this_machine.read()):
            raise Refused(str(finding))
        if output is not None:
            refuse_existing(Path(output))
        form = form_part.asked(exported)
        for warning in form.warnings if form is not None else ():
            complain(warning)
        is_folder = output is not None and (output.endswith(os.sep) or os.path.isdir(output))
        folder = export_folder.export(exported, Path(output), form) if output is not None and is_folder else None
    except entry.EntryFault as fault:
        raise Refused(f"workload.entry: {fault}; {fault.change}") from None
    except form_part.RefusedError as fault:
        raise Refused(f"{clean(str(fault))}\n{clean(fault.hint)}") from None
    except saving.SaveError as fault:
        raise Refused(str(fault)) from None
    if output is not None and folder is not None:
        target = Path(output)
        print(f"{clean(target)} written; its {export_folder.README} says how to train with it elsewhere")
        if folder.data is not None:
            place, to = folder.data
            complain(f"{clean(place)} is not copied, as it is missing or large; put it at {clean(target / to)}")
        return
    script, paths = script_part.with_paths(exported, form=form)
    if output is None:
        sys.stdout.write(script)
    else:
        write_new(Path(output), script)
        python, in_path = interpreter.chosen(exported.options.run.python), shutil.which("python")
        if in_path and os.path.dirname(in_path) == os.path.dirname(python):
            python = "python"
        command = f"{shlex.quote(clean(python))} {shlex.quote(clean(output))}"
        print(f"{clean(output)} written; {command} runs it")
    if paths:
        complain(f"the script names {paths[0]} of this machine; -o FOLDER/ exports a folder that runs elsewhere")
