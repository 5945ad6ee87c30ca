"""What a user is asked and told if a run is stopped, noted, tagged, taken out of the queue or deleted."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.queue import entries, entry_changes
from gputui.engine.runs import Run, RunError, titles
from gputui.engine.runs.titles import Notes, Title
from gputui.engine.runs.trash import Trash
from gputui.tui.reading.run_list import Entry
from gputui.tui.screens.runs import queue_actions
from gputui.tui.screens.runs.actions import AskNote, AskTags, ended
from gputui.tui.screens.runs.screen import RunsScreen

from tests.support import queued, recorded
from tests.support.answering import Answering, Shown, act
from tests.support.deleting import deleted


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
    monkeypatch.setattr("gputui.engine.runs.request_stop", stopped.append)
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

    monkeypatch.setattr("gputui.engine.runs.request_stop", refuse)
    run = recorded.write(home, gpus=0, seconds=20)
    screen = Shown(run)
    act(screen, "stop")
    assert (app.told, app.stopping_runs, screen.seen) == ([f"{run.name} is not running (information)"], {}, [run])
    act(Shown(), "stop")
    assert len(app.told) == 1


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("ok", "done"),
        ("stopped", "stopped"),
        ("timeout", "ended by its time limit"),
        ("crashed", "crashed"),
        (None, ""),
    ],
)
def test_a_question_about_a_run_that_has_ended_meanwhile_says_how(home: Path, outcome: Any, words: str) -> None:
    run = recorded.write(home, gpus=0, seconds=20, outcome=outcome, engine_pid=None if outcome else os.getpid())
    assert ended(run) == (f"{run.id} has ended meanwhile: {words}" if words else "")


# ---- notes and tags -------------------------------------------------------------------------------------


def test_a_note_is_in_one_line_and_has_at_most_a_thousand_characters() -> None:
    dialog = AskNote("Note on x", Notes("two\n  lines", ()))
    assert dialog.text == "two lines"
    assert [dialog.refuse("x" * count) for count in (0, 1000, 1001)] == ["", "", "give at most 1,000 characters"]


def test_tags_have_no_blanks_and_at_most_32_characters() -> None:
    dialog = AskTags("Tags of x", ["a", "b"])
    assert dialog.text == "a b"
    rule = "use at most 32 characters, without blanks, commas or a leading -"
    for text, refusal in (
        ("", ""), ("#a, b,c", ""), ("x" * 32, ""), ("x" * 33, f"{'x' * 32!r} cannot be a tag: {rule}"),
        ("-a b -c", f"'-a' and '-c' cannot be tags: {rule}"),
    ):  # fmt: skip
        assert dialog.refuse(text) == refusal


def two(home: Path) -> list[Run]:
    return [recorded.write(home, name=f"20260921-1{number}0000-cnn", gpus=0, seconds=20) for number in range(2)]


@pytest.mark.parametrize(
    ("count", "question", "common", "text", "tags", "did"),
    [
        (1, "Tags of 20260921-100000-cnn", "both one", "both, new", [("both", "new"), ("both", "two")],
         "changed the tags of 20260921-100000-cnn"),
        (2, "Tags of 2 runs", "both", "new", [("one", "new"), ("two", "new")], "changed the tags of 2 runs"),
        (2, "Tags of 2 runs", "both", "both", [("both", "one"), ("both", "two")], ""),
        (2, "Tags of 2 runs", "both", None, [("both", "one"), ("both", "two")], ""),
    ],
)  # fmt: skip
def test_tags_that_all_runs_have_are_edited_and_can_be_taken_back(
    home: Path, app: Answering, count: int, question: str, common: str, text: str | None,
    tags: list[tuple[str, ...]], did: str,
) -> None:  # fmt: skip
    runs = two(home)
    for run, own in zip(runs, ("one", "two"), strict=True):
        titles.retag(run, ["both", own])
    app.answers, screen = [text], Shown(*runs[:count])
    act(screen, "tags")
    titled = question.replace("20260921-100000-cnn", titles.with_name(runs[0]))
    assert app.asked == [(f"{titled}, with blanks between them", common)]
    assert [titles.read_notes(run).tags for run in runs] == tags
    acts = app.acts["runs"].newest_first
    assert [each.what for each in acts] == (
        [did.replace("20260921-100000-cnn", titles.with_name(runs[0]))] if did else []
    )
    if did:
        assert acts[0].key == runs[0].id
        assert not acts[0].take_back()
        assert [titles.read_notes(run).tags for run in runs] == [("both", "one"), ("both", "two")]


def test_a_run_whose_note_cannot_be_written_is_said_and_nothing_is_taken_back_of_it(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run, _), write = two(home), titles.write_note
    app.answers, screen = ["after the fix"], Shown(run)
    act(screen, "note")
    assert app.asked == [(f"Note on {titles.with_name(run)}", "")]
    assert (titles.read_notes(run).note, screen.seen) == ("after the fix", [run])
    (noted,) = app.acts["runs"].newest_first
    assert noted.what == f"changed the note of {titles.with_name(run)}"

    def refuse(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(titles, "write_note", refuse)
    app.answers = ["another"]
    act(screen, "note")
    assert app.told == ["not written: [Errno 13] Permission denied (error)"]
    assert app.acts["runs"].newest_first == [noted]
    monkeypatch.setattr(titles, "write_note", write)
    monkeypatch.setattr(titles, "restore", refuse)
    assert noted.take_back() == [f"{run.name}: [Errno 13] Permission denied"]


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


@pytest.mark.parametrize(
    ("where", "places", "did"),
    [
        ("up", ["two", "one", "three"], True), ("down", ["one", "three", "two"], True),
        ("top", ["two", "one", "three"], True),
    ],
)  # fmt: skip
def test_a_move_in_the_queue_can_be_taken_back(
    waiting: list[Run], app: Answering, where: str, places: list[str], did: bool
) -> None:
    screen = Shown(waiting[1])
    act(screen, "move_waiting", where)
    said = f"{titles.with_name(waiting[1])} now has place {places.index('two') + 1} in the queue"
    assert (order(), screen.seen, [text.split(" (")[0] for text in app.told]) == (places, [waiting[1]], [said])
    (moved,) = app.acts["runs"].newest_first
    assert (moved.what, moved.key) == (f"moved {titles.with_name(waiting[1])} in the queue", waiting[1].id)
    moved.take_back()
    assert order() == ["one", "two", "three"]
    act(Shown(waiting[0]), "move_waiting", "up")
    assert len(app.acts["runs"].newest_first) == 1, "nothing was moved"


def test_each_key_of_a_waiting_run_has_its_action() -> None:
    bindings: list[Any] = queue_actions.BINDINGS
    assert [(each.id, each.action) for each in bindings] == [
        ("queue_up", "move_waiting('up')"), ("queue_down", "move_waiting('down')"),
        ("queue_top", "move_waiting('top')"), ("hold", "hold_waiting"), ("hold", "release_waiting"),
        ("stop", "take_out"),
    ]  # fmt: skip


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


def test_the_question_before_runs_are_deleted_names_those_that_are_hidden_and_those_of_other_workers(
    home: Path, app: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.tui.screens.runs.actions.used_bytes", lambda path: 1024)
    monkeypatch.setattr(Trash, "refusal", lambda trash, folder: "")
    runs = two(home)
    answers = ("Delete", "Keep")
    until = "Until you quit gputui, u brings {} back.\nQuitting frees {} KiB."
    what = "with events, checkpoints and log?"
    for shown, hidden in (
        ([0, 1], ""), ([0], "\n1 of them is hidden by the filter."), ([], "\n2 of them are hidden by the filter."),
    ):  # fmt: skip
        app.asked.clear()
        app.answers = ["Keep"]
        screen = Deleting(runs)
        screen.shown = {screen.entries[at].run.id: screen.entries[at] for at in shown}
        act(screen, "delete")
        marks = ["" if at in shown else " (hidden)" for at in range(2)]
        lines = "\n".join(f"  r{at + 1} cnn{marks[at]}" for at in range(2))
        assert app.asked == [(f"Delete 2 runs {what}\n{lines}{hidden}\n{until.format('them', '2.0')}", answers)]
        assert screen.deleted == []
    app.asked.clear()
    app.answers = ["Delete"]
    screen = Deleting(runs)
    screen.marked.pop(runs[1].id)
    screen.listed_now[0] = replace(screen.listed_now[0], workers=(runs[1].id,))
    screen.shown = {runs[0].id: screen.entries[0]}
    act(screen, "delete")
    question = f"Delete 2 runs {what}\n  r1 cnn\n  r2 cnn (its worker)\n{until.format('them', '2.0')}"
    assert (app.asked, screen.deleted) == ([(question, answers)], [([runs[0].id, runs[1].id], False)])


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
    monkeypatch.setattr("gputui.tui.screens.runs.actions.delete_all", lambda runs, reserve: put)
    screen = Told()
    Told._delete.__wrapped__(screen, chosen, {run.id: 1024 for run in chosen}, for_good)  # type: ignore[attr-defined]
    expected = [f"{told} (information)"] if told else []
    assert app.told == [*expected, "the last one is in use? (error)"]
    assert screen.readings_begun == 1
    acts = [(each.what, each.done, each.key) for each in app.acts["runs"].newest_first]
    assert acts == ([(*act_of_it, chosen[0].id)] if act_of_it else [])
