"""A run's figures on their way out: CSV, JSON Lines, TensorBoard's files, and the schema of presets."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.files import run_numbers
from gputui.engine.options.validation import preset_schema
from gputui.engine.runs import Run, RunError, folders, history, liveness
from gputui.engine.runs.event_reading import read_events
from gputui.tui import cli

from tests.support.front_door import gputui

EVENTS = [
    {"t": 10.0, "type": "phase", "phase": "training"},
    {"t": 12.0, "type": "progress", "epoch": 1, "step": 5, "samples_per_second": None, "loss": 2.0,
     "metrics": {"accuracy": 0.25}, "traces": 1},
    {"t": 14.0, "type": "progress", "epoch": 1, "step": 9, "samples_per_second": 90.5, "loss": 1.5, "metrics": {}},
    {"t": 15.0, "type": "epoch", "epoch": 1, "step": 10, "seconds": 5.0,
     "metrics": {"loss": 1.4, "val_loss": 1.6, "val_accuracy": None}},
]  # fmt: skip
TELEMETRY = [
    {"t": 13.0, "type": "gpu", "gpus": [{"index": 1, "busy": 0.5, "power_w": None}]},
    {"t": 13.5, "type": "host", "cpu": 0.75, "memory_used_bytes": 7},
]


@pytest.fixture
def run(home: Path) -> Run:
    """A run as it stands on disk."""
    folder = home / "runs" / "20260101-000000-small"
    folder.mkdir(parents=True)
    for name, events in (("events.jsonl", EVENTS), ("telemetry.jsonl", TELEMETRY)):
        (folder / name).write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "preset.yaml").write_text("schema_version: 1\n")
    return Run(folder)


def test_rows_hold_what_was_known_at_each_moment(run: Run) -> None:
    first, second, epoch = history.rows(read_events(run.path).events)
    assert first == {"t": 12.0, "seconds": 0.0, "epoch": 1, "step": 5, "loss": 2.0, "accuracy": 0.25}
    newest = {"samples_per_second": 90.5, "gpu1_busy": 0.5, "host_cpu": 0.75}
    assert second == {"t": 14.0, "seconds": 2.0, "epoch": 1, "step": 9, "loss": 1.5} | newest
    assert epoch == {"t": 15.0, "seconds": 3.0, "epoch": 1, "step": 10, "epoch_seconds": 5.0, "val_loss": 1.6}


def test_csv_and_json_lines_through_the_command(run: Run, tmp_path: Path) -> None:
    table = list(csv.DictReader(io.StringIO(gputui("history", run.id).stdout)))
    assert [row["step"] for row in table] == ["5", "9", "10"]
    assert (table[0]["samples_per_second"], table[1]["samples_per_second"]) == ("", "90.5")
    lines = [json.loads(line) for line in gputui("history", "--jsonl").stdout.splitlines()]
    assert [event["t"] for event in lines] == [10.0, 12.0, 13.0, 13.5, 14.0, 15.0]
    told = gputui("history", run.id, "-o", str(tmp_path / "out.csv"))
    assert "written" in told.stdout
    assert (tmp_path / "out.csv").read_text().startswith("t,seconds,")


def test_a_run_without_figures_and_an_unknown_one_are_refused(run: Run) -> None:
    run.file("events.jsonl").write_text("")
    for name, words in ((run.id, "no figures"), ("nothing", "no run called")):
        done = gputui("history", name)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_what_is_written_where_and_why_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*words: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        assert cli.run(["history", *words]) == code, words
        return capsys.readouterr()

    there, out = tmp_path / "there", f"{tmp_path}/a.csv"
    there.write_text("mine")
    table = said(run.id)[0]
    assert (said("-o", out), Path(out).read_text()) == ((f"{out} written\n", ""), table)
    assert (said("--jsonl", "-o", "b.jsonl")[0], Path("b.jsonl").read_text()) == (
        "b.jsonl written\n",
        said("--jsonl")[0],
    )
    for form in ("--csv", "--jsonl", "--tensorboard"):
        assert said(form, "-o", str(there), code=2)[1].startswith(f"{there} exists"), form
    assert there.read_text() == "mine"
    text, err = said("--tensorboard")
    (file,) = (tmp_path / run.id).iterdir()
    assert (text, err) == (f"{run.id}/{file.name} written; tensorboard --logdir {run.id} shows it\n", "")
    run_numbers.file_of(run.path).write_text(f"{run.id}\n")
    assert said("r1", "--tensorboard", code=2)[1].startswith(f"{run.id} exists"), "the folder has the whole id"
    run_numbers.file_of(run.path).unlink()
    run.file("events.jsonl").write_text(f"{json.dumps(EVENTS[0])}\nno JSON\n")
    damage = f"{run.name}: line 2 of events.jsonl is damaged, left out"
    assert said(code=2) == ("", f"{damage}\n{run.name} has no figures\n")
    lines, err = said("--jsonl")
    assert ([json.loads(line)["t"] for line in lines.splitlines()], err) == ([10.0, 13.0, 13.5], f"{damage}\n")
    run.file("events.jsonl").write_text("")
    assert said(code=2) == ("", f"{run.name} has no figures so far\n")
    os.utime(run.file("preset.yaml"), (1, 1))  # it is not starting any more
    assert said(code=2) == ("", f"{run.name} has no figures: it ended before its first step\n")
    run.file("telemetry.jsonl").write_text("")
    assert said("--tensorboard", "-o", "new", code=2) == ("", f"{run.name} has no figures\n")
    assert not (tmp_path / "new").exists()


def test_shipped_presets_name_the_schema_that_lies_beside_them() -> None:
    assert json.loads((presets.SHIPPED / "schema.json").read_text()) == json.loads(json.dumps(preset_schema()))
    for path in presets.SHIPPED.glob("*.yaml"):
        assert path.read_text().splitlines()[0] == "# yaml-language-server: $schema=schema.json"


def test_the_schema_of_events_is_printed_without_any_run() -> None:
    assert gputui("history", "--schema").stdout == (presets.SHIPPED / "run-schema.json").read_text()


def test_the_latest_run_is_meant_where_none_is_named(run: Run) -> None:
    assert runs.find("latest").path == run.path


def test_a_column_leads_to_its_figure_and_stands_once() -> None:
    assert history.columns([{"t": 1.0, "step": 1.0}, {"t": 2.0, "loss": 1.0, "step": 2.0}]) == ["t", "step", "loss"]
    keys = {name: figure and figure.key for name in ("gpu12_busy", "host_cpu", "samples_per_second", "gpux_busy", "t",
            "gpu0_nothing") for figure in [history.figure_of(name)]}  # fmt: skip
    assert keys == {"gpu12_busy": "busy", "host_cpu": "cpu", "samples_per_second": "samples_per_second",
                    "gpux_busy": None, "t": None, "gpu0_nothing": None}  # fmt: skip


def test_the_figures_of_each_gpu_are_those_of_its_last_reading(run: Run) -> None:
    readings = [{"t": 13.0, "type": "gpu", "gpus": [{"index": 0, "busy": 0.1}, {"index": 1, "busy": 0.5}]},
                {"t": 13.2, "type": "gpu", "gpus": [{"index": 1, "busy": 0.7}]},
                {"t": 14.5, "type": "gpu", "gpus": [{"index": 0, "busy": 0.9}]}]  # fmt: skip
    run.file("telemetry.jsonl").write_text("".join(json.dumps(event) + "\n" for event in readings))
    second = history.rows(read_events(run.path).events)[1]
    assert (second["gpu0_busy"], second["gpu1_busy"]) == (0.1, 0.7)


@pytest.mark.parametrize(
    ("date", "looks"),
    [
        (1000.0, [(0.0, 1, True), (59.9, 1, True), (0.1, 1, False), (0.0, 2, True), (60.0, 2, False)]),
        (1059.9, [(0.0, 1, True)]),
        (1060.0, [(0.0, 1, False), (5.0, 2, True)]),  # it seemed to have stopped, and goes on
        (940.1, [(0.0, 1, True)]),  # the clock of the other machine is ahead
        (940.0, [(0.0, 1, False)]),
    ],
)
def test_a_heartbeat_has_stopped_where_it_does_not_change_for_a_minute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, date: float, looks: list[tuple[float, int, bool]]
) -> None:
    now = [500.0]
    monkeypatch.setattr("gputui.engine.runs.liveness.time.monotonic", lambda: now[0])
    monkeypatch.setattr("gputui.engine.runs.liveness.time.time", lambda: date)
    for seconds, beat, lives in looks:
        now[0] += seconds
        assert liveness._beats(tmp_path, 1000.0 if beat == 1 else 1000.0 + beat) is lives
    assert not liveness._beats(tmp_path / "other", None)


def test_runs_that_cannot_be_found_or_read_are_named(home: Path) -> None:
    folder = runs.runs_folder()
    closed = {f"r{number}": "denied" for number in range(2)}
    assert str(folders.Survey([], {})) == ""
    assert str(folders.Survey([], {"r0": "denied"})) == f"left out, as gputui cannot read it: {folder / 'r0'} (denied)"
    assert str(folders.Survey([], closed)).endswith(f"{folder / 'r0'} (denied) and 1 more")
    for number in range(folders.NAMED):
        runs.create(f"case-{number}", "schema_version: 1\n")
    assert "..." not in refused("case")
    runs.create("case-last", "schema_version: 1\n")
    assert f"matches {folders.NAMED + 1} runs" in refused("case")
    assert " ...)" in refused("case")
    assert runs.create("!!!", "schema_version: 1\n").id.endswith("-run")


def refused(name: str) -> str:
    with pytest.raises(RunError) as raised:
        runs.find(name)
    return str(raised.value)
