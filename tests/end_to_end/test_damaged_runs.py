"""Whatever lies in a run folder, each command answers clearly, and the other runs are still there."""

from __future__ import annotations

import functools
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import runs
from gputui.engine.files import yaml_nodes
from gputui.engine.runs import Run, events, follow
from gputui.engine.runs.event_reading import Tail, read_events
from gputui.engine.runs.events import Finished, MemoryAnswer, Phase
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.system import locks
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.runs.screen import RunsScreen

from tests.support.damage import FILES, Kind, kinds
from tests.support.damaged_runs import BAD, COMMANDS, GOOD, home_of_two, judged, ran, violations
from tests.support.recorded_proof import write_proof
from tests.support.tiny import Tiny, wait_for

KINDS = kinds()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_of_two(tmp_path_factory.mktemp("damaged") / "template")


@pytest.fixture
def presets_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in the presets is parsed once for all commands: a quarter of their time; each reads the file."""
    monkeypatch.setattr(yaml_nodes, "parse", functools.cache(yaml_nodes.parse))


@pytest.fixture
def bad(template: Path, home: Path) -> Run:
    """A run that may be damaged, beside a whole one."""
    home_of_two(home)
    return Run(home / "runs" / BAD)


@pytest.mark.parametrize(
    "wrong", [{"repeats": -1}, {"machine": {"memory_bytes": "much"}}, {"machine": {"gpus": 2}}], ids=str
)
def test_a_report_of_a_damaged_proof_is_refused_in_a_line(wrong: dict[str, Any], home: Path) -> None:
    bad = write_proof(home, "20260101-000000-bad", **wrong)
    assert ran(("proof", bad.id, "--markdown"))[::2] == (2, f"{bad.path / 'proof.json'} cannot be read\n")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.usefixtures("presets_read_once")
def test_no_damage_is_a_riddle(template: Path, tmp_path: Path, file: str) -> None:
    """Every kind of damage to every file meets every reader of it: the list, the screens, and a third of the commands.

    Each command meets each kind of damage in some files. All of them, and other places in the files, are in
    benchmarks/faults.py.
    """
    found = {}
    for at, kind in enumerate(KINDS):
        some = COMMANDS[(at + FILES.index(file)) % 3 :: 3]
        if wrong := violations(template, tmp_path / "two", file, kind, commands=some):
            found[kind.name] = wrong
    assert not found


def test_a_damaged_proof_is_told_and_hides_no_other(home: Path) -> None:
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        shutil.rmtree(home, ignore_errors=True)
        bad, good = write_proof(home, "20260101-000000-bad"), write_proof(home, "20260102-000000-good")
        kind.damage(bad.path / "proof.json")
        commands = ((), ("--json",), (bad.id,), (bad.id, "--markdown"), (bad.id, "--json"), (bad.id, "--stop"))
        wrong = [what for given in commands for what in judged(("proof", *given))]
        if good.id not in ran(("proof",))[1]:
            wrong.append("the whole proof is not listed")
        found |= {kind.name: wrong} if wrong else {}
    assert not found


def test_damaged_lines_are_counted_and_named_once(bad: Run) -> None:
    path = bad.file("events.jsonl")
    lines = path.read_text().splitlines()
    lines[11] = lines[11][:-5]
    later = next(at for at, line in enumerate(lines) if at > 11 and '"progress"' in line)
    lines[later] = json.dumps(json.loads(lines[later]) | {"step": "9" * 30})
    path.write_text("\n".join(lines) + "\n")
    for command in (("history", BAD), ("diagnose", BAD)):
        code, _, err = ran(command)
        assert code == 0
        assert err == f"{BAD}: line 12 of events.jsonl and 1 more are damaged, left out\n"
    assert len(read_events(bad.path).events) == len(lines) - 2 + len(Tail(bad.file("telemetry.jsonl")).read())


def test_a_viewer_of_a_damaged_run_is_warned_once(bad: Run) -> None:
    bad.file("telemetry.jsonl").write_text("[\n" * 9)
    warned = [event for event in map(events.fields_of, runs.follow(bad)) if event.get("kind") == "damaged_file"]
    assert [event["message"] for event in warned] == ["line 1 of telemetry.jsonl and 8 more are damaged, left out"]


def test_history_of_what_cannot_be_read_says_so(bad: Run) -> None:
    bad.file("events.jsonl").unlink()
    bad.file("events.jsonl").mkdir()
    code, _, err = ran(("history", BAD))
    assert code == 2
    assert "events.jsonl cannot be read: is a folder, not a file" in err
    assert "before its first step" not in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_closed_run_folder_hides_no_other_for_its_user(bad: Run) -> None:
    bad.path.chmod(0)
    try:
        _assert_left_out()
    finally:
        bad.path.chmod(0o700)


def test_a_run_folder_that_cannot_be_entered_hides_no_other(bad: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says of another user's folder, also to a test that runs as root."""
    _close(bad.path, monkeypatch)
    _assert_left_out()


def _close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lstat = os.lstat

    def closed(path: Any, **words: Any) -> os.stat_result:
        if Path(path).parent == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return lstat(path, **words)

    monkeypatch.setattr(os, "lstat", closed)


@pytest.mark.parametrize("value", ["400 digits", "control text", "deep", "missing"])
async def test_the_screen_of_runs_says_what_is_left_out(bad: Run, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table, and the live view of the damaged run: each at a size at which all of it is drawn."""
    kind = next(kind for kind in KINDS if kind.name == f"value {value}")
    for file in FILES[1:4]:
        kind.damage(bad.file(file), 3)
    bad.file("result.json").write_text('{"outcome": "ok", "seconds": "long"}')
    other = bad.path.with_name("20260103-000000-closed")
    shutil.copytree(bad.path, other)
    _close(other, monkeypatch)
    async with Tiny(RunsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        shown = await wait_for(pilot, "2 of 2 runs, 1 not readable")
        assert "whole" in shown
        await pilot.press("G", "end", "down")
        await wait_for(pilot, "result.json is damaged, seconds left out")
    async with Tiny(lambda: LiveScreen(bad)).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "done")


def _assert_left_out() -> None:
    code, out, err = ran(("runs",))
    assert code == 0
    assert GOOD in out
    assert BAD not in out
    assert err.count("\n") == 1
    assert BAD in err
    assert "Permission denied" in err
    code, _, err = ran(("diagnose", BAD))
    assert code == 2
    assert "Permission denied" in err


def test_every_event_that_is_written_is_read_as_it_was(tmp_path: Path) -> None:
    """The declared forms fit what the engine tells, with every optional figure absent."""
    writer = EventWriter(tmp_path / "events.jsonl", "x")
    nothing = events.Summary(outcome="crashed", error={"kind": "crash", "message": "a\nb", "hint": ""})
    said = [
        events.Phase(phase="training"),
        events.Progress(epoch=1, epochs=2, step=1, steps=9, samples_per_second=None, step_ms_p50=None,
                        step_ms_p95=None, input_wait=None, loss=float("nan"), metrics={"é": None}, eta_seconds=None),
        events.GpuReadings(gpus=[{"index": 0, "missing": "lost", "reasons": {"*": "lost"}}]),
        events.Warn(kind="k", message="two\nlines"),
        events.Finished(outcome="crashed", summary=vars(nothing)),
    ]  # fmt: skip
    for event in said:
        writer.emit(event)
    writer.close()
    tail = Tail(tmp_path / "events.jsonl")
    read = tail.read()
    assert list(map(type, read)) == list(map(type, said))
    assert read[0] == said[0]
    assert isinstance(read[2], events.GpuReadings)
    assert (read[2].gpus[0]["missing"], read[2].missing) == ("lost", None)
    assert str(tail.damage) == ""


@pytest.mark.flaky(reruns=2)
def test_a_long_run_is_read_about_as_fast_as_json_can_be(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "events.jsonl", "x")
    for step in range(20_000):
        writer.emit(events.Progress(
            epoch=1, epochs=2, step=step, steps=20_000, samples_per_second=1234.5, step_ms_p50=1.5, step_ms_p95=2.5,
            input_wait=0.1, loss=0.5, metrics={"accuracy": 0.5}, eta_seconds=9.0,
        ))  # fmt: skip
    writer.close()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()

    def quickest(read: object) -> float:
        assert callable(read)
        times = []
        for _ in range(5):
            begin = time.process_time()
            read()
            times.append(time.process_time() - begin)
        return min(times)

    bare = quickest(lambda: [json.loads(line) for line in lines])
    ours = quickest(lambda: Tail(tmp_path / "events.jsonl").read())
    assert ours < 3 * bare, f"{ours:.3f} s, and {bare:.3f} s without looking at what is read"


def test_kinds_of_damage_differ(tmp_path: Path, template: Path) -> None:
    """A campaign of kinds that do nothing would hold whatever the code does."""
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 50
    source = template / "runs" / GOOD / "events.jsonl"

    def unchanged(kind: Kind) -> bool:
        path = tmp_path / "events.jsonl"
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_bytes(source.read_bytes())
        kind.damage(path)
        return (
            path.is_file()
            and path.stat().st_size == source.stat().st_size
            and path.read_bytes() == (source.read_bytes())
        )

    assert [kind.name for kind in KINDS if unchanged(kind)] == []


def test_a_result_that_could_not_be_written_is_that_of_the_last_event(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.file("preset.yaml").write_text("extends: quickstart\n")
    writer = EventWriter(run.file("events.jsonl"), run.id)
    writer.emit(Finished(outcome="ok", summary={"outcome": "ok", "steps": 7}))
    (written,) = (json.loads(line) for line in run.file("events.jsonl").read_text().splitlines())
    os.utime(run.file("preset.yaml"), (written["t"] + 0.00004,) * 2)  # what the event's date was rounded down by
    assert (run.result or {}, run.state) == ({"outcome": "ok", "steps": 7}, "ok")
    writer.emit(Phase(phase="starting"))  # it was resumed
    assert run.result is None
    writer.emit(Finished(outcome="oom", summary={"outcome": "oom"}))
    writer.close()
    assert run.state == "oom"
    os.utime(run.file("preset.yaml"), (time.time() + 5,) * 2)  # it was resumed, or goes on with another option
    assert (run.result, run.state) == (None, "crashed")


def test_a_training_that_dies_after_it_went_on_with_less_memory_has_crashed_for_all(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.file("preset.yaml").write_text("extends: quickstart\n")
    memory_answer = MemoryAnswer(
        answer="halve", number=1, option="input.batch_size", before=8, after=4, ran_out_after_step=None,
        resumes_at_step=None, message="half the batch",
    )  # fmt: skip
    for name, event in (
        ("events.jsonl", Finished(outcome="oom", summary={"outcome": "oom"})),
        ("telemetry.jsonl", memory_answer),
        ("events.jsonl", Phase(phase="starting")),
    ):
        writer = EventWriter(run.file(name), run.id)
        writer.emit(event)
        writer.close()
    locks.take(run.file(locks.ENGINE_LOCK)).release()
    told = list(follow(run))
    assert (told[-1].outcome, run.state) == ("crashed", "crashed")  # type: ignore[attr-defined]
