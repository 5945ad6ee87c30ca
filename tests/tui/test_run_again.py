"""Runs that are resumed or started again: with which code, what keeps them from it, and what is shown then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gputui.engine.runs import Run, RunError
from gputui.tui.screens import starting
from gputui.tui.screens.starting import Start

from tests.support import recorded
from tests.support.answering import Answering, Shown, act


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Answering:
    made = Answering()
    monkeypatch.setattr(Shown, "app", made, raising=False)
    return made


NEW, COPY = "Go on with the new code", "Use the run's copy"


@pytest.mark.parametrize(
    ("changed", "has_copy", "answer", "given"),
    [
        ("", True, None, (False, False)),
        ("train.py has changed", True, NEW, (True, False)), ("train.py has changed", True, COPY, (False, True)),
        ("train.py has changed", False, NEW, (True, False)), ("train.py has changed", True, "Cancel", None),
        ("train.py has changed", True, None, None),
    ],
)  # fmt: skip
def test_a_run_is_resumed_with_the_code_that_the_user_chooses(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch, changed: str, has_copy: bool, answer: str | None,
    given: tuple[bool, bool] | None,
) -> None:  # fmt: skip
    run, asked_for = recorded.write(home, gpus=0, seconds=20, outcome="stopped"), list[Any]()

    def resumed_run(run: Run, *code: bool) -> Start:
        asked_for.append(code)
        return Start("x", lambda: "", lambda: (run, "engine"), lambda: "")

    monkeypatch.setattr(starting, "code_changed", lambda run: changed)
    monkeypatch.setattr(starting, "resumed_run", resumed_run)
    monkeypatch.setattr("gputui.engine.runs.code_files.can_use_copy", lambda run: has_copy)
    app.answers, app.stopping_runs, screen = [answer], {run.id: None, "other": None}, Shown(run)
    act(screen, "resume")
    answers = (NEW, COPY, "Cancel") if has_copy else (NEW, "Cancel")
    assert app.asked == ([(f"{changed}.\nGo on with the new code?", answers)] if changed else [])
    assert asked_for == ([given] if given else [])
    assert (screen.resumed, app.engines) == (([run], ["engine"]) if given else ([], []))
    assert app.told == ([f"{run.id} is resumed from its last checkpoint (information)"] if given else [])
    assert list(app.stopping_runs) == (["other"] if given else [run.id, "other"]), "it no longer ends"


@pytest.mark.parametrize("fault", [RunError("no checkpoint"), OSError(28, "No space left on device")])
def test_a_run_that_cannot_be_resumed_or_started_again_says_why(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def launch() -> Any:
        raise fault

    run, taken = recorded.write(home, name="20260921-100000-cnn-2", gpus=0, seconds=20), list[str]()

    def new_run(_: Any, preset: Any) -> Start:
        taken.append(preset.name)
        return Start("x", lambda: "", launch, lambda: "")

    monkeypatch.setattr(starting, "code_changed", lambda run: "")
    monkeypatch.setattr(starting, "resumed_run", lambda *_: Start("x", lambda: "", launch, lambda: ""))
    monkeypatch.setattr(starting, "new_run", new_run)
    for action, lead in (("resume", ""), ("again", "cannot run it again: ")):
        screen = Shown(run)
        act(screen, action)
        assert app.told.pop() == f"{lead}{fault} (error)"
        assert (app.told, screen.resumed, app.opened, app.engines) == ([], [], [], [])
    assert taken == ["cnn"], "it is named after its preset"
    run.file("preset.yaml").write_text("train: {epochs: none}\n")
    act(Shown(run), "again")
    assert app.told.pop().startswith("cannot run it again: ")
    assert (app.told, app.opened) == ([], [])


def test_a_run_that_is_started_again_is_opened_and_one_that_waits_is_not(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, again = (recorded.write(home, name=name, gpus=0, seconds=20) for name in ("one", "two"))
    busy = [""]
    monkeypatch.setattr(
        starting, "new_run", lambda *_: Start("x", lambda: busy[0], lambda: (again, "engine"), lambda: "place 1")
    )
    act(Shown(run), "again")
    assert (app.opened, app.engines, app.told) == ([("run", again)], ["engine"], [])
    app.answers, busy[0] = ["Wait for it"], "r1 is running"
    act(Shown(run), "again")
    assert (app.opened, app.engines, app.told) == ([("run", again)], ["engine"], ["queued: x, place 1"])
