"""The commands about presets: list, show and check them, write a first one, and explain options and own code."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..base.errors import DONE, WRONG, Refused, clean, complain
from . import completion, is_called
from .shared_options import preset_name

if is_called():
    from rich.table import Table
    from rich.text import Text

    from ...engine import checks
    from ...engine import presets as preset_files
    from ...engine.files.values import to_json
    from ...engine.finding import errors
    from ...engine.job import this_machine
    from ...engine.options import OPTIONS, OptionInfo
    from ...engine.options.own_code import OWN_CODE_LABELS
    from ...engine.options.synonyms import keys_of, option_meant, synonyms_of
    from ...engine.presets import PresetError, starter_files
    from ...engine.text_table import Table as TextTable
    from ..form.form_state import to_text
    from ..form.option_search import search
    from ..printing.plain_tables import console, show_table
    from .train import place, print_preset

BESIDE_A_PROGRAM = """
train.py is yours, and is not changed; gputui run train.py trains it as it is. With this preset gputui calls a function
of it that returns what is trained; write, in train.py:

    def build(context):
        return {"model": model, "train": (x, y), "validation": (x_val, y_val), "loss": "mse", "metrics": []}

in place of model.compile and model.fit, and keep what else runs at once below if __name__ == "__main__". Then:

    gputui --preset preset.yaml --dry-run    check it
    gputui --preset preset.yaml              train it

gputui guide says what build may return"""


@click.group(invoke_without_command=True)
@click.pass_context
def presets(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        context.invoke(presets_list, as_json=False)


@presets.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def presets_list(as_json: bool) -> None:
    """List the presets that ship with gputui, and your own."""
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


@presets.command("show")
@click.argument("name", callback=preset_name, shell_complete=completion.preset)
def presets_show(name: str) -> None:
    """Show preset NAME with the value of every option."""
    print_preset(preset_files.resolve(name))


@presets.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...",
    callback=lambda context, parameter, files: tuple(preset_name(context, parameter, file) for file in files),
    shell_complete=completion.preset)  # fmt: skip
def presets_check(files: Sequence[str]) -> int:
    """Check preset files, and the options in them against this machine."""
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
            complain(f"{place(preset, finding, file)}: {finding.line}")
        if errors(findings):
            code = WRONG
        else:
            print(f"{clean(file)}: good" + (f", {len(findings)} remark(s)" if findings else ""))
    return code


@presets.command("schema")
def presets_schema() -> None:
    """Print the JSON Schema of presets, for editors."""
    from ...engine.options import validation  # pydantic, which only this command needs

    print(json.dumps(validation.preset_schema(), indent=2))


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=".")
@click.option("--example",
    type=click.Choice(["arrays", "images", "records", "lora", "two-phases", "distillation", "quantisation"]),
    help="Write this worked example instead; gputui guide describes them.")  # fmt: skip
def init(folder: str, example: str | None) -> None:
    """They are written into DIR or the current folder. If that has a train.py, only the preset is written. A file that
    exists is not overwritten.
    """
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


@click.command()
def guide() -> None:
    """The guide says what your function `build` may return, and which options apply to it."""
    click.echo_via_pager(Path(__file__).with_name("own-code.md").read_text(encoding="utf-8"))


@click.command()
@click.argument("words", nargs=-1, metavar="[KEY or WORDS]...", shell_complete=completion.option)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, for each option.")
def options(words: tuple[str, ...], as_json: bool) -> None:
    """\b
    gputui options                every option, its default, what it takes and does
    gputui options batch_size     one of them: its range, unit, when it helps and what it costs
    gputui options input          those of a group
    gputui options lr             by another name, or by any word of its help
    """
    matches = fitting(" ".join(words))
    if not matches:
        raise Refused(f"no option matches {' '.join(words)!r}{option_meant(' '.join(words), OPTIONS)}")
    if as_json:
        for info in matches:
            print(json.dumps(described(info)))
    elif len(matches) == 1:
        _show_one(matches[0])
    elif sys.stdout.isatty():
        out = console()
        width, indent = min(TEXT_WIDTH, out.width), 4 * " "
        wrapper = textwrap.TextWrapper(width, indent, indent, break_on_hyphens=False)
        for info in matches:
            out.print(Text.assemble((info.key, "bold"), f"  {_default(info)}  ", (_takes(info), "dim")))
            for text in filter(None, (info.about.help, info.about.helps and f"helps: {info.about.helps}")):
                print(wrapper.fill(text))
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
