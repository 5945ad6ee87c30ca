"""The layout of the form: how much room its parts have, which first steps are shown, which options it goes to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.tui.form.form_state import FormState
from gputui.tui.screens.form.screen import FormScreen
from textual.geometry import Size

from tests.support.answering import Answering


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Answering:
    made = Answering()
    monkeypatch.setattr(FormScreen, "app", made)
    return made


@pytest.fixture
def form(app: Answering) -> FormScreen:
    return FormScreen(FormState.open(presets.SHIPPED / "quickstart.yaml"))


@pytest.mark.parametrize(
    ("size", "classes", "room"),
    [
        ((80, 24), "", 14), ((80, 30), "-high", 20), ((80, 29), "", 19), ((80, 20), "", 10), ((80, 19), "-low", 9),
        ((80, 14), "-low", 4), ((80, 13), "-low -tiny", 3), ((171, 40), "-high", 30), ((172, 40), "-high -wide", 37),
    ],
)  # fmt: skip
def test_the_help_leaves_more_rows_to_the_options_on_a_low_terminal_and_all_beside_them(
    form: FormScreen, app: Answering, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], classes: str, room: int
) -> None:
    monkeypatch.setattr(Answering, "size", Size(*size))
    fitted: list[Size] = []
    form.side.fit = fitted.append  # type: ignore[method-assign,assignment]
    form._fit()
    assert ({name for name in form.classes if name != "-narrow"}, form.options.room) == (set(classes.split()), room)
    assert fitted == [Size(*size)]


STEPS = [
    "r    trains this preset; F3 shows it, and it continues if you quit",
    "enter changes the option under the cursor; / finds one by a word",
    "o    opens another preset; `gputui init` begins one for your own code",
    "T    finds the fastest settings of this preset on this machine",
    "F6   checks GPUs, driver and TensorFlow; ? lists all keys, esc closes this",
]


@pytest.mark.parametrize(
    ("height", "lines"), [(40, 5), (30, 5), (29, 1), (20, 1), (19, 0)]
)  # fmt: skip
def test_the_first_steps_are_five_lines_one_line_or_none(
    form: FormScreen, app: Answering, monkeypatch: pytest.MonkeyPatch, height: int, lines: int
) -> None:
    shown: list[Any] = []
    purpose: Any = SimpleNamespace(update=shown.append, styles=SimpleNamespace(height=0), display=None)
    monkeypatch.setattr(Answering, "size", Size(80, height))
    monkeypatch.setattr(FormScreen, "query_one", lambda form, name, kind=None: purpose if name == "#purpose" else None)
    form.introduce()
    assert (purpose.display, purpose.styles.height) == (bool(lines), max(1, lines))
    (text,) = shown
    written = text.plain.split("\n")
    if lines == 5:
        assert [" ".join(line.split()) for line in written] == [" ".join(line.split()) for line in STEPS]
    else:
        assert written == ["r trains this preset, F3 shows it, / finds options, o opens presets, ? helps"]
    form.close_introduction()
    assert purpose.display is False
    waiting = FormScreen(form.state, waits=True)
    waiting.introduce()
    assert len(shown) == 1, "it is not built"


@pytest.mark.parametrize("hidden", [True, False])
def test_to_go_to_an_option_that_is_hidden_ends_the_search_and_unfolds_its_part(
    form: FormScreen, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    did: list[Any] = []
    row = form.options.rows["train.seed"]
    row.display = not hidden
    monkeypatch.setattr(form, "_end_search", lambda: did.append("ended"))
    monkeypatch.setattr(form.options, "reveal", did.append)
    monkeypatch.setattr(row, "focus", lambda: did.append("focus"))
    form.go_to("train.seed")
    assert did == [*(["ended", "train.seed"] if hidden else []), "focus"]
