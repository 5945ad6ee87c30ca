"""The commands about gputui itself: its options, the guide to own code, shell completion."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from . import completion as completion_command

VARIABLE = "_GPUTUI_COMPLETE"


@click.command()
@click.argument("words", nargs=-1, metavar="[KEY or WORDS]...", shell_complete=completion_command.option)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, for each option.")
def options(words: tuple[str, ...], as_json: bool) -> None:
    """List the options of presets, or explain one of them.

    \b
    gputui options                every option, its default, what it takes and does
    gputui options batch_size     one of them: its range, unit, when it helps and what it costs
    gputui options input          those of a group
    gputui options lr             by another name, or by any word of its help
    """
    from . import options as options_command  # tables, which no other command here needs

    options_command.show_options(" ".join(words), as_json)


@click.command()
def guide() -> None:
    """Explain how to train your own Keras code.

    The guide says what your function `build` may return, and which options apply to it.
    """
    click.echo_via_pager(Path(__file__).with_name("own-code.md").read_text(encoding="utf-8"))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script for tab completion in SHELL.

    It completes commands, presets, runs, proofs and options.

    \b
    bash    echo 'eval "$(gputui completion bash)"' >> ~/.bashrc
    zsh     echo 'eval "$(gputui completion zsh)"' >> ~/.zshrc        after compinit
    fish    gputui completion fish > ~/.config/fish/completions/gputui.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    completer = kind(context.find_root().command, {}, "gputui", VARIABLE)
    # A key ends with `=`, behind which its value is typed, and no space; fish knows that by itself.
    plain = "COMPREPLY+=($value)"
    print(
        completer.source_template.replace(plain, f"{plain}; [[ $value == *= ]] && compopt -o nospace")
        % completer.source_vars()
    )
