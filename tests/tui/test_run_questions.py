"""What a user is asked and told if a run is stopped, resumed, taken out of the queue or deleted."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    Run,
    RunError,
    Title,
    Trash,
    adding,
    checks,
    code_files,
    entries,
    entry_changes,
    resuming,
    titles,
    with_name,
)
from tests.doors.engine import checks_Finding as Finding
from tests.doors.engine import runs as runs_module
from tests.doors.tui import Entry, GputuiApp, QueueActions, RunsScreen, Start, Waiting, queue, runs_actions, starting
from tests.support import queued, recorded
from tests.support.answering import Answering, act
from tests.support.recorded import deleted
from tests.support.tiny import wait_for


class Shown(QueueActions):
    """A screen of some runs, which is not run. `seen` are those that it has shown again."""

    def __init__(self, *meant: Run) -> None:
        super().__init__()
        self.meant = list(meant)
        self.seen: list[Run] = []
        self.resumed: list[Run] = []

    @property
    def runs_meant(self) -> list[Run]:
        return self.meant

    @property
    def waiting_now(self) -> Waiting | None:
        return None

    def acted(self, run: Run, resumed: bool = False) -> None:
        (self.resumed if resumed else self.seen).append(run)

    def refresh_bindings(self) -> None:
        """There is no footer."""

    def call_later(self, *_: Any) -> bool:
        return True


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Answering:
    made = Answering()
    for kind in (Shown, RunsScreen):
        monkeypatch.setattr(kind, "app", made, raising=False)
    return made


# ---- stopping -------------------------------------------------------------------------------------------

NOW = (
    "This run has been asked to stop and finishes its step.\n"
    "Stop it now? Everything after the last checkpoint is lost.",
    ("Stop now", "Keep waiting"),
)
AFTER = "stopping after this step; press x again to stop at once (information)"
AT_ONCE = "stopping at once (information)"
OFF = ("run.checkpoint=off",)


@pytest.mark.parametrize(
    ("settings", "seconds", "status", "answer", "question", "told"),
    [
        (("run.checkpoint=epoch",), 60, {}, None, None, AFTER),
        (OFF, 12, {}, None, None, AFTER),  # no step was done
        (OFF, 60, {}, "Stop", "lost", AFTER),
        (OFF, 60, {}, "Keep running", "lost", ""),
        (OFF, 60, {}, None, "lost", ""),
        ((), 60, {"asked_by_person": True}, "Stop now", NOW, AT_ONCE),
        (OFF, 60, {"asked_by_person": True}, "Keep waiting", NOW, ""),
        ((), 60, {"asked_by_person": True}, None, NOW, ""),
    ],
)
def test_a_stop_is_asked_about_only_if_something_is_lost(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], seconds: int,
    status: dict[str, Any], answer: str | None, question: Any, told: str,
) -> None:  # fmt: skip
    stopped: list[Run] = []
    monkeypatch.setattr(runs_module, "request_stop", stopped.append)
    run = recorded.write(home, gpus=0, seconds=seconds, outcome=None, engine_pid=os.getpid(), settings=settings)
    run.file("status.json").write_text(json.dumps(json.loads(run.file("status.json").read_text()) | status))
    app.answers, screen = [answer], Shown(run)
    act(screen, "stop")
    lost = (
        f"{run.id} keeps no checkpoint (run.checkpoint is off): 480 of 480 steps, 0:59 of training, cannot be "
        "resumed.\nStop it?"
    )
    asked = [(lost, ("Stop", "Keep running"))] if question == "lost" else [question] if question else []
    assert app.asked == asked
    assert app.told == ([told] if told else [])
    assert (stopped, screen.seen) == (([run], [run]) if told else ([], []))
    assert set(app.stopping_runs) == ({run.id} if told else set())


def test_a_stop_that_is_refused_says_why_and_the_next_one_asks_nothing_more(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run: Run) -> None:
        raise RunError(f"{run.name} is not running")

    monkeypatch.setattr(runs_module, "request_stop", refuse)
    run = recorded.write(home, gpus=0, seconds=20)
    screen = Shown(run)
    act(screen, "stop")
    assert (app.told, app.stopping_runs, screen.seen) == ([f"{run.name} is not running (information)"], {}, [run])
    act(Shown(), "stop")
    assert len(app.told) == 1


# ---- notes and tags -------------------------------------------------------------------------------------


def two(home: Path) -> list[Run]:
    return [recorded.write(home, name=f"20260921-1{number}0000-cnn", gpus=0, seconds=20) for number in range(2)]


def test_of_a_run_that_another_gputui_has_deleted_that_is_said(home: Path, app: Answering) -> None:
    run, _ = two(home)
    deleted(run)
    screen = Shown(run)
    gone = f"{run.name} has been deleted meanwhile (error)"
    app.answers = ["after the fix"]
    for action, said in (("note", f"not written: {gone}"), ("again", f"cannot run it again: {gone}"), ("resume", gone)):
        act(screen, action)
        assert app.told.pop() == said
    asyncio.run(screen.action_change())
    assert app.told.pop() == gone
    assert (app.told, app.acts["runs"].newest_first) == ([], [])


# ---- the queue ------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    queued.no_runner(monkeypatch)
    made = [queued.waiting(name) for name in ("one", "two", "three")]
    queued.add(*made)
    return made


def order() -> list[str]:
    return [entry.run.split("-")[-1] for entry in entries.all_entries()]


def test_a_run_that_has_left_the_queue_during_a_move_is_not_put_back(
    waiting: list[Run], app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = entry_changes.move

    def move_and_start(run: str, where: Any) -> None:
        move(run, where)
        entry_changes.remove(waiting[2].id)

    monkeypatch.setattr(entry_changes, "move", move_and_start)
    restored: list[Any] = []
    monkeypatch.setattr(entry_changes, "restore_places", restored.append)
    act(Shown(waiting[1]), "move_waiting", "up")
    app.acts["runs"].newest_first[0].take_back()
    assert [set(places) for places in restored] == [{waiting[0].id, waiting[1].id}]


def test_a_run_is_held_and_released_and_what_is_refused_is_said(waiting: list[Run], app: Answering) -> None:
    screen = Shown(waiting[1])
    act(screen, "hold_waiting")
    assert [entry.state for entry in entries.all_entries()] == ["waiting", "held", "waiting"]
    act(screen, "release_waiting")
    assert [entry.state for entry in entries.all_entries()] == ["waiting"] * 3
    assert (screen.seen, app.told) == ([waiting[1]] * 2, [])
    entry_changes.remove(waiting[1].id)
    act(screen, "hold_waiting")
    assert (len(app.told), screen.seen) == (1, [waiting[1]] * 3)
    app.answers = ["Take out"]
    act(screen, "take_out")
    act(screen, "move_waiting", "up")
    assert [text.endswith("(error)") for text in app.told] == [True] * 3
    assert (app.acts["runs"].newest_first, screen.seen) == ([], [waiting[1]] * 5), "nothing was done"


@pytest.mark.parametrize("answer", ["Take out", "Keep waiting", None])
@pytest.mark.parametrize(
    ("has_result", "text"),
    [
        (False, "It has not begun, and ends as stopped; its folder stays."),
        (True, "It has begun before: its result and its checkpoints stay."),
    ],
)
def test_a_run_is_taken_out_of_the_queue_only_after_a_question(
    waiting: list[Run], app: Answering, answer: str | None, has_result: bool, text: str
) -> None:
    run, name = waiting[1], titles.with_name(waiting[1])
    if has_result:
        run.file("result.json").write_text('{"outcome": "stopped"}')
    app.answers, screen = [answer], Shown(run)
    act(screen, "take_out")
    assert app.asked == [(f"Take {name} out of the queue?\n{text}", ("Take out", "Keep waiting"))]
    if answer != "Take out":
        assert (order(), app.told, screen.seen) == (["one", "two", "three"], [], [])
        return
    assert (order(), screen.seen) == (["one", "three"], [run])
    assert app.told == [f"{name} is taken out of the queue; u puts it back (information)"]
    (taken,) = app.acts["runs"].newest_first
    assert (taken.what, taken.done) == (f"took {name} out of the queue", f"{name} waits in the queue again")
    taken.take_back()
    assert order() == ["one", "two", "three"]


# ---- deleting -------------------------------------------------------------------------------------------


class Deleting(RunsScreen):
    """The list of runs with some of them marked, without its table. `deleted` has what is to be deleted for good."""

    def __init__(self, runs: Sequence[Run], **fields: Any) -> None:
        super().__init__()
        self.marked = {run.id: run for run in runs}
        self.listed_now = [
            replace(Entry(run, "ok", Title("cnn"), number=at + 1), **fields) for at, run in enumerate(runs)
        ]
        self.deleted: list[Any] = []

    @property
    def entries(self) -> list[Entry]:
        return self.listed_now

    def _delete(self, chosen: Any, sizes: Any, for_good: bool) -> None:  # type: ignore[override]
        self.deleted.append(([item.id for item in chosen], for_good))


@pytest.mark.parametrize(
    ("second", "deleted"), [("Delete for good", [(["20260921-100000-cnn"], True)]), ("Keep", []), (None, [])]
)
def test_what_cannot_be_brought_back_is_asked_about_twice(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch, second: str | None, deleted: list[Any]
) -> None:
    monkeypatch.setattr(Trash, "refusal", lambda trash, folder: f"{folder.name} is full")
    screen = Deleting(two(home)[:1])
    screen.shown = {entry.run.id: entry for entry in screen.entries}
    app.answers = ["Delete", second]
    act(screen, "delete")
    question = "Nothing can be kept to be brought back (runs is full).\nDelete for good?"
    assert app.asked[1:] == [(question, ("Delete for good", "Keep"))]
    assert screen.deleted == deleted


def test_a_run_that_waits_is_not_deleted(home: Path, app: Answering) -> None:
    screen = Deleting(two(home), state="waiting")
    act(screen, "delete")
    assert (app.asked, app.told) == ([], ["r1 cnn waits in the queue; x takes it out (information)"])


class Told(RunsScreen):
    """The list of runs, which only counts how often it is read again."""

    readings_begun = 0

    def read_again(self) -> None:
        self.readings_begun += 1

    def call_later(self, *_: Any) -> bool:
        return True


@pytest.mark.parametrize(
    ("count", "for_good", "told", "act_of_it"),
    [
        (1, False, "deleted 1 run; u brings it back; quitting frees 1.0 KiB",
         ("deleted 1 run: 20260921-100000-cnn", "1 run was restored")),
        (2, False, "deleted 2 runs; u brings them back; quitting frees 2.0 KiB",
         ("deleted 2 runs: 20260921-100000-cnn and 1 more", "2 runs were restored")),
        (1, True, "deleted 1 run for good: 1.0 KiB are free", None),
        (0, False, "", None),
    ],
)  # fmt: skip
def test_what_was_deleted_is_said_with_what_brings_it_back(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch, count: int, for_good: bool, told: str,
    act_of_it: tuple[str, str] | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(Told, "app", app)
    monkeypatch.setattr(app, "call_from_thread", lambda do, *given, **more: do(*given, **more))
    chosen = two(home)
    put = (chosen[:count], ["the last one is in use\x1b"])
    monkeypatch.setattr(Trash, "put", lambda trash, runs: put)
    monkeypatch.setattr(runs_actions, "delete_all", lambda runs, reserve: put)
    screen = Told()
    Told._delete.__wrapped__(screen, chosen, {run.id: 1024 for run in chosen}, for_good)  # type: ignore[attr-defined]
    expected = [f"{told} (information)"] if told else []
    assert app.told == [*expected, "the last one is in use? (error)"]
    assert screen.readings_begun == 1
    acts = [(each.what, each.done, each.key) for each in app.acts["runs"].newest_first]
    assert acts == ([(*act_of_it, chosen[0].id)] if act_of_it else [])


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
    monkeypatch.setattr(code_files, "can_use_copy", lambda run: has_copy)
    app.answers, app.stopping_runs, screen = (
        [answer],
        {run.id: None, "other": None},
        Shown(run),
    )
    act(screen, "resume")
    answers = (NEW, COPY, "Cancel") if has_copy else (NEW, "Cancel")
    assert app.asked == ([(f"{changed}.\nGo on with the new code?", answers)] if changed else [])
    assert asked_for == ([given] if given else [])
    assert (screen.resumed, app.engines) == (([run], ["engine"]) if given else ([], []))
    assert app.told == ([f"{run.id} is resumed from its last checkpoint (information)"] if given else [])
    assert list(app.stopping_runs) == (["other"] if given else [run.id, "other"]), "it no longer ends"


def test_a_run_that_is_started_again_is_opened_and_one_that_waits_is_not(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, again = (recorded.write(home, name=name, gpus=0, seconds=20) for name in ("one", "two"))
    busy = [""]
    monkeypatch.setattr(
        starting, "new_run", lambda *_: Start("x", lambda: busy[0], lambda: (again, "engine"), lambda: "place 1")
    )
    act(Shown(run), "again")
    assert (app.opened, app.engines, app.told) == (
        [("run", again)],
        ["engine"],
        [],
    )
    app.answers, busy[0] = ["Wait for it"], "r1 is running"
    act(Shown(run), "again")
    assert (app.opened, app.engines, app.told) == (
        [("run", again)],
        ["engine"],
        ["queued: x, place 1"],
    )


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


@pytest.mark.parametrize(("new", "copy", "code"), [(False, False, ""), (True, False, "new"), (False, True, "copy")])
def test_a_resumed_run_waits_with_the_code_that_was_chosen(
    home: Path, monkeypatch: pytest.MonkeyPatch, new: bool, copy: bool, code: str
) -> None:
    run, queued = recorded.write(home, gpus=0, seconds=20), list[Any]()

    def queue_resume(run: Run, code: str) -> str:
        queued.append((run, code))
        return "entry"

    monkeypatch.setattr(adding, "queue_resume", queue_resume)
    monkeypatch.setattr(queue, "place_text", lambda entry, title: f"{entry} is first")
    assert starting.resumed_run(run, new, copy).queue() == "entry is first"
    assert queued == [(run, code)]


@pytest.mark.parametrize("answer", ["", "g", "u"], ids=["as-it-was", "new-code", "copy"])
async def test_a_stopped_run_is_resumed_in_two_keystrokes(
    answer: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose code was edited since is resumed after a question: with the new code, or with the run's copy."""
    edited = bool(answer)
    run = recorded.write(home, name="20260921-120000-mine", gpus=0, seconds=30, outcome="stopped")
    resumed: list[Run] = []
    run.file("checkpoints/step-0000000100").mkdir(parents=True)
    code = tmp_path / "train.py"
    code.write_text("x = 1")
    code_files.add(run, tmp_path, [str(code)])
    run.file("code").mkdir()
    run.file("code/train.py").write_text("x = 1")
    code.write_text("x = 2" if edited else "x = 1")

    def resume(run: Run, new_code: bool, from_copy: bool) -> str:
        resumed.append(run)
        assert (new_code, from_copy) == (answer == "g", answer == "u")
        return "engine"

    monkeypatch.setattr(resuming, "resume", resume)
    app = GputuiApp()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("f3")
        await wait_for(pilot, run.id)
        await pilot.press("R")
        if edited:
            await wait_for(pilot, "train.py (1 line) has changed since")
            await pilot.press("escape", "R")
            await wait_for(pilot, "Go on with the new code?")
            assert resumed == []
            await pilot.press(answer)
        await wait_for(pilot, "mine is resumed")
        assert resumed == [run]
        assert app.engines == ["engine"]
