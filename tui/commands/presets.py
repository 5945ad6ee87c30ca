"""The commands about presets: list, show and check presets, export one, and write files to start from."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from ...engine import checks, entry
from ...engine import presets as preset_files
from ...engine.files.values import to_json
from ...engine.files.writing import refuse_existing, write_new
from ...engine.interpreter import interpreter
from ...engine.job import this_machine
from ...engine.options import OPTIONS, OptionInfo
from ...engine.options.own_code import OWN_CODE_LABELS
from ...engine.options.synonyms import keys_of, option_meant, synonyms_of
from ...engine.presets import Preset, PresetError, saving, starter_files
from ...engine.text_table import Table as TextTable
from ..base.errors import DONE, STDOUT, WRONG, Refused, clean, complain
from ..form.form_state import to_text
from ..form.option_search import search
from ..printing.plain_tables import console, show_table
from .train import place

if TYPE_CHECKING:
    from ...engine.export.own_code import Form


BESIDE_A_PROGRAM = """
train.py is yours, and is not changed. gputui calls a function of it that returns what is trained; write, in train.py:

    def build(context):
        return {"model": model, "train": (x, y), "validation": (x_val, y_val), "loss": "mse", "metrics": []}

in place of model.compile and model.fit, and keep what else runs at once below if __name__ == "__main__". Then:

    gputui --preset preset.yaml --dry-run    check it
    gputui --preset preset.yaml              train it

gputui guide says what build may return"""


def list_presets(as_json: bool = False) -> None:
    """Name, owner and description of the named ones, and of those in the current folder."""
    table = Table(box=None, pad_edge=False, show_header=False)
    here = {f"./{path.name}": path for path in preset_files.in_current_folder()}
    for name, path in (preset_files.named_presets() | here).items():
        own = "" if path.parent == preset_files.SHIPPED else "in this folder" if name in here else "yours"
        error = None
        try:
            text = preset_files.resolve(str(path)).description
        except PresetError as fault:
            error = fault.problems[0]
            text = f"cannot be used: {error}"
        if as_json:
            owner = own or "gputui"
            print(to_json({"name": name, "owner": owner, "path": str(path), "description": text, "error": error}))
            continue
        table.add_row(Text(clean(name)), own, Text(" ".join(clean(text).split())))
    if not as_json:
        show_table(table)


def show_preset(name: str) -> None:
    print(clean(preset_files.resolve(name).to_yaml()), end="")


def show_schema() -> None:
    from ...engine.options import validation  # only this command needs it

    print(json.dumps(validation.preset_schema(), indent=2))


def export_preset(name: str, settings: Sequence[str], output: str | None) -> None:
    """Write the preset as plain TensorFlow code to the file or the new folder `output`, or to stdout if that is None or
    `-`. `settings` are KEY=VALUE. Raises Refused if the preset cannot be exported or the file exists."""
    from ...engine.export import own_code as form_part  # only this command needs it
    from ...engine.export import script as script_part  # only this command needs it

    output = None if output == STDOUT else output
    preset = preset_files.resolve(name, settings)
    workload = preset.options.workload
    if workload.entry is not None:
        try:
            entry.examine(workload.entry, Path(os.path.expanduser(workload.folder or ".")).absolute())
        except entry.EntryFault as fault:
            raise Refused(f"workload.entry: {fault}; {fault.change}") from None
    for finding in checks.of_options(preset.options, this_machine.read()):
        raise Refused(str(finding))
    if output is not None:
        refuse_existing(Path(output))
    try:
        form = form_part.asked(preset)
    except form_part.RefusedError as fault:
        raise Refused(f"{clean(str(fault))}\n{clean(fault.hint)}") from None
    for warning in form.warnings if form is not None else ():
        complain(warning)
    if output is not None and (output.endswith(os.sep) or os.path.isdir(output)):
        _export_folder(preset, Path(output), form)
        return
    script, paths = script_part.with_paths(preset, form=form)
    if output is None:
        sys.stdout.write(script)
    else:
        write_new(Path(output), script)
        command = f"{shlex.quote(clean(_python(preset)))} {shlex.quote(clean(output))}"
        print(f"{clean(output)} written; {command} runs it")
    if paths:
        complain(f"the script names {paths[0]} of this machine; -o FOLDER/ exports a folder that runs elsewhere")


def _export_folder(preset: Preset, target: Path, form: Form | None) -> None:
    """Write the preset with its script and code as a folder for another machine. Raises Refused."""
    from ...engine.export import export_folder  # only this command needs it

    try:
        made = export_folder.export(preset, target, form)
    except entry.EntryFault as fault:
        raise Refused(f"workload.entry: {fault}; {fault.change}") from None
    except saving.SaveError as fault:
        raise Refused(str(fault)) from None
    print(f"{clean(target)} written; its {export_folder.README} says how to train with it elsewhere")
    if made.data is not None:
        place, to = made.data
        complain(f"{clean(place)} is not copied, as it is missing or large; put it at {clean(target / to)}")


def _python(preset: Preset) -> str:
    python = interpreter.chosen(preset.options.run.python)
    in_path = shutil.which("python")
    return "python" if in_path and os.path.dirname(in_path) == os.path.dirname(python) else python


def check_presets(files: Sequence[str]) -> int:
    """Print every problem of every file. Return the exit code: WRONG if a file has an error, else DONE."""
    here = this_machine.read()
    code = DONE
    for file in files:
        try:
            preset = preset_files.resolve(file)
        except PresetError as fault:
            complain(fault)
            code = WRONG
            continue
        findings = checks.of_preset(preset, here)
        for finding in findings:
            complain(f"{place(preset, finding, file)}: {finding.level}: {finding}")
        if any(finding.level == "error" for finding in findings):
            code = WRONG
        else:
            print(f"{clean(file)}: good" + (f", {len(findings)} remark(s)" if findings else ""))
    return code


def begin(folder: str, example: str | None = None) -> None:
    """Write a preset and a program to start from into the folder, and print how to use them. Raises Refused if a file
    exists. `example` is the name of an example, None for the usual one."""
    try:
        written = starter_files.write(Path(folder), example)
    except FileExistsError as fault:
        there = fault.filename or fault  # a file where the folder is to be, or one of the files
        raise Refused(f"{there} exists, and is not overwritten; name another folder: gputui init DIR") from None
    for path in written:
        print(f"wrote {path}")
    if len(written) == 1:
        print(BESIDE_A_PROGRAM)
        return
    preset, program = (path.name for path in written[:2])
    steps = [(f"gputui --preset {preset}", "train it as it is")]
    steps += [(f"gputui --preset {path.name}", "then this") for path in written[2:]]
    steps.append((f"gputui {preset}", "open the form on it, to change options"))
    width = max(33, *(len(command) + 2 for command, _ in steps))
    go = f"    cd {shlex.quote(folder)}\n" if folder != "." else ""
    lines = "".join(f"    {command:<{width}}{what}\n" for command, what in steps)
    print(
        f"\nnext:\n{go}{lines}"
        f"then put your own model and data into {program}: gputui guide says what build may return,\n"
        "and gputui options lists what a preset can set"
    )


NAME_WIDTH, TEXT_WIDTH = 11, 100


def show_options(words: str, as_json: bool) -> None:
    """Print those that match the words; a single match is explained. Raises Refused if none matches."""
    matches = fitting(words)
    if not matches:
        raise Refused(f"no option matches {words!r}{option_meant(words, OPTIONS)}")
    if as_json:
        for info in matches:
            print(json.dumps(described(info)))
    elif len(matches) == 1:
        _show_one(matches[0])
    elif sys.stdout.isatty():
        for info in matches:
            _show_in_brief(info)
    else:
        rows = [[info.key, _default(info), _takes(info), info.about.help, info.about.helps] for info in matches]
        show_table(TextTable(["option", "default", "takes", "what it does", "helps"], rows))


def fitting(words: str) -> list[OptionInfo]:
    """Return the options that the words name: the option with this key or name, else all options of the group of this
    name. If there are none, return the options for which the words are another name, else the results of a search, the
    best first. Without words return all options."""
    if not words.strip():
        return list(OPTIONS)
    exact = [info for info in OPTIONS if words.strip() in (info.key, info.name)]
    group = [info for info in OPTIONS if words.strip().rstrip(".") == info.group]
    meant = keys_of(words)
    by_name = sorted((info for info in OPTIONS if info.key in meant), key=lambda info: meant.index(info.key))
    return exact or group or by_name or [hit.item for hit in search(words)]


def described(info: OptionInfo) -> dict[str, Any]:
    """Return the declaration of an option as plain values for JSON, by the names of its parts."""
    about = info.about
    return {
        "key": info.key,
        "default": info.default,
        "takes": info.accepts,
        "words": list(info.fixed_values),
        "unit": about.unit or None,
        "help": about.help,
        "helps": about.helps or None,
        "hurts": about.hurts or None,
        "call": about.call or None,
        "gpu_only": about.gpu_only,
        "own_code": OWN_CODE_LABELS[about.own],
        "other_names": list(synonyms_of(info.key)),
        "not_offered": dict(about.not_offered),
    }


def _default(info: OptionInfo) -> str:
    return to_text(info.default) or "null"


def _takes(info: OptionInfo) -> str:
    takes = "text" if info.accepts.startswith("text: ") else info.accepts
    return takes + (f" ({info.about.unit})" if info.about.unit else "")


def _show_in_brief(info: OptionInfo) -> None:
    out = console()
    width, indent = min(TEXT_WIDTH, out.width), "    "
    out.print(Text.assemble((info.key, "bold"), f"  {_default(info)}  ", (_takes(info), "dim")))
    for text in filter(None, (info.about.help, info.about.helps and f"helps: {info.about.helps}")):
        print(textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))


def _show_one(info: OptionInfo) -> None:
    about = info.about
    rows = [
        ("takes", _takes(info)),
        ("default", _default(info)),
        ("helps", about.helps),
        ("hurts", about.hurts),
        ("calls", about.call),
        ("GPU", "does nothing without a GPU" if about.gpu_only else ""),
        ("your code", f"workload.entry: applies {OWN_CODE_LABELS[about.own]}"),
        ("found by", ", ".join(synonyms_of(info.key))),
        *(("not taken", f"{word}: {why}") for word, why in about.not_offered.items()),
        ("write", f"--set {info.key}=VALUE or {info.name}=VALUE; in a preset {info.group}: {{{info.name}: VALUE}}"),
    ]
    out = console()
    out.print(Text(info.key, style="bold"))
    width = min(TEXT_WIDTH, out.width) if out.is_terminal else TEXT_WIDTH
    print(*textwrap.wrap(about.help, width), sep="\n")
    for name, text in rows:
        lines = textwrap.wrap(text, width - NAME_WIDTH, break_on_hyphens=False)
        for head, line in zip([name, *[""] * len(lines)], lines, strict=False):
            print(f"{head:<{NAME_WIDTH}}{line}")
