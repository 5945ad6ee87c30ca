"""Shell completion, and its command: names of presets, runs and proofs, and keys of options. Nothing may fail here, as
the shell would print the error into the command line.
Deferred imports: a shell waits for each answer, and a question needs one of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from ...engine.files.places import PRESET_SUFFIXES, named_presets, proofs_folder, runs_folder
from ...engine.queue import entry_names

VARIABLE, WITHOUT_TITLES = "_GPUTUI_COMPLETE", "bash"  # the request of the shell; of bash, which shows words alone
MOST = 200  # of the newest runs: more are not looked through in a shell
WORDS = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
REPLY = "COMPREPLY+=($value)"
# A key ends with `=`. Its value follows without a space; zsh and fish need no instruction for that.
NO_SPACE = "[[ $value == *= ]] && compopt -o nospace"


@add_completion_class
class Bash(BashComplete):
    """Bash divides `xla=true` into three words: it gives the line, and takes what follows the part it has left out
    (`$2`).
    """

    source_template = (
        BashComplete.source_template.replace(WORDS, 'COMP_WORDS="${COMP_LINE:0:COMP_POINT}"')
        .replace("local response", 'local response word="${COMP_LINE:0:COMP_POINT}"; word="${word##* }"')
        .replace(REPLY, f'COMPREPLY+=("${{value#"${{word%%"$2"}}"}}"); {NO_SPACE}')
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)
        incomplete = words.pop() if words and not line[-1].isspace() else ""
        return words[1:], incomplete


def _fitting(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    # Users may remember only a part of an id.
    names = list(names)
    matches = [name for name in names if name.startswith(incomplete)] or [name for name in names if incomplete in name]
    return [CompletionItem(name) for name in matches[:MOST]]


def preset(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Propose preset files of the current folder, too. The shell itself completes paths."""
    if os.sep in incomplete or incomplete.startswith((".", "~")):
        return [CompletionItem(incomplete, type="file")]
    names: list[str] = []
    with contextlib.suppress(OSError):
        names += named_presets()
        names += sorted(name for name in os.listdir() if name.endswith(PRESET_SUFFIXES))
    return _fitting(names, incomplete)


def run(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`latest`, the short names and the ids, the newest first, with titles if the shell shows them."""
    from ...engine.files import run_numbers

    ids, short = _folders(runs_folder()), run_numbers.short_names(runs_folder())
    named = {short[name]: name for name in ids if name in short}
    items = _fitting(["latest", *named, *ids], incomplete)
    if not os.environ.get(VARIABLE, "").startswith(WITHOUT_TITLES):
        from ...engine.runs import Run, title

        for item in items:
            if item.value != "latest":
                item.help = title(Run(runs_folder() / named.get(item.value, item.value)))
    return items


def ended_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave out `latest` and ids that are already on the command line."""
    return [item for item in _unnamed(context, run(context, parameter, incomplete)) if item.value != "latest"]


def queued_run(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _unnamed(context, _fitting(entry_names(), incomplete))


def _unnamed(context: click.Context, items: list[CompletionItem]) -> list[CompletionItem]:
    return [item for item in items if item.value not in (context.params.get("names") or ())]


def tag(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from ...engine.runs import Run, titles

    tags = {tag: None for name in _folders(runs_folder()) for tag in titles.read_notes(Run(runs_folder() / name)).tags}
    return _fitting(sorted(tags), incomplete)


def proof(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`latest` and the ids, the newest first."""
    return _fitting(["latest", *_folders(proofs_folder())], incomplete)


def _folders(parent: os.PathLike[str]) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        return sorted((entry.name for entry in entries if entry.name[:1].isdigit()), reverse=True)
    return []


def option(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Whole keys if `incomplete` has a point, else names."""
    from ...engine.options import OPTIONS

    names = [info.key if "." in incomplete else info.name for info in OPTIONS]
    return _fitting(names, incomplete)


def setting(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`KEY=`, or KEY=WORD for the fixed words of an option."""
    from ...engine.options import OPTIONS

    name, equals, begun = incomplete.partition("=")
    if not equals:
        return [CompletionItem(f"{item.value}=") for item in option(context, parameter, incomplete)]
    options = [info for info in OPTIONS if name in (info.key, info.name)]
    words = [word for info in options for word in info.fixed_values or (("true", "false") if info.is_bool else ())]
    return [CompletionItem(f"{name}={word}") for word in words if word.startswith(begun)]


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """It completes commands, presets, runs, proofs and options.

    \b
    bash    echo 'eval "$(gputui completion bash)"' >> ~/.bashrc
    zsh     echo 'eval "$(gputui completion zsh)"' >> ~/.zshrc        after compinit
    fish    gputui completion fish > ~/.config/fish/completions/gputui.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    completer = kind(context.find_root().command, {}, "gputui", VARIABLE)
    print(completer.source_template % completer.source_vars())
