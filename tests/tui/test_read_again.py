"""Lists and readers that read again: what has changed is seen, what has not is kept, and each has its own values."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.files import run_numbers, writing
from gputui.engine.options import options_json
from gputui.engine.queue import entries, entry_changes
from gputui.engine.queue.entries import Entry as Queued
from gputui.engine.runs import Run, code_copy, part_of_sweep, runs_folder, titles
from gputui.engine.system.identity import Place
from gputui.engine.trials.record import UNREAD, Record
from gputui.tui.form.form_state import FormState
from gputui.tui.reading import preset_files, queue, queue_times, run_list, sweep_records
from gputui.tui.reading.option_runs import EndedRun, ExperienceReader
from gputui.tui.reading.preset_files import GROUPS, PresetFile, completed
from gputui.tui.reading.proofs import SearchReader
from gputui.tui.reading.queue_places import Queue, Waiting
from gputui.tui.reading.run_list import RunList, RunningRuns, description, entry_of, queue_first

from tests.support import recorded, recorded_proof
from tests.support.queued import add, no_runner, waiting
from tests.support.typed import typed

BATCH = "input.batch_size"


# ---- what earlier runs and proofs say about an option ------------------------------------------------------------


def ended(number: int, changes: Mapping[str, Any], preset: str = "quickstart", **result: Any) -> Run:
    """A run that has ended; those with a higher number are newer. Only those below 5 have a short name."""
    run = Run(runs_folder() / f"2026092{number}-100000-{preset}")
    run.path.mkdir(parents=True)
    options = presets.resolve(preset, tuple(f"{key}={value}" for key, value in changes.items())).options
    run.file("preset.yaml").write_text("schema_version: 1\n")
    run.file(options_json.FILE).write_text(options_json.to_json(options))
    run.file(titles.FILE).write_text(titles.record(preset, "", {}))
    run.file("result.json").write_text(json.dumps({"outcome": "ok", "samples_per_second": 100.0 * number} | result))
    os.utime(run.file("preset.yaml"), (1000.0 + number, 1000.0 + number))
    if number < 5:
        with run_numbers.file_of(run.path).open("a") as lines:
            lines.write(f"{run.id}\n")
    return run


def test_what_earlier_runs_and_proofs_say_is_that_of_the_preset_and_is_read_once(home: Path) -> None:
    here, comparisons = Place.here().host, recorded_proof.PROOF["comparisons"]
    for hour, (host, kept) in enumerate(((None, 0), (here, 1), ("elsewhere", 3))):
        not_over = comparisons[0] | {"decision": "running"}
        fields = {"host": host, "comparisons": [comparisons[kept], not_over], "preset_name": "cnn"}
        recorded_proof.write_proof(home, f"20260921-1{hour}0000-cnn", started_t=100.0 + hour, **fields)
    measured = {"loss": 0.5, "val_loss": 0.25, "val_accuracy": 0.75}
    one = ended(1, {BATCH: 128}, metrics=measured)
    ended(2, {BATCH: 256}, "fast")
    three = ended(3, {BATCH: 128, "compile.xla": "true"}, outcome="oom", samples_per_second=None)
    ended(6, {})
    going_on = ended(4, {})
    going_on.file("result.json").unlink()
    reader = ExperienceReader()
    known = reader.read("quickstart")
    assert [(run.name, run.when, run.outcome, run.speed, run.metric) for run in known.runs] == [
        ("", 1006.0, "done", 600.0, ("", None)), ("r3", 1003.0, "oom", None, ("", None)),
        ("r1", 1001.0, "done", 100.0, ("val_accuracy", 0.75)),
    ]  # fmt: skip
    assert [(gain.gain, gain.decision, gain.when, gain.preset, gain.host) for gain in known.gains] == [
        (0.037, "kept", 102.0, "cnn", "elsewhere"), (-0.098, "rejected", 101.0, "cnn", ""),
        (2.57, "kept", 100.0, "cnn", ""),
    ]  # fmt: skip
    state = FormState.open(presets.SHIPPED / "quickstart.yaml")
    assert [run.others(BATCH, state) for run in known.runs] == [[], ["xla"], []]
    assert [run.others("compile.xla", state) for run in known.runs] == [[], ["batch_size"], ["batch_size"]]
    assert [run.name for run in known.by_value(BATCH, state)] == ["", "r3"], "the newest of each value"
    assert [gain.when for gain in known.gains_with(BATCH)] == []
    state.set(BATCH, "x")
    assert not any(run.has_value_of(BATCH, state) for run in known.runs), "the form has no value"
    state.set(BATCH, "128.0")
    assert [run.has_value_of("compile.xla", state) for run in known.runs] == [True, False, True]
    assert EndedRun("r1", 1.0, {}, "done", None, ("", None)).text(BATCH) == "64", "a run from before this option"
    three.file(options_json.FILE).unlink()
    assert all(again is run for again, run in zip(reader.read("quickstart").runs, known.runs, strict=True))
    one.file("result.json").write_text('{"outcome": "stopped"}')
    os.utime(one.file("result.json"), (5000.0, 5000.0))
    assert [run.outcome for run in reader.read("quickstart").runs] == ["done", "oom", "stopped"]
    assert [run.name for run in reader.read("fast").runs] == ["r2"]
    assert [run.name for run in ExperienceReader().read("quickstart").runs] == ["", "r1"], "a damaged one is left out"


# ---- preset files ------------------------------------------------------------------------------------------------


def test_only_presets_that_have_a_name_are_shown_by_it() -> None:
    path = Path("/srv/a.yaml")
    names = {group: PresetFile(path, group).name for group in (*GROUPS, "path")}
    assert names == {"here": "a.yaml", "recent": "a.yaml", "yours": "a", "shipped": "a", "path": "a.yaml"}
    assert PresetFile(path, "path", folder=True).name == "a.yaml/"


def test_a_path_is_completed_as_far_as_all_names_agree_whatever_their_order() -> None:
    assert completed("d/b", ["bay", "bx", "baz", "c"]) == "d/b"
    assert completed("d/b", ["baz", "bay", "c"]) == "d/ba"
    assert completed("d/ba", ["bay"]) == "d/bay"
    assert completed("d/x", ["bay"]) == "d/x"
    assert completed("", ["bay", "b"]) == "b"


def test_a_file_that_is_opened_again_is_the_first_of_the_recent_ones(home: Path) -> None:
    for name in ("a", "b", "a", "c"):
        preset_files.note(Path(f"/srv/{name}.yaml")).join()
    assert preset_files.recent() == [Path(f"/srv/{name}.yaml") for name in ("c", "a", "b")]
    listed = preset_files.read("recent").files
    assert [(file.name, file.text) for file in listed] == [("c.yaml", "/srv"), ("a.yaml", "/srv"), ("b.yaml", "/srv")]
    for damaged in ("", "{}", "5", "[" * 20_000, "[5, null]", '["relative.yaml"]'):
        preset_files.file().write_text(damaged)
        assert preset_files.recent() == [], damaged[:9]
    preset_files.file().write_text('["/a", "/b\\n", 5, "/a", "/c"]')
    assert preset_files.recent() == [Path("/a"), Path("/c")]


# ---- a search ----------------------------------------------------------------------------------------------------


def test_a_search_shows_its_newest_trial_while_it_is_running(tmp_path: Path) -> None:
    def trial(name: str, phase: str) -> Run:
        run = Run(tmp_path / name)
        run.path.mkdir()
        run.file("events.jsonl").write_text(json.dumps({"t": 1.0, "type": "phase", "phase": phase}) + "\n")
        return run

    one, two = trial("01", "importing"), trial("02", "building")
    proof: Any = SimpleNamespace(record=typed(Record, {"state": "running"}), trials=[])
    reader = SearchReader(proof)

    def read() -> tuple[str, str, str]:
        found = reader.read()
        return found.data.state, found.run.id if found.run else "", found.trial.phase if found.trial else ""

    assert read() == ("running", "", "")
    proof.trials = [one]
    assert read() == ("running", "01", "importing")
    proof.trials = [one, two]
    assert read() == ("running", "02", "building")
    with two.file("events.jsonl").open("a") as lines:
        lines.write(json.dumps({"t": 2.0, "type": "phase", "phase": "training"}) + "\n")
    assert read() == ("running", "02", "training")
    proof.record = typed(Record, {"state": "done"})
    assert read() == ("done", "", "")


# ---- the queue ---------------------------------------------------------------------------------------------------


def test_a_new_entry_is_told_its_place_and_the_nearest_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Queued] = []
    paused = [False]
    monkeypatch.setattr(entries, "all_entries", lambda: listed)
    monkeypatch.setattr(entries, "is_paused", lambda: paused[0])
    monkeypatch.setattr(entries, "name_of", lambda run: f"<{run}>")
    monkeypatch.setattr(queue, "gpus", lambda: 2)
    new = Queued("new", 9.0, needs="0")

    def told(*others: Queued, **changes: Any) -> str:
        entry = replace(new, **changes)
        listed[:] = [*others, entry]
        return queue.place_text(entry, lambda other: other.run)

    running = [Queued("r1", 0.0, "running"), Queued("r2", 1.0, "starting")]
    of_slurm = Queued("s", 2.0, "running", slurm_job="7")
    before = [Queued("w1", 3.0), Queued("w2", 4.0), Queued("h", 5.0, "held")]
    assert told() == "place 1 in the queue, needs GPU 0: it starts as soon as that is free"
    assert told(of_slurm) == "place 1 in the queue, needs GPU 0: it starts as soon as that is free"
    assert told(*running, of_slurm) == "place 1 in the queue, needs GPU 0: r2 was started before it"
    assert told(*running, *before) == "place 4 in the queue, needs GPU 0: w2 is before it"
    waits_in_slurm = Queued("s2", 2.5, slurm_job="8")
    assert told(waits_in_slurm, before[0]) == "place 2 in the queue, needs GPU 0: w1 is before it"
    assert told(*running, before[2]) == "place 2 in the queue, needs GPU 0: r2 was started before it"
    assert told(*running, *before, after="w1") == "place 4 in the queue, needs GPU 0: it waits for <w1> to end"
    listed.clear()
    assert queue.place_text(new).startswith("place 1 in the queue"), "it has just been taken out"
    paused[0] = True
    assert told(*before, after="w1") == (
        "place 4 in the queue, needs GPU 0: the queue is paused; gputui queue start goes on"
    )
    assert told(*before, slurm_job="77", needs="all") == "submitted to Slurm as job 77, needs the GPUs of its job"
    assert told(slurm_job="77", needs="all", after="w1") == (
        "submitted to Slurm as job 77, needs the GPUs of its job; it waits for <w1> to end"
    )
    measured = Queued("p", 0.0, kind="proof", what="ab", group="cnn")
    assert queue.title_of(measured) == "ab of cnn"


def test_the_queue_as_its_viewers_see_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    assert (queue.read().waiting, queue.read().begun) == ({}, 0)
    one, two, three = (waiting(name, visible=[0]) for name in ("one", "two", "three"))
    add(one, two)
    add(three, after=one)
    made = {entry.run: entry for entry in entries.all_entries()}
    with entries.locked():
        entries.write(replace(made[one.id], state="running", devices=("GPU-a",)))
        entries.write(replace(made[two.id], state="held", hold_reason="held by you"))
        entries.write(replace(made[three.id], returned_at=1234.0))
    monkeypatch.setattr(entries, "news", lambda: {"gpus": 1, "why": {three.id: "needs GPU 0"}})

    def seen() -> dict[str, tuple[Any, ...]]:
        now = queue.read()
        assert now.begun == 1
        return {run: (each.run, each.place, each.held, each.why, each.needs, each.after, each.count, each.since)
                for run, each in now.waiting.items()}  # fmt: skip

    held = ("r2", 1, True, "held by you", "GPU 0", "", 2, made[two.id].queued_at)
    waits = ("r3", 2, False, "needs GPU 0", "GPU 0", "r1", 2, 1234.0)  # since it gave way
    assert seen() == {two.id: held, three.id: waits}
    entry_changes.pause()
    assert seen() == {two.id: held, three.id: (*waits[:3], entries.PAUSED_REASON, *waits[4:])}
    listed = RunList().read()
    assert [entry.run.id for entry in queue_first(listed, running_first=False)] == [two.id, three.id, one.id]


def test_a_forecast_is_made_again_after_5_s_or_if_the_queue_or_its_news_change(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = [100.0], [0]

    def starts(listed: Any, news: Any) -> dict[str, float | None]:
        made[0] += 1
        return {"a": 60.0, "b": 2.0, "c": None}

    monkeypatch.setattr(queue_times, "starts_in", starts)
    monkeypatch.setattr(queue_times, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    times, listed, news = queue_times.StartTimes(), [Queued("a", 0.0)], {"gpus": 1}
    seen = []
    for clock[0], entries_now, news_now in (
        (100.0, listed, news), (104.9, listed, dict(news)), (105.0, listed, news), (106.0, listed, {"gpus": 2}),
        (107.0, [*listed], {"gpus": 2}), (111.0, [*listed], {"gpus": 2}),
    ):  # fmt: skip
        found = times.starts_in(entries_now, news_now)
        seen.append((made[0], *(value and round(value, 1) for value in found.values())))
    assert seen == [
        (1, 60.0, 2.0, None), (1, 55.1, 0.0, None), (2, 60.0, 2.0, None), (3, 60.0, 2.0, None), (4, 60.0, 2.0, None),
        (5, 60.0, 2.0, None),
    ]  # fmt: skip


# ---- the list of runs --------------------------------------------------------------------------------------------


def test_the_list_of_runs_sees_what_has_changed_and_keeps_the_rest(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    run = recorded.write(home, gpus=0, seconds=14, name="20260921-100000-cnn", description="a net")
    run.file(titles.FILE).write_text(titles.record("cnn", "", {}))
    listed = RunList()

    def read(most: int | None = None) -> list[tuple[Any, ...]]:
        return [(entry.run.id, entry.state, entry.title.whole, entry.notes.note, entry.size, entry.description)
                for entry in listed.read(most)]  # fmt: skip

    assert read() == [(run.id, "ok", "cnn", "", None, "a net")]
    assert listed.measure()
    size = writing.used_bytes(run.path)
    run.file(titles.FILE).write_text(titles.record("other", "", {}))
    assert read() == [(run.id, "ok", "cnn", "", size, "a net")], "nothing tells that this file has changed"
    titles.write_note(run, "mine")
    assert read() == [(run.id, "ok", "cnn", "mine", size, "a net")], "the title of a run that has ended stays"
    assert (listed.total, listed.closed) == (1, 0)
    other = recorded.write(home, gpus=0, seconds=14, name="20260921-090000-cnn")
    os.utime(other.file("preset.yaml"), (recorded.BEGAN - 9, recorded.BEGAN - 9))
    listed.read()
    assert listed.measure()
    assert not listed.measure()
    run.file("more").write_text("x" * 100_000)
    for each in (run, other):
        os.utime(each.file("status.json"), (5.0, 5.0))
    assert [entry.run.id for entry in listed.read()] == [run.id, other.id]
    assert listed.measure(), "the size of the first has changed, that of the second has not"
    old = waiting("old", visible="none")
    os.utime(old.file("preset.yaml"), (1.0, 1.0))
    assert [row[0] for row in read(1)] == [run.id]
    add(old)
    assert [row[:2] for row in read(1)] == [(run.id, "ok"), (old.id, "waiting")], "what waits is always there"
    assert listed.total == 3
    (*_, entry) = listed.read()
    assert (entry.waiting and entry.waiting.place, entry.resumable) == (1, False)


def test_the_records_of_the_sweeps_in_a_list_are_asked_for_again_of_one_reader(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.write(home, gpus=0, seconds=14, name="20260921-100000-cnn")
    made: list[list[set[str]]] = []

    class Records:
        def __init__(self) -> None:
            made.append([])

        def read(self, ids: set[str]) -> dict[str, Record]:
            made[-1].append(set(ids))
            return {"sw": UNREAD}

    monkeypatch.setattr(sweep_records, "SweepRecords", Records)
    monkeypatch.setattr(part_of_sweep, "sweep_of", lambda run: "")
    listed = RunList()
    listed.read()
    assert (made, dict(listed.sweeps)) == ([], {}), "no run is part of a sweep"
    monkeypatch.setattr(part_of_sweep, "sweep_of", lambda run: "sw")
    listed = RunList()
    listed.read()
    listed.read()
    assert (made, listed.sweeps) == ([[{"sw"}, {"sw"}]], {"sw": UNREAD})


def test_a_running_run_has_its_present_title_and_a_run_that_has_ended_no_time_left(home: Path) -> None:
    going = recorded.write(home, gpus=0, seconds=14, name="a", outcome=None, engine_pid=os.getpid())
    going.file(titles.FILE).write_text(titles.record("cnn", "", {}))
    first = entry_of(going)
    assert (first.state, first.title.whole) == ("running", "cnn")
    assert first.figures["eta_seconds"] is not None
    going.file(titles.FILE).write_text(titles.record("cnn", "", {"compile.xla": (False, True)}))
    going.file("preset.yaml").write_text("description: another\n")
    second = entry_of(going, first)
    assert (second.title.whole, second.description) == ("cnn: xla", first.description)
    gone = recorded.write(home, gpus=0, seconds=14, name="b", outcome=None)
    crashed = entry_of(gone)
    assert (crashed.state, crashed.figures["eta_seconds"], crashed.done) == ("crashed", None, None)
    assert crashed.figures["samples_per_second"] is not None, "its last progress"
    with gone.file("events.jsonl").open("a") as events:
        events.write('{"t":9.0,"type":"epoch","metrics":{"loss":0.5,"val_loss":0.5}}\n')
    assert entry_of(gone).validation == ("val_loss", 0.5)
    gone.file("result.json").write_text('{"outcome": "ok", "metrics": {"loss": 0.25, "val_loss": 0.25}}')
    assert entry_of(gone).validation == ("val_loss", 0.25), "that of the whole training"
    gone.file("result.json").write_text('{"outcome": "ok", "metrics": {}}')
    assert entry_of(gone).validation == ("val_loss", 0.5)


def test_a_description_begins_with_the_commit_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, commits = Run(tmp_path), ["", "abc1234"]
    monkeypatch.setattr(code_copy, "read", lambda of: SimpleNamespace(short_commit=commits[0]))
    texts, described = [], "description: a net\nworkload:"
    for commits[0], preset in (("", "a: 1\n"), ("abc1234", "a: 1\n"), ("abc1234", f"{described} {{"),
                               ("", f"{described}\n\tno YAML"), ("", "description: 5\n"), ("", "a: [\n")):  # fmt: skip
        run.file("preset.yaml").write_text(preset)
        texts.append(description(run))
    assert texts == ["", "code abc1234", "code abc1234  a net", "a net", "", ""]


# ---- which runs go on ---------------------------------------------------------------------------------------------


def test_which_runs_go_on_and_which_have_ended_since(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    going: dict[str, Any] = {"gpus": 0, "seconds": 14, "outcome": None, "engine_pid": os.getpid()}
    first, second = (recorded.write(home, name=f"20260921-1{hour}0000-{hour}", **going) for hour in (0, 1))
    os.utime(first.file("preset.yaml"), (recorded.BEGAN - 9, recorded.BEGAN - 9))
    watched = RunningRuns()

    def read() -> tuple[list[str], str, bool, list[tuple[str, str]]]:
        now = watched.read()
        ended: list[tuple[str, str]] = [(each.id, each.state) for each in now.ended]
        return [run.id for run in now.running], now.title, now.done is not None, ended

    both = [second.id, first.id]
    assert read() == (both, titles.with_name(second), True, [])
    monkeypatch.setattr(run_list, "read_queue", lambda: Queue({second.id: Waiting(second.id, 1)}))
    assert read() == ([first.id], titles.with_name(first), True, []), "it has given way, and has not ended"
    monkeypatch.setattr(run_list, "read_queue", Queue)
    assert read() == (both, titles.with_name(second), True, [])
    monkeypatch.setattr(Run, "state", property(lambda run: "stopped"))
    assert read() == ([], "", False, [(second.id, "stopped"), (first.id, "stopped")])
    for run in (first, second):
        os.utime(run.file("status.json"), (5.0, 5.0))
    assert read() == ([], "", False, [])
