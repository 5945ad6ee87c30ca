"""What the open screen tells of a preset file: its line in the list, and what it changes of the defaults."""

from __future__ import annotations

from pathlib import Path

from textual.content import Content

from ...engine.presets import Preset, PresetError
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..drawing.rows import whole_words
from ..form.state import INFO, shown, to_text
from ..reading.preset_files import PresetFile

Found = Preset | PresetError


def prompt(one: PresetFile, width: int, room: int, glyphs: Glyphs) -> Content:
    """A line of at most `room` cells, whose description ends at a word."""
    name = clean(one.name).ljust(width + 2)
    text = whole_words(clean(one.text), room - len(name) - 2, glyphs) if room else clean(one.text)
    if one.other:
        return Content.assemble(("  " + name, "$foreground-muted"), (clean(one.other), "$foreground-muted"))
    if one.fault:
        return Content.assemble(("  " + name, "bold"), (f"cannot be used: {clean(one.fault)}", "$text-error"))
    return Content.assemble(("  " + name, "bold"), text)


def preview(path: Path, preset: Found) -> Content:
    """The file, the description, and what differs from the defaults."""
    head = Content.assemble((clean(path.stem), "bold $text-primary"), "\n", (clean(path), "$foreground-muted"))
    if isinstance(preset, PresetError):
        wrong = "\n".join(clean(problem) for problem in preset.problems)
        return Content.assemble(head, "\n\n", ("cannot be used\n", "bold $text-error"), wrong)
    rows = [(key, shown(preset.options, INFO[key]), to_text(INFO[key].default)) for key in preset.changed()]
    names, values = (max((len(row[i]) for row in rows), default=0) + 2 for i in (0, 1))
    changed = Content("\n").join(
        Content.assemble(
            key.ljust(names),
            (clean(value or "not given").ljust(values), "bold $text-accent"),
            (f"default {default or 'not given'}", "$foreground-muted"),
        )
        for key, value, default in rows
    )
    note = Content("") if rows else Content("the defaults, nothing changed")
    return Content.assemble(head, f"\n\n{clean(preset.description)}\n\n", changed, note)
