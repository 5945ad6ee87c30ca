"""What a run's folder says of it: state, result over all launches, damage, notes and changed code; by written files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.process import launch
from gputui.engine.runs import Run, RunError, Tail, code_copy, code_files, event_reading, liveness, results, titles
from gputui.engine.runs.event_reading import Damage, RunEvents, read_events
from gputui.engine.runs.events import EVENTS_FILE, TELEMETRY_FILE, Best, EpochEnd, Finished, Phase, Progress
from gputui.engine.runs.parsing import dated
from gputui.engine.runs.titles import Notes
from gputui.engine.runs.trash import Trash
from gputui.engine.system import locks
from gputui.engine.system.identity import Place

NO_FIGURES: Any = dict.fromkeys(("samples_per_second", "step_ms_p50", "step_ms_p95", "input_wait"))


@pytest.fixture
def run(home: Path) -> Run:
    return runs.create("one", "schema: 1\n")


def wrote(run: Run, name: str, content: object) -> None:
    run.file(name).write_text(content if isinstance(content, str) else json.dumps(content))


def progress(t: float, step: int = 7, **metrics: float | None) -> Progress:
    made = Progress(epoch=1, epochs=2, step=step, steps=20, loss=0.5, metrics=metrics, eta_seconds=None, **NO_FIGURES)
    event = dated(made, t)
    assert isinstance(event, Progress)
    return event


# ---- state and result ----------------------------------------------------------------------------


def test_a_new_run_without_locks_counts_as_starting_for_fifteen_seconds(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "held", lambda _path: None)
    created = run.file("preset.yaml").stat().st_mtime
    now = [created]
    monkeypatch.setattr("gputui.engine.runs.run.time", SimpleNamespace(time=lambda: now[0]))
    seen = []
    for age in (-1, 0, 14.9, 15):
        now[0] = created + age
        seen.append(run.state)
    assert seen == ["crashed", "starting", "starting", "crashed"]
    now[0] = created
    wrote(run, "status.json", {"phase": "importing"})
    assert run.state == "crashed", "it has begun"


def test_the_last_event_is_the_result_if_it_is_of_the_latest_launch(run: Run) -> None:
    created = run.file("preset.yaml").stat().st_mtime
    finished = {"type": "finished", "run": run.id, "outcome": "stopped", "summary": {"steps": 5}}
    for name, t, after, result in (
        (EVENTS_FILE, created + 1, "", {"steps": 5, "outcome": "stopped"}),
        (EVENTS_FILE, created - 1, "", None),
        (EVENTS_FILE, created + 1, '{"t":%f,"type":"phase","run":"x","phase":"training","detail":""}\n', None),
        (TELEMETRY_FILE, created + 1, '{"t":%f,"type":"host","run":"x"}\n', {"steps": 5, "outcome": "stopped"}),
    ):
        for each in (EVENTS_FILE, TELEMETRY_FILE):
            run.file(each).unlink(missing_ok=True)
        more = after % (created + 2) if after else ""
        wrote(run, name, json.dumps({"t": t} | finished) + "\n" + more)
        assert run.result == result, (name, t, after)
        assert run.last_date() == pytest.approx(created + 2 if more else t, abs=1e-3)
    wrote(run, "result.json", {"outcome": "well"})
    assert (run.result, run.damage) == (None, ["result.json is damaged, left out"]), "damage is not guessed over"
    run.file(TELEMETRY_FILE).unlink()
    assert run.last_date() == 0.0


@pytest.mark.parametrize(
    ("earlier", "last", "figures"),
    [
        ({"seconds": 30.0, "goodput": 0.5}, {"seconds": 10.0, "goodput": 0.9}, {"seconds": 40.0, "goodput": 0.6}),
        ({"seconds": 30.0}, {"seconds": 10.0, "goodput": 0.9}, {"seconds": 40.0, "goodput": 0.9}),
        ({"goodput": 0.5}, {"seconds": 10.0, "goodput": 0.9}, {"seconds": 10.0, "goodput": 0.9}),
        ({"seconds": 30.0, "goodput": 0.5}, {"seconds": 10.0}, {"seconds": 40.0}),
        ({"seconds": 30.0, "goodput": 0.5}, {}, {}),
        ({"seconds": 0.0, "goodput": 0.5}, {"seconds": 0.0, "goodput": 0.5}, {"seconds": 0.0, "goodput": 0.5}),
    ],
)
def test_seconds_and_goodput_are_those_of_all_launches(
    run: Run, earlier: dict[str, float], last: dict[str, float], figures: dict[str, float]
) -> None:
    wrote(run, "result-1.json", {"outcome": "stopped"} | earlier)
    wrote(run, "result.json", {"outcome": "ok"} | last)
    whole = {key: value for key, value in run.whole_result.items() if key in ("seconds", "goodput")}
    assert whole == pytest.approx(figures)


def test_a_run_has_completed_if_its_result_says_so(run: Run) -> None:
    assert not run.has_completed(), "there is no result"
    for outcome, completed in (("ok", True), ("stopped", False), ("oom", False)):
        wrote(run, "result.json", json.dumps({"outcome": outcome, "steps": 3}, indent=1))
        assert run.has_completed() is completed, outcome


def test_a_heartbeat_of_another_machine_lives_for_a_minute_after_its_last_change(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [5000.0]
    stand_in = SimpleNamespace(time=lambda: 1e9 + now[0], monotonic=lambda: now[0])
    monkeypatch.setattr(liveness, "time", stand_in)
    monkeypatch.setattr(liveness, "_seen", {})
    monkeypatch.setattr(locks, "held", lambda _path: False)
    place = Place("elsewhere", "another boot", "pid:[1]").as_fields()

    def host(heartbeat: float, phase: str = "training") -> str:
        return liveness.check(run.path, place | {"heartbeat": heartbeat, "phase": phase}).host

    first = 1e9 + now[0]
    assert host(first + 59.9) == "elsewhere", "clocks differ by a minute at most"
    liveness._seen.clear()
    assert host(first - 60) == ""
    assert host(first - 59) == "elsewhere", "it has changed"
    for passed, alive in ((0, True), (59.9, True), (60, False)):
        now[0] = 5000.0 + passed
        assert (host(first - 59) == "elsewhere") is alive, passed
    assert host(first, "ended") == ""


# ---- event files ---------------------------------------------------------------------------------


def test_the_damage_of_a_file_names_its_first_line_and_counts_the_others(tmp_path: Path) -> None:
    path, good = tmp_path / "events.jsonl", '{"t":1.0,"type":"phase","run":"x","phase":"training","detail":""}\n'
    path.write_text("")
    damage = Damage(path)
    assert str(damage) == ""
    for bad, text in (
        (1, "line 3 of events.jsonl is damaged, left out"),
        (2, "line 3 of events.jsonl and 1 more are damaged, left out"),
        (1235, "line 3 of events.jsonl and 1,234 more are damaged, left out"),
    ):
        path.write_text(good * 2 + "broken\n" * bad + "\n" + good)
        read = read_events(tmp_path, ["events.jsonl"])
        assert (len(read.events), read.damage) == (3, (text,))
    path.write_text("broken\n" + good)
    assert read_events(tmp_path, ["events.jsonl"]).damage == ("line 1 of events.jsonl is damaged, left out",)
    path.unlink()
    path.mkdir()
    folder = "events.jsonl cannot be read: is a folder, not a file"
    assert read_events(tmp_path, ["events.jsonl"]) == RunEvents([], (folder,))
    tail = Tail(path)
    assert (tail.read(), str(tail.damage)) == ([], folder)
    path.rmdir()
    path.write_text(good)
    assert (len(tail.read()), str(tail.damage)) == (1, ""), "it can be read again"


def test_a_tail_reads_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    line = '{"t":%d.0,"type":"phase","run":"x","phase":"training","detail":""}\n'
    path.write_text(line % 1)
    tail, later = Tail(path), Tail(path, from_now=True)
    with path.open("a") as stream:
        stream.write(line % 2 + '{"t":3')
    assert [[event.t for event in each.read()] for each in (tail, later, tail)] == [[1, 2], [2], []]
    with path.open("a") as stream:
        stream.write((line % 3)[6:] + "broken\n")
    assert [[event.t for event in each.read()] for each in (tail, later)] == [[3.0], [3.0]]
    assert str(tail.damage) == "line 4 of events.jsonl is damaged, left out"
    assert tail.damages == [tail.damage]


def test_the_newest_event_of_a_kind_and_all_of_them_are_known() -> None:
    events = event_reading.in_time([progress(3.0, 3), dated(Phase(phase="saving", detail=""), 2.0), progress(1.0, 1)])
    read = RunEvents(events)
    assert [event.step for event in read.of(Progress)] == [1, 3]
    last = read.last(Progress)
    assert last is not None
    assert (last.step, read.last(EpochEnd)) == (3, None)


@pytest.mark.parametrize(
    ("events", "reached"),
    [
        ((), (0, 0, {})),
        ((progress(1.0, 7, accuracy=0.9, other=None),), (0, 7, {"loss": 0.5, "accuracy": 0.9})),
        (("finished", progress(6.0, 9)), (0, 9, {"loss": 0.5})),
        (("finished", progress(5.0, 9)), (4, 40, {"loss": 0.1})),
        ((progress(4.0, 9), "finished"), (4, 40, {"loss": 0.1})),
    ],
)
def test_a_training_has_reached_what_its_last_progress_or_its_last_launch_says(
    events: tuple[Any, ...], reached: tuple[int, int, dict[str, float]]
) -> None:
    ended = dated(Finished(outcome="stopped", summary={"epochs": 4, "steps": 40, "metrics": {"loss": 0.1}}), 5.0)
    read = RunEvents([ended if event == "finished" else event for event in events])
    assert results.reached(read) == results.Reached(*reached)


def test_only_the_last_best_epoch_of_each_option_counts() -> None:
    made = [
        dated(Best(option=option, figure="loss", epoch=epoch, step=9 * epoch, value=value), float(epoch))
        for option, epoch, value in (("a", 1, 0.5), ("b", 2, 0.4), ("a", 3, 0.3))
    ]
    best = results.best_epochs(RunEvents(made))
    assert {option: (each["epoch"], each["value"]) for option, each in best.items()} == {"a": (3, 0.3), "b": (2, 0.4)}


def test_a_result_and_events_that_the_disk_refuses_are_given_up_in_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(results, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(results, "write_atomically", refuse)
        assert str(results.write(run, {"outcome": "ok"}, 2.0)) == "[Errno 28] No space left on device"
        assert slept == [0.5] * 4
        slept.clear()
        assert results.write(run, {}, 2.0, lambda: True) is not None
        assert slept == []
    assert results.write(run, {"outcome": "ok"}, 2.0) is None
    assert run.result == {"outcome": "ok"}
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", refuse)
        assert results.append(run, ["{}", "{}"], 1.0) == 2
        assert slept == [0.25] * 4
        slept.clear()
        assert results.append(run, ["{}"], 1.0, lambda: True) == 1
        assert slept == []
    assert results.append(run, ["{}", "{}"], 1.0) == 0
    assert run.file(EVENTS_FILE).read_text() == "{}\n{}\n"


# ---- notes, tags and deleted runs ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "width", "title"),
    [
        ((), 5, "name"), (("xla",), 10, "name: xla"), (("xla",), 9, "name: xla"),
        (("xla", "epochs=3"), 20, "name: xla epochs=3"), (("xla", "epochs=3"), 17, "name: xla +1 more"),
        (("a=1", "b=2", "cccc=3"), 17, "name: a=1 +2 more"), (("a=1", "b=2", "cccc=3"), 16, "name: 3 changes"),
    ],
)  # fmt: skip
def test_a_title_has_as_many_changes_as_fit(changes: tuple[str, ...], width: int, title: str) -> None:
    assert titles.Title("name", changes).within(width) == title


def test_of_a_change_that_is_too_long_the_beginning_stays() -> None:
    alone, two = titles.Title("name", ("x" * 40,)), titles.Title("name", ("x" * 40, "y"))
    assert [alone.within(width) for width in (20, 16, 15)] == [
        "name: " + "x" * 12 + "..",
        "name: xxxxxxxx..",
        "name: 1 change",
    ]
    assert [two.within(width) for width in (24, 23)] == ["name: xxxxxxxx.. +1 more", "name: 2 changes"]


def test_a_note_and_tags_are_kept_and_a_change_of_them_is_undone_alone(run: Run) -> None:
    assert titles.read_notes(run) == Notes()
    first = titles.write_note(run, "  after\nthe fix ")
    tagged = titles.retag(run, ["#best", "slow", "best"])
    assert titles.read_notes(run) == tagged == Notes("after\nthe fix", ("best", "slow"))
    assert tagged.words == "#best #slow after the fix"
    assert titles.retag(run, ["new", "slow"], ["#best", "new"]).tags == ("slow",)
    last = titles.write_note(run, "other")
    assert titles.restore(run, first, tagged) == Notes("other", ()), "the note is another change"
    assert titles.restore(run, Notes("before", ("x",)), Notes("other", ("x",))) == Notes("before", ())
    assert last == Notes("other", ("slow",))
    assert titles.write_note(run, "").note == ""


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (["a" * 33], f"'{'a' * 32}' cannot be a tag"),
        (["-a"], "'-a' cannot be a tag"),
        (["a b", "c,d"], "'a b' and 'c,d' cannot be tags"),
        (["##a"], "'#a' cannot be a tag"),
        ([""], "'' cannot be a tag"),
    ],
)
def test_a_text_that_is_no_tag_is_refused(run: Run, tags: list[str], words: str) -> None:
    with pytest.raises(RunError) as refusal:
        titles.retag(run, ["good", *tags])
    assert str(refusal.value) == f"{words}: use at most 32 characters, without blanks, commas or a leading -"
    assert titles.read_notes(run) == Notes()


def test_a_note_has_a_thousand_characters_at_most_and_one_writer_at_a_time(home: Path, run: Run) -> None:
    assert titles.write_note(run, "x" * 1000).note == "x" * 1000
    assert titles.retag(run, ["a" * 32]).tags == ("a" * 32,)
    with pytest.raises(RunError, match=r"^the note has 1,001 characters; at most 1,000 are allowed$"):
        titles.write_note(run, "x" * 1001)
    wrote(run, "notes.json", {"note": 7, "tags": ["good", "-bad", 3, "good", "a b"]})
    assert titles.read_notes(run) == Notes("", ("good",))


def test_an_item_that_is_gone_from_the_trash_is_named(run: Run) -> None:
    trash = Trash()
    wrote(run, "result.json", {"outcome": "ok"})
    trash.put([run])
    (held,) = run.path.parent.glob(f"*/{run.id}")
    held.rename(held.parent / "elsewhere")
    assert trash.bring_back() == ([], [f"{run.id} cannot be restored: it is no longer among the deleted ones"])
    (held.parent / "elsewhere").rename(held)
    assert trash.bring_back() == ([run], []), "the group was kept"
    trash.empty()


# ---- the user's code -----------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("train", "a", "b", "c"):
        (folder / f"{name}.py").write_text("x = 1\n")
    return folder


def created(folder: Path, *settings: str) -> Run:
    preset = presets.defaults([f"entry={folder}/train.py:build", *settings])
    return launch.create(launch.settle(preset, folder))


def test_at_most_three_changed_files_are_named_with_their_lines(mine: Path) -> None:
    run = created(mine)
    code_files.add(run, mine, [str(mine / f"{name}.py") for name in ("a", "b", "c", "train")])
    assert (code_files.changed(run), code_files.describe(run)) == ([], "")
    (mine / "a.py").unlink()
    (mine / "b.py").write_text("x = 2\ny = 3\n")
    (mine / "c.py").write_text("x = 1\n" + "y = 2\n" * 4999)
    assert code_files.changed(run) == ["a.py (missing)", "b.py (2 lines)", "c.py (4,999 lines)"]
    was = f"changed since {run.name} was trained"
    assert code_files.describe(run) == f"a.py (missing), b.py (2 lines), c.py (4,999 lines) have {was}"
    (mine / "c.py").write_text("x = 1\n" + "y = 2\n" * 5000)
    (mine / "train.py").write_text("")
    named = "a.py (missing), b.py (2 lines), c.py"
    assert code_files.describe(run) == f"{named} and 1 more have {was}", "of a long file no lines are counted"
    (mine / "a.py").write_text("x = 1\n")
    (mine / "b.py").write_text("x = 1\n")
    (mine / "c.py").write_text("x = 1\n")
    assert code_files.describe(run) == f"train.py (1 line) has {was}"


def test_without_a_copy_the_reason_is_given(mine: Path) -> None:
    run = created(mine)
    code_copy.put_aside(run)
    with pytest.raises(code_files.CodeChangedError) as refusal:
        code_files.check(run, from_copy=True)
    assert str(refusal.value) == f"{run.name} has no copy of its code: it was started without one"
    wrote(run, code_copy.RECORD, {"left_out": "there were too many files"})
    with pytest.raises(code_files.CodeChangedError, match=r"has no copy of its code: there were too many files$"):
        code_files.check(run, from_copy=True)
    (kept,) = (path.name for path in run.path.glob("code-*"))
    assert kept == "code-1"


def test_a_file_that_cannot_be_copied_leaves_no_copy_and_its_name(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, _most: int) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(code_copy, "read_bytes", refuse)
    run = created(mine, "run.code=copy")
    assert not run.file("code").exists()
    reason = f"the Python files in {mine} are not copied: {mine}/a.py: Permission denied"
    assert code_copy.read(run).left_out == reason
