"""Opens the form for `gputui FILE.yaml` and `gputui NAME`: a word that is no command names a preset.
Deferred imports: completion and `--help` need nothing of the form."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from ...engine.files.places import PRESET_SUFFIXES, named_presets
from ..base.errors import Refused, clean
from . import completion

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
    """The error message for a word that is neither a command nor a preset, with similar names. `following` are the
    words after it; words for a training are answered with the command line that begins one."""
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
    """Return the form's state for a preset, by its name or path. `settings` are texts KEY=VALUE and become unsaved
    changes. Raises PresetError if the preset or a setting is invalid."""
    from ...engine import presets
    from ..form.form_state import FormState

    changed = presets.resolve(name_or_path, settings)
    state = FormState.open(presets.find(name_or_path).absolute())
    state.become(changed.options)
    return state
