"""What `--help` says of each command, as a user reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import pytest
from gputui.tui.cli.command import cli, run


def helps(context: click.Context) -> Iterator[str]:
    """The help of a command, then that of all commands within it."""
    yield context.get_help()
    if isinstance(context.command, click.Group):
        for name, command in context.command.commands.items():
            yield from helps(command.make_context(name, [], context, resilient_parsing=True))


def test_the_help_of_each_command(snapshot: Any) -> None:
    whole = cli.make_context("gputui", [], resilient_parsing=True, terminal_width=100, max_content_width=100)
    assert "\n\n".join(helps(whole)) == snapshot


@pytest.mark.parametrize(
    ("words", "command"),
    [("--preset", "gputui"), ("logs -n", "gputui logs"), ("compare --pin", "gputui compare")],
)
def test_an_option_without_its_value_names_the_help_of_its_command(
    words: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    assert capsys.readouterr().err.endswith(f"requires an argument.\n{command} --help shows what there is\n")
