"""Runs that are resumed or started again: with which code, what keeps them from it, and what is shown then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import checks, presets
from gputui.engine.checks import Finding
from gputui.engine.job import this_machine
from gputui.engine.process import launch, resuming
from gputui.engine.runs import Run, RunError, code_files
from gputui.engine.runs.titles import with_name
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
    said = app.told.pop()
    assert (said[:21], said[-8:]) == ("cannot run it again: ", " (error)")
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


def test_a_fit_of_the_users_own_script_is_neither_started_nor_changed_here(home: Path, app: Answering) -> None:
    run = recorded.write(home, gpus=0, seconds=20)
    run.file("preset.yaml").write_text("schema_version: 1\ntrain: {epochs: 3}\n")  # as Monitor writes it
    act(Shown(run), "again")
    asyncio.run(Shown(run).action_change())
    start, change = (f"this is a fit of your own script: {verb} it there" for verb in ("start", "change"))
    assert app.told == [f"{start} (error)", f"{change} (error)"]
    assert (app.opened, app.asked) == ([], [])


# ---- what a start does ----------------------------------------------------------------------------------


def finding(level: str, message: str) -> Finding:
    return Finding(level, ("strategy.kind",), message, "take another")


@pytest.mark.parametrize(
    ("by_command", "of_kind", "of_python", "refusal"),
    [
        ([], [], [], ""), (["warning"], ["note"], ["warning"], ""), (["warning", "error"], ["error"], [], "command 1"),
        (["note"], ["warning", "error"], ["error"], "kind 1"), ([], [], ["error"], "python 0"),
    ],
)  # fmt: skip
def test_a_resumed_run_is_checked_and_the_first_error_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, by_command: list[str], of_kind: list[str], of_python: list[str],
    refusal: str,
) -> None:  # fmt: skip
    run, resumed = recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=20), list[Any]()

    def findings(what: str, levels: list[str]) -> Any:
        return lambda *_: [finding(level, f"{what} {number}") for number, level in enumerate(levels)]

    def resume(*given: Any, **named: Any) -> str:
        resumed.append((given, named))
        return "engine"

    monkeypatch.setattr(checks, "by_command", findings("command", by_command))
    monkeypatch.setattr(checks, "of_kind", findings("kind", of_kind))
    monkeypatch.setattr(checks, "of_resumed", findings("python", of_python))
    monkeypatch.setattr(resuming, "resume", resume)
    for new_code, from_copy in ((False, False), (True, False), (False, True)):
        start = starting.resumed_run(run, new_code, from_copy)
        resumed.clear()
        if refusal:
            with pytest.raises(RunError) as refused:
                start.launch()
            assert str(refused.value) == f"{run.name} cannot be resumed: strategy.kind: {refusal}; take another"
            assert resumed == []
        else:
            assert start.launch() == (run, "engine")
            assert resumed == [((run, new_code), {"from_copy": from_copy})]
        assert (start.title, start.measures) == (with_name(run), False)


def test_code_that_has_changed_matters_only_if_there_is_a_checkpoint(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded.write(home, gpus=0, seconds=20)
    monkeypatch.setattr(code_files, "describe", lambda run: "train.py has changed")
    assert starting.code_changed(run) == ""
    run.file("checkpoints/step-0000000010").mkdir(parents=True)
    assert starting.code_changed(run) == "train.py has changed"


@pytest.mark.parametrize(("new", "copy", "code"), [(False, False, ""), (True, False, "new"), (False, True, "copy")])
def test_a_resumed_run_waits_with_the_code_that_was_chosen(
    home: Path, monkeypatch: pytest.MonkeyPatch, new: bool, copy: bool, code: str
) -> None:
    run, queued = recorded.write(home, gpus=0, seconds=20), list[Any]()

    def queue_resume(run: Run, code: str) -> str:
        queued.append((run, code))
        return "entry"

    monkeypatch.setattr("gputui.engine.queue.adding.queue_resume", queue_resume)
    monkeypatch.setattr("gputui.tui.reading.queue.place_text", lambda entry, title: f"{entry} is first")
    assert starting.resumed_run(run, new, copy).queue() == "entry is first"
    assert queued == [(run, code)]


def test_a_new_run_is_checked_and_begun_by_the_engine_that_waits_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [finding("warning", "slow")]
    monkeypatch.setattr(checks, "on_screen", lambda preset, here: found)
    monkeypatch.setattr(this_machine, "read", lambda: "here")
    monkeypatch.setattr(launch, "start", lambda preset: ("cold", preset))
    warm: Any = SimpleNamespace(start=lambda preset: ("warm", preset))
    preset = presets.resolve("quickstart")
    begun: list[Any] = [starting.start(preset, None), starting.start(preset, warm)]
    assert begun == [("cold", preset), ("warm", preset)]
    found += [finding("error", "no GPU"), finding("error", "no disk")]
    for engine in (None, warm):
        with pytest.raises(starting.ConflictError) as conflict:
            starting.start(preset, engine)
        assert str(conflict.value) == "strategy.kind: no GPU; take another"
        here: Any = conflict.value.here
        assert (here, conflict.value.findings) == ("here", tuple(found))
