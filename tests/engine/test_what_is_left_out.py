"""What is kept and what is left out where not all fits, or where something older is there already."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.files.appending import LineFile
from gputui.engine.options import options_json
from gputui.engine.process import launch
from gputui.engine.queue import entries, jobs
from gputui.engine.runs import Run, launched_with, parsing, results, titles
from gputui.engine.runs.events import EVENTS_FILE, Started, Warn
from gputui.engine.runs.parsing import EventWriter, parse_line
from gputui.engine.runs.results import Report

from tests.support.queued import no_runner, waiting


@pytest.fixture
def run(home: Path) -> Run:
    return runs.create("one", "schema: 1\n")


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept_bytes", "lines", "left"),
    [
        (10, ["abcd", "efgh"], ["abcd", "efgh"]),
        (9, ["abcd", "efgh"], ["efgh"]),
        (3, ["abcd"], ["abcd"]),
        (3, ["abcd", "efgh", "ijkl"], ["ijkl"]),
        (10, ["abcd", "efghijklmnop"], ["efghijklmnop"]),
        (10, ["ü", "ü", "ü", "abcd"], ["ü", "abcd"]),
    ],
)
def test_the_newest_lines_wait_for_the_disk_and_at_least_the_last(
    tmp_path: Path, kept_bytes: int, lines: list[str], left: list[str]
) -> None:
    file = LineFile(tmp_path / "missing" / "file", kept_bytes)
    for line in lines:
        assert file.append(line) is None
    assert (file.lines, file.waiting, file.missing) == (left, len(left), len(lines))
    assert file.reason == "No such file or directory"
    (tmp_path / "missing").mkdir()
    gap = file.flush()
    assert gap is not None
    assert (gap.reason, gap.late, gap.lost) == ("No such file or directory", len(left), len(lines) - len(left))
    assert (tmp_path / "missing" / "file").read_text() == "".join(f"{line}\n" for line in left)
    assert (file.lines, file.missing, file.reason, file.flush()) == ([], 0, "", None)
    assert file.append("more") is None
    file.close()


def test_events_that_were_lost_are_missing_for_as_long_as_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "later" / "events.jsonl"
    monkeypatch.setattr(parsing, "LineFile", lambda path: LineFile(path, 250))
    for number, left in ((1, 1), (3, 2)):
        writer = EventWriter(path, "one")
        for _ in range(number):
            writer.emit(Warn(kind="slow", message="x" * 20), 1.0)
        assert writer.drain(0) == number
        assert len(writer.unwritten()) == left
    path.parent.mkdir()
    assert writer.drain(0) == 0
    writer.close()
    kept = [parsing.parse_line(line) for line in path.read_text().splitlines()]
    warning = kept.pop()
    assert [type(event) for event in kept] == [Warn, Warn]
    assert isinstance(warning, Warn)
    assert warning.kind == "disk"
    assert warning.message.startswith(f"No such file or directory: nothing could be written to {path} for ")
    assert warning.message.endswith(" s; 1 event is missing")


def test_of_the_log_the_last_lines_are_shown(run: Run) -> None:
    assert run.log_tail() == []
    run.file("engine.log").write_text("".join(f"{number}\n" for number in range(30)))
    assert run.log_tail() == [str(number) for number in range(10, 30)]
    assert run.log_tail(2) == ["28", "29"]
    run.file("engine.log").write_text("a" * 70000 + "\nend")
    assert [len(line) for line in run.log_tail()] == [65532, 3]


# ---- what the trainer leaves to its engine -------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "lost", "room", "kept"),
    [
        (["a", "b"], 0, 4096, Report({"outcome": "ok"}, ["a", "b"], 0)),
        ([], 3, 4096, Report({"outcome": "ok"}, [], 3)),
        (["x" * 50, 'y"' * 10, "z"], 2, 100, Report({"outcome": "ok"}, ['y"' * 10, "z"], 3)),
        (["x", "y" * 100, "z"], 0, 100, Report({"outcome": "ok"}, ["z"], 2)),
        (["x" * 100], 0, 100, Report({"outcome": "ok"}, [], 1)),
    ],
)
def test_the_newest_events_are_handed_over_as_far_as_they_fit(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], lost: int, room: int, kept: Report
) -> None:
    monkeypatch.setattr(results, "_room_bytes", lambda _pipe: room)
    reading, writing = os.pipe()
    try:
        assert results.take(reading) == Report()
        report = Report({"outcome": "ok"}, lines, lost)
        assert len(results._fitting(report, room)) <= room
        results.hand_over(report, writing)
        assert results.take(reading) == kept
    finally:
        os.close(reading)
        os.close(writing)
    results.hand_over(report, writing)  # nobody reads it any more
    assert results.take(reading) == Report()


# ---- what was launched ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a\x7fb c", "a\\u007fb\\tc", "a\x7fb\\tc", "a\\u001bb c"])
def test_no_text_of_an_event_file_reaches_a_terminal_as_it_is(text: str) -> None:
    line = '{"t":1.0,"type":"warning","run":"one","kind":"a","message":"%s","hint":"","option":""}' % text  # noqa: UP031
    ((event, raw),) = parsing.parse_block(f"{line}\n".encode())
    assert isinstance(event, Warn)
    assert event.message == "a?b c"
    assert raw == line.encode()
    assert parsing.parse_line(line) == event


def test_a_module_is_the_same_code_as_its_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "models" / "small.py"
    file.parent.mkdir()
    file.write_text("def model(): ...\n")
    os.utime(file, (1000, 1000))
    workload = {"entry": "models.small:model", "folder": str(tmp_path)}
    run = runs.create("one", "schema: 1\n", more={options_json.FILE: json.dumps({"workload": workload})})
    started = Started(
        pid=1, versions={}, devices=[], options={}, actual={}, replicas=1, global_batch_size=1, steps_per_epoch=1,
        epochs=1, steps=1, train_samples=1, validation_samples=None,
    )  # fmt: skip
    writer = EventWriter(run.file(EVENTS_FILE), run.id)
    writer.emit(started, 2000.0)
    writer.close()
    for entry, found in (
        ("models.small:model", True), ("models/small.py:model", True), ("models.small:other", False),
        ("models/other.py:model", False),
    ):  # fmt: skip
        preset = presets.defaults([f"workload.entry={entry}", f"workload.folder={tmp_path}"])
        event = launched_with.of_same_code(preset.options)
        assert (event is not None and event.t == 2000.0) is found, entry
    os.utime(file, (2001, 2001))
    assert launched_with.of_same_code(preset.options) is None


def test_a_run_of_a_home_that_is_a_link_gives_its_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv("GPUTUI_HOME", str(tmp_path / "link"))
    preset = presets.resolve("quickstart", ["train.epochs=7"])
    first = launch.create(launch.settle(preset, tmp_path), launch.origin_of(preset))
    for folder in ("link", "real"):
        again = presets.resolve(str(tmp_path / folder / "runs" / first.id / "preset.yaml"), ["train.epochs=8"])
        record = json.loads(launch.origin_of(again))
        assert (record["preset"], record["changes"]["train.epochs"]["to"]) == ("quickstart", 8)
        assert record["changes"]["train.epochs"]["from"] == presets.resolve("quickstart").options.train.epochs
        assert str(titles.recorded(record, "")) == "quickstart: epochs=8"
    copied = tmp_path / "elsewhere" / "preset.yaml"
    copied.parent.mkdir()
    copied.write_text(first.file("preset.yaml").read_text())
    assert json.loads(launch.origin_of(presets.resolve(str(copied)))).get("changes", {}) == {}


# ---- the queue -----------------------------------------------------------------------------------


def test_a_run_that_is_queued_again_gets_the_environment_of_then(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    run = waiting()
    for value in ("x" * 1000, "short"):
        monkeypatch.setenv("MINE", value)
        entries.file_of(run.id).unlink(missing_ok=True)
        entries.add(run)  # the file of the environment is left, as after a kill
        monkeypatch.setenv("MINE", "of now")
        kept, _ = entries.environment_of(run.id)
        assert kept["MINE"] == value


@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        ({"budget_seconds": 60, "started_t": 990.0}, 50.0), ({"budget_seconds": 60, "started_t": 900.0}, 0.0),
        ({"budget_seconds": 60}, None), ({"started_t": 990.0}, None), ({}, None),
    ],
)  # fmt: skip
def test_a_measurement_has_the_rest_of_its_time_and_never_less_than_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, Any], seconds: float | None
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    job = jobs.ProofJob(home / "proofs" / "one")
    job.path.mkdir(parents=True)
    (job.path / "proof.json").write_text(json.dumps(record))
    assert job.seconds_left() == seconds


NEEDED: list[tuple[dict[str, Any], str, dict[str, Any], dict[str, Any]]] = [
    ({"type": "input_stages"}, "stages", {"name": "load", "ms_per_batch": None}, {"op": None, "parallelism": None}),
    ({"type": "gpu"}, "gpus", {}, {"index": None, "uuid": None, "name": None, "missing": None, "busy": None,
                                   "memory_used_bytes": None, "power_w": 1, "throttle": None}),
    ({"type": "workers"}, "workers", {"index": 0, "address": "a:1"}, {"missing": None, "gpus_busy": [None, 0.5]}),
    ({"type": "best", "option": "o", "figure": "f", "epoch": 1, "step": 2, "value": None}, "files",
     {"epoch": 1, "file": "best/1.keras"}, {"value": None}),
    ({"type": "diagnosis", "verdict": "v", "sentence": "s", "confidence": 0.5, "steps": 3}, "evidence",
     {"signal": "s", "value": None, "unit": "", "threshold": None, "text": "t", "source": "x"}, {}),
    ({"type": "diagnosis", "verdict": "v", "sentence": "s", "confidence": 0.5, "steps": 3}, "remedies",
     {"changes": {}, "reason": "r"}, {"step": "input", "expected_gain": None, "changes_learning": True}),
]  # fmt: skip


@pytest.mark.parametrize(("event", "name", "needed", "more"), NEEDED, ids=[name for _, name, _, _ in NEEDED])
def test_a_part_of_an_event_that_lacks_what_its_readers_need_makes_it_none(
    event: dict[str, Any], name: str, needed: dict[str, Any], more: dict[str, Any]
) -> None:
    def read(part: Any) -> Any:
        found = parse_line(json.dumps({"t": 1.0, "run": "r", **event, name: [part]}))
        return None if found is None else getattr(found, name)

    assert (read(needed), read(needed | more)) == ([needed], [needed | more])
    assert read(needed | {"of another version": [1]}) == [needed | {"of another version": [1]}]
    for key in needed:
        assert read({other: value for other, value in needed.items() if other != key}) is None, key
    for key in needed | more:
        assert read(needed | more | {key: ["x"] if key != "throttle" else "x"}) is None, key
    assert (read("x"), read(None)) == (None, None)
