"""The text that saving the form writes into the preset's file, with the lines that differ from the file as it is now.
It needs ruamel.yaml, and is made in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path

from ...engine.files import located_yaml
from ...engine.files.places import user_presets_folder
from ...engine.files.values import EMPTY
from ...engine.presets import Preset, saving
from ...engine.presets.saving import SaveError

NEW, OLD, SAME = "+", "-", " "


@dataclass(frozen=True)
class FileText:
    """Lines with their marks: NEW, OLD (it is replaced) or SAME. `places` has the index of an option's line by its key,
    for the options that the text names. `changes` is the number of lines that differ. `problem` says why there is no
    text."""

    lines: tuple[tuple[str, str], ...] = ()
    places: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    changes: int = 0
    problem: str = ""


def file_text(preset: Preset, path: Path | None, opened_text: str | None) -> FileText:
    """Return the file's text as it is after saving `preset`; `opened_text` is the present one, None without a file."""
    where = path or user_presets_folder() / f"{preset.name}.yaml"
    try:
        written = saving.updated(saving.NEW if opened_text is None else opened_text, preset, where)
    except SaveError as fault:
        return FileText(problem=str(fault))
    before, after = (opened_text or "").splitlines(), written.splitlines()
    lines: list[tuple[str, str]] = []
    numbers: list[int] = []  # of the lines of the new text, in `lines`
    changes = 0
    for tag, begin, end, start, stop in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        same = tag == "equal"
        changes += 0 if same else max(end - begin, stop - start)
        for old, new in zip_longest(before[begin:end], after[start:stop]):
            if old is not None and not same:
                lines.append((OLD, old))
            if new is not None:
                numbers.append(len(lines))
                lines.append((SAME if same else NEW, new))
    places = {
        f"{group}.{name}": numbers[located.line - 1]
        for group, values in located_yaml.parse(written).items()
        if isinstance(values.value, dict)
        for name, located in values.value.items()
    }
    return FileText(tuple(lines), places, changes)
