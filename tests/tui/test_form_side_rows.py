"""The preset's file next to the options, row by row: its head, the option under the cursor, and which part is seen."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.tui.drawing.rows import Row, plain
from gputui.tui.form.file_text import FileText, file_text
from gputui.tui.form.form_state import FormState
from gputui.tui.screens.form import side as side_module
from gputui.tui.screens.form.side import FormSide
from textual.geometry import Size

from tests.support.answering import Answering

OPTIONS = {
    "train.epochs": "3", "train.seed": "5", "train.learning_rate": "0.001", "input.batch_size": "32",
    "input.prefetch": "4", "input.shuffle": "100", "compile.xla": "true", "precision.policy": "float32",
}  # fmt: skip


class Side(FormSide):
    """The side of a form, which is not run, with the cursor on an option."""

    key = ""

    @property
    def _key(self) -> str:
        return self.key


@pytest.fixture
def state(tmp_path: Path) -> FormState:
    path = tmp_path / "mine.yaml"
    groups: dict[str, list[str]] = {}
    for key, text in OPTIONS.items():
        group, name = key.split(".")
        groups.setdefault(group, []).append(f"  {name}: {text}")
    lines = [line for group, below in groups.items() for line in (f"{group}:", *below)]
    path.write_text("# mine\n" + "\n".join(lines) + "\n")
    return FormState.open(path)


def side_of(state: FormState) -> Side:
    side = Side(state)
    side._file = file_text(state.preset, state.path, state.opened_text)
    return side


def shown(side: Side, height: int, width: int = 60) -> list[str]:
    return [plain(row).rstrip() for row in side._file_rows(width, height)]


def marked(rows: list[Row]) -> list[str]:
    return [text for row in rows for text, style in row if style == "here"]


ALL = [
    "  # mine", "  train:", "    epochs: 3", "    seed: 5", "    learning_rate: 0.001", "  input:",
    "    batch_size: 32", "    prefetch: 4", "    shuffle: 100", "  compile:", "    xla: true", "  precision:",
    "    policy: float32",
]  # fmt: skip


def test_the_line_of_the_option_is_marked_and_kept_in_view(state: FormState) -> None:
    side = side_of(state)
    assert shown(side, 20) == ["mine.yaml  as saved", *ALL]
    for key, height, first in (
        ("train.seed", 6, 0), ("train.epochs", 6, 0), ("input.batch_size", 6, 4), ("input.shuffle", 6, 4),
        ("input.prefetch", 6, 4), ("compile.xla", 6, 8), ("precision.policy", 6, 8), ("input.prefetch", 6, 5),
        ("train.epochs", 6, 0), ("precision.policy", 4, 10), ("precision.policy", 9, 5), ("precision.policy", 20, 0),
    ):  # fmt: skip
        side.key = key
        lines = [line if key.split(".")[1] + ":" not in line else f"> {line[2:]}" for line in ALL]
        assert shown(side, height) == ["mine.yaml  as saved", *lines[first : first + height - 1]], (key, height)
        assert marked(side._file_rows(60, height)) == [f"{key.split('.')[1]}: {OPTIONS[key]}"]


def test_changed_lines_are_counted_and_an_option_that_the_file_lacks_is_named(state: FormState) -> None:
    state.put({"input.batch_size": "64", "train.seed": "6"})
    side = side_of(state)
    assert shown(side, 20)[0] == "mine.yaml  2 changed lines"
    side.key = "train.momentum"
    assert shown(side, 20)[0] == "mine.yaml  2 changed lines, without train.momentum"
    side.key = "input.batch_size"
    assert shown(side, 20)[8:10] == [" -  batch_size: 32", ">+  batch_size: 64"]
    styles = {text: style for row in side._file_rows(60, 20) for text, style in row}
    assert (styles["  batch_size: 32"], styles["# mine"], styles["train:"]) == ("label", "label", "value")
    side.state = FormState(None, state.opened)
    side._file = FileText(problem="the file cannot be changed")
    assert shown(side, 20) == [f"{state.name}.yaml  the file cannot be? changed"] or shown(side, 20)[0].startswith(
        "mine"
    )
    side._file = None
    assert shown(side, 20) == []


def test_each_part_of_the_side_is_shown_from_a_size_of_the_terminal_on(
    state: FormState, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Answering()
    monkeypatch.setattr(Side, "app", app)
    side = Side(state)
    for columns, rows, parts, width in (
        (159, 40, "", "1fr"), (160, 14, "-broad", "1fr"), (160, 13, "", "1fr"), (171, 40, "-broad", "1fr"),
        (172, 30, "-broad -file", "54"), (172, 29, "-broad", "54"), (173, 13, "", "55"),
        (200, 60, "-broad -file", "82"),
    ):  # fmt: skip
        side.fit(Size(columns, rows))
        assert (set(side.classes), str(side.styles.width)) == (set(parts.split()), width), (columns, rows)
    app.settings.change("form.file_view", False)
    side.fit(Size(200, 60))
    assert set(side.classes) == {"-broad"}
    app.settings.flush()


def test_the_runs_and_the_file_of_a_preset_that_is_no_longer_in_the_form_are_not_shown(
    state: FormState, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[Any, Any]] = []
    shown: list[Any] = []
    monkeypatch.setattr(side_module, "in_background", lambda _of, read, take: taken.append((read, take)))
    monkeypatch.setattr(Side, "app", Answering())
    monkeypatch.setattr(Side, "_show_experience", lambda side: shown.append(side._experience))
    monkeypatch.setattr(Side, "_show_file", lambda side: shown.append(side._file))
    side, first = Side(state), state.preset
    side.fit(Size(200, 60))
    side.read()
    side.read()
    assert len(taken) == 3, "the file is read once, the runs until they have been read"
    (_, take_runs), (read_file, take_file), _ = taken
    file = read_file()
    take_file(file)
    assert (shown, file) == ([file], file_text(first, state.path, state.opened_text))
    mine = SimpleNamespace(preset="mine")
    take_runs(mine)
    assert shown.pop() is mine
    other = FormState.open(presets.SHIPPED / "quickstart.yaml")
    taken.clear()
    side.load(other)
    shown.clear()
    take_runs(mine)
    take_file(FileText(problem="late"))
    assert shown == [], "they are of the former preset"
    assert len(taken) == 2
    taken[0][1](SimpleNamespace(preset="quickstart"))
    taken[1][1](FileText())
    assert [type(each) for each in shown] == [SimpleNamespace, FileText]
    side.read()
    assert len(taken) == 2, "all of it has been read"


def test_long_lines_go_on_in_indented_rows_which_belong_to_their_option(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("input: {batch_size: 32, prefetch: 4, shuffle: 100, cache: memory}  # one two three\n")
    side = side_of(FormState.open(path))
    side.key = "input.shuffle"
    assert shown(side, 9, 34) == [
        "mine.yaml  as saved", "> input: {batch_size: 32,", "    prefetch: 4, shuffle: 100,",
        "    cache: memory}  # one two", "    three",
    ]  # fmt: skip
    assert marked(side._file_rows(34, 9)) == ["shuffle: 100"]
