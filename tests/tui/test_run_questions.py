"""What a user is asked and told if a run is stopped, resumed, taken out of the queue or deleted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Run, Title, Trash, code_files, entries, resuming
from tests.doors.engine import runs as runs_module
from tests.doors.tui import Entry, GputuiApp, RunActions, RunsScreen, Waiting, runs_screen
from tests.support import queued, recorded
from tests.support.answering import Answering, act
from tests.support.tiny import wait_for


class Shown(RunActions):
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


@pytest.mark.parametrize(("settings", "seconds"), [(("run.checkpoint=epoch",), 60), (("run.checkpoint=off",), 12)])
def test_a_stop_is_not_asked_about_if_nothing_is_lost(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], seconds: int
) -> None:
    """There is a checkpoint, or no step was done."""
    stopped: list[Run] = []
    monkeypatch.setattr(runs_module, "request_stop", stopped.append)
    run = recorded.write(home, gpus=0, seconds=seconds, outcome=None, engine_pid=os.getpid(), settings=settings)
    act(Shown(run), "stop")
    assert (app.asked, stopped, set(app.stopping_runs)) == ([], [run], {run.id})
    assert app.told == ["stopping after this step; press x again to stop at once (information)"]


# ---- notes and tags -------------------------------------------------------------------------------------


def two(home: Path) -> list[Run]:
    return [recorded.write(home, name=f"20260921-1{number}0000-cnn", gpus=0, seconds=20) for number in range(2)]


# ---- the queue ------------------------------------------------------------------------------------------


def test_a_run_that_has_begun_before_keeps_its_result_if_it_is_taken_out_of_the_queue(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued.no_runner(monkeypatch)
    run = queued.waiting("one")
    queued.add(run)
    run.file("result.json").write_text('{"outcome": "stopped"}')
    app.answers = [None]
    act(Shown(run), "take_out")
    ((question, _),) = app.asked
    assert question.endswith("It has begun before: its result and its checkpoints stay.")
    assert [entry.run for entry in entries.all_entries()] == [run.id]


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

    def _delete(self, chosen: Any, sizes: Any, place: str, for_good: bool) -> None:  # type: ignore[override]
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


@pytest.mark.parametrize(("count", "told"), [(1, ["deleted 1 run for good: 1.0 KiB are free (information)"]), (0, [])])
def test_what_was_deleted_is_said_with_what_brings_it_back(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch, count: int, told: list[str]
) -> None:
    monkeypatch.setattr(Told, "app", app)
    monkeypatch.setattr(app, "call_from_thread", lambda do, *given, **more: do(*given, **more))
    chosen = two(home)
    put = (chosen[:count], ["the last one is in use\x1b"])
    monkeypatch.setattr(runs_screen, "delete_all", lambda runs, reserve: put)
    screen = Told()
    Told._delete.__wrapped__(screen, chosen, {run.id: 1024 for run in chosen}, "runs", True)  # type: ignore[attr-defined]
    assert app.told == [*told, "the last one is in use? (error)"]
    assert screen.readings_begun == 1
    assert not app.acts["runs"].newest_first


# ---- what a start does ----------------------------------------------------------------------------------


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
