"""What acts on a run from outside: who gets the signals of a stop, who may have a run to itself, notes and tags."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.files.places import home as home_folder
from gputui.engine.runs import Run, RunError, control, liveness, titles
from gputui.engine.runs.liveness import Liveness
from gputui.engine.system import locks, stop_signals
from gputui.engine.system.identity import Process
from gputui.engine.system.locks import ENGINE_LOCK

from tests.support import recorded

PERSON = (signal.SIGTERM, stop_signals.BY_PERSON)


@pytest.fixture
def run(home: Path) -> Run:
    """A run with two processes in its status."""
    run = recorded.write(home, name="a", seconds=13, gpus=0, outcome=None)
    status = json.loads(run.file("status.json").read_text())
    status |= Process(11, 1, None).as_fields("engine") | Process(12, 1, None).as_fields("trainer")
    run.file("status.json").write_text(json.dumps(status))
    return run


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The signals that would have been sent: to which process, which, and the file that must name it."""
    calls: list[tuple[Any, ...]] = []

    def send(process: Process, numbers: Sequence[int], named_by: Path, is_at_work: Callable[[Process], bool]) -> None:
        calls.append((process.pid, tuple(numbers), named_by.name, is_at_work))

    monkeypatch.setattr("gputui.engine.system.stop_signals.send", send)
    return calls


def lives(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> None:
    monkeypatch.setattr(liveness, "check", lambda folder, status: Liveness(**parts))


@pytest.mark.parametrize(
    ("alive", "numbers", "expected"),
    [
        ({"engine": True, "trainer": True}, PERSON, (11, PERSON)),
        ({"engine": True}, (signal.SIGTERM,), (11, (signal.SIGTERM,))),
        ({"trainer": True}, PERSON, (12, (signal.SIGTERM,))),  # the engine has been killed; a trainer knows one signal
    ],
)
def test_the_engine_gets_the_signals_of_a_stop_and_the_trainer_only_if_it_is_alone(
    run: Run,
    sent: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    alive: dict[str, bool],
    numbers: tuple[int, ...],
    expected: tuple[int, tuple[int, ...]],
) -> None:
    lives(monkeypatch, **alive)
    control.request_stop(run, numbers)
    assert [call[:3] for call in sent] == [(*expected, "status.json")]


@pytest.mark.parametrize(
    ("alive", "message"),
    [
        ({}, r"a is not running \(it is crashed\)"),
        ({"engine": True, "starting": True}, "a is not running"),  # the status names the processes of an earlier start
        ({"engine": True, "host": "box7"}, "a is running on box7; stop it there: gputui stop a"),
    ],
)
def test_a_stop_that_reaches_nobody_is_refused(
    run: Run, sent: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, alive: dict[str, Any], message: str
) -> None:
    lives(monkeypatch, **alive)
    with pytest.raises(RunError, match=message):
        control.request_stop(run)
    assert sent == []


@pytest.mark.parametrize(("role", "file"), [("engine", ENGINE_LOCK), ("trainer", "events.jsonl")])
def test_a_process_is_at_work_for_a_run_if_it_has_its_file_open_or_its_command_names_it(
    run: Run, sent: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, role: str, file: str
) -> None:
    control.signal_process(run, role, Process(11, 1, None), (signal.SIGKILL,))
    assert sent[0][:2] == (11, (signal.SIGKILL,))
    is_at_work = sent[0][3]
    opened: list[Path] = []
    served: list[Path] = []
    monkeypatch.setattr(Process, "has_open", lambda self, path: path in opened)
    monkeypatch.setattr(Process, "serves", lambda self, folder: folder in served)
    assert not is_at_work(Process(11, 1, None))
    opened.append(run.file(file))
    assert is_at_work(Process(11, 1, None))
    opened[:], served[:] = [], [run.path]
    assert is_at_work(Process(11, 1, None))


@pytest.mark.parametrize(
    ("alive", "message"),
    [
        ({"engine": True, "host": "box7"}, "running on box7; delete it there: gputui delete a"),
        ({"engine": True}, "a cannot be deleted: it is running; stop it before deleting it"),
        ({"trainer": True}, "a cannot be deleted: it is stopping; stop it before deleting it"),
    ],
)
def test_a_run_that_is_alive_is_not_given_to_anybody(
    run: Run, monkeypatch: pytest.MonkeyPatch, alive: dict[str, Any], message: str
) -> None:
    lives(monkeypatch, **alive)
    with pytest.raises(RunError, match=message), control.reserved(run, "delete"):
        pass


def test_a_run_whose_trainer_began_meanwhile_is_not_given_to_anybody(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lives(monkeypatch, trainer=True)
    monkeypatch.setattr(liveness, "check_closely", lambda folder, read_status: Liveness())
    with pytest.raises(RunError, match="its trainer has not ended yet"), control.reserved(run, "resume"):
        pass


def test_one_at_a_time_has_a_run_that_is_not_alive(run: Run) -> None:
    with control.reserved(run, "delete"):
        assert locks.held(run.file(ENGINE_LOCK))
        with pytest.raises(RunError, match="cannot be"), control.reserved(run, "delete"):
            pass
    with control.reserved(run, "delete"):
        pass


def test_a_note_is_kept_without_control_characters_and_beside_the_tags(run: Run) -> None:
    titles.retag(run, ["best", "#new"])
    assert titles.write_note(run, "  after\x1b the fix \n") == titles.read_notes(run)
    assert (titles.read_notes(run).note, titles.read_notes(run).tags) == ("after? the fix", ("best", "new"))
    assert titles.retag(run, ["new", "last"], ["best"]).tags == ("new", "last")
    assert titles.read_notes(run).words == "#new #last after? the fix"
    assert titles.retag(run, ["x"], ["x"]).tags == ("new", "last")
    assert titles.write_note(run, "").words == "#new #last"


def test_a_note_or_tag_that_is_too_long_is_refused(run: Run) -> None:
    titles.write_note(run, "x" * titles.LONGEST_NOTE)
    with pytest.raises(RunError, match=r"the note has 1,001 characters; at most 1,000 are allowed"):
        titles.write_note(run, "x" * (titles.LONGEST_NOTE + 1))
    titles.retag(run, ["y" * titles.LONGEST_TAG])
    with pytest.raises(RunError, match="cannot be a tag"):
        titles.retag(run, ["y" * (titles.LONGEST_TAG + 1)])
    with pytest.raises(RunError, match=r"'-a' and 'b,c' cannot be tags"):
        titles.retag(run, ["-a", "good", "b,c"])
    assert (len(titles.read_notes(run).note), titles.read_notes(run).tags) == (1000, ("y" * 32,))


@pytest.mark.parametrize(
    ("content", "tags"),
    [({"tags": "best"}, ()), ({"tags": ["best", 3, "a b", "last", "best"], "note": 7}, ("best", "last"))],
)
def test_of_damaged_notes_what_can_be_used_is_read(run: Run, content: dict[str, Any], tags: tuple[str, ...]) -> None:
    run.file(titles.NOTES_FILE).write_text(json.dumps(content))
    assert titles.read_notes(run) == titles.Notes("", tags)


def test_while_another_writes_notes_a_person_is_asked_to_try_again(run: Run) -> None:
    with (
        locks.take(home_folder() / titles.NOTES_LOCK),
        pytest.raises(RunError, match="another gputui is writing notes"),
    ):
        titles.retag(run, ["best"])
    assert titles.retag(run, ["best"]).tags == ("best",)
