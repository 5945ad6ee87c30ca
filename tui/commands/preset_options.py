"""The options `--preset` and `--set` of the command line, which many commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..base.errors import complain
from . import completion

Command = Callable[..., Any]
SET_HELP = (
    "Set one option, overriding the preset; may be given several times. The group may be left out where the name is "
    "unique. A relative path is resolved from the current folder, one in a preset's file from that file's folder."
)


def preset_option(help: str, required: bool = False) -> Callable[[Command], Command]:
    return click.option(
        "--preset",
        metavar="NAME_OR_PATH",
        required=required,
        help=help,
        shell_complete=completion.preset,
        callback=tell_twin,
    )


def tell_twin(context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    """Warn if a file of the current folder may have been meant; the name itself."""
    from ...engine.presets.by_name import twin  # the help and completion need nothing of presets

    if name is not None and not context.resilient_parsing and (remark := twin(name)):
        complain(remark)
    return name


def settings_option(help: str = SET_HELP) -> Callable[[Command], Command]:
    return click.option(
        "--set", "settings", metavar="KEY=VALUE", multiple=True, help=help, shell_complete=completion.setting
    )
