"""What the form, the lists and the settings make of inputs, in golden/answers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

import pytest

from tests.contract.conftest import Golden
from tests.contract.test_outputs import there as there
from tests.doors.tui import (
    COLUMNS,
    LimitTexts,
    RunList,
    Settings,
    WrongLimit,
    form_state,
    matching,
    option_search,
    ordered,
    remapped,
)


def form_texts(words: str) -> Iterator[str]:
    """`PRESET OPTION=TEXT ...`: errors, the given options with their marks and values, and the command."""
    name, *given = shlex.split(words)
    state = form_state(name, [])
    for key, _, text in (each.partition("=") for each in given):
        state.set(key, text)
    yield from (f"! {key}: {message}" for key, message in state.errors.items())
    for key in dict.fromkeys(each.partition("=")[0] for each in given):
        said = state.mark(key) or "=", key, repr(state.preset.options.value(key))
        yield "  ".join((*said, *["default"] * state.is_default(key), *filter(None, [state.no_effect(key)])))
    yield " ".join(line.strip() for line in state.command().split("\\\n"))


def options_found(words: str) -> Iterator[str]:
    """The options that the search finds first, with the place in which the words are if that is not the name."""
    hits = option_search.search(words)
    places = [f"{hit.item.key} ({hit.elsewhere.place})" if hit.elsewhere else hit.item.key for hit in hits[:6]]
    near = option_search.suggestion(words)
    yield f"{len(hits)}: {', '.join(places)}" if hits else f"none, {f'but {near}' if near else 'and nothing like it'}"


def keys(words: str) -> Iterator[str]:
    """`VERB KEYS ...`: the keys that are taken, and why others are not."""
    given = shlex.split(words)
    keymap, problems = remapped(dict(zip(given[::2], given[1::2], strict=True)))
    yield from (f"{verb}: {of}" for verb, of in keymap.items())
    yield from problems


def settings(text: str) -> Iterator[str]:
    """A settings file: what differs from the defaults, and what is wrong."""
    path = Path("settings.yaml")
    path.write_text(text.encode().decode("unicode_escape"))
    read, usual = Settings(path), Settings(Path("none.yaml"))
    for section in fields(read._values):
        if (value := read.get(section.name)) != usual.get(section.name):
            yield f"{section.name}: {value}"
    yield from (f"! {problem}" for problem in read.problems)


def search_limits(words: str) -> Iterator[str]:
    """`FIELD=TEXT ...` of the dialog of a search, a set with commas: its unusual limits, or what is wrong."""
    texts = LimitTexts()
    for name, _, text in (each.partition("=") for each in shlex.split(words.strip("-"))):
        several = set(filter(None, text.split(",")))
        if name == "suit":
            texts.suit(several)
        else:
            setattr(texts, name, several if isinstance(getattr(texts, name), set) else text)
    try:
        usual = vars(LimitTexts().limits()).items() if words != "-" else ()
        yield from (f"{name} {value}" for name, value in vars(texts.limits()).items() if (name, value) not in usual)
    except WrongLimit as wrong:
        yield f"! {wrong.name}: {wrong}"


def runs_listed(words: str) -> Iterator[str]:
    """The recorded runs by a column (`COLUMN up` or `down`) with its texts, those that words find, or how moments are
    shown as that of their begin (`begun MOMENT ...`).
    """
    entries = RunList().read()
    if words.startswith("begun "):
        moments = (datetime.fromisoformat(moment).timestamp() for moment in words.split()[1:])
        yield "  ".join(COLUMNS["when"].show(replace(entries[0], when=moment)).strip() for moment in moments)
        return
    column, _, way = words.rpartition(" ")
    if column in COLUMNS and way in ("up", "down"):
        rows = ordered(entries, column, way == "down")
        yield "  ".join(f"{row.name} {COLUMNS[column].show(row).strip() or '-'}" for row in rows)
    else:
        yield " ".join(f"{hit.item.name}:{hit.rank}" for hit in matching(entries, words)) or "none"


TABLES: dict[str, Callable[[str], Iterator[str]]] = {
    table.__name__.replace("_", "-"): table
    for table in (form_texts, options_found, keys, settings, search_limits, runs_listed)
}


@pytest.mark.parametrize("table", TABLES)
def test_what_follows_from_an_input(
    table: str, there: Path, tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    golden.answers(f"answers/{table}.txt", TABLES[table])
