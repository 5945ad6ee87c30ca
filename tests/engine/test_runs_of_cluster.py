"""Runs of several machines, and runs that are watched from elsewhere."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import (
    Cluster,
    Entry,
    EventWriter,
    Liveness,
    Run,
    RunClock,
    RunError,
    Started,
    entries,
    folders,
    launch,
    part_of_sweep,
    presets,
    proofs_folder,
    resuming,
    run_cluster,
    runner,
    runs,
)
from tests.doors.engine import identity_Place as Place
from tests.doors.tui import entry_of
from tests.doors.tui import tui_cli as cli

ADDRESSES = ("h0:1", "h1:1")


def begun(*made: Run) -> None:
    """Tell in each run of these workers that they have met."""
    members: list[Any] = [
               {"index": index, "address": f"h{index}:1", "host": "h", "run": run.id, "folder": str(run.path),
                "replicas": 1, "gpus": []} for index, run in enumerate(made)]  # fmt: skip
    for index, run in enumerate(made):
        started: dict[str, Any] = dict.fromkeys(("global_batch_size", "steps_per_epoch", "train_samples"), 8)
        EventWriter(run.file("events.jsonl"), run.id, RunClock.launched()).emit(Started(
            pid=1, versions={}, devices=[], options={}, actual={}, replicas=2, epochs=1, steps=8,
            validation_samples=None, worker=index, workers=members, **started,
        ))  # fmt: skip


@pytest.fixture
def cluster_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs of the two workers, created in the same second; then a run whose chief's run is elsewhere."""
    monkeypatch.setattr(folders, "time", SimpleNamespace(strftime=lambda _: "20261001-120000"))
    preset = presets.resolve("quickstart", ["strategy.kind=multi_worker", "run.checkpoint=epoch"])
    made = [launch.create(preset, joins=Cluster(ADDRESSES, index, "--cluster")) for index in (0, 1, 1)]
    begun(*made[:2])
    for number, run in enumerate(made):
        os.utime(run.file("preset.yaml"), (1_790_000_000 + number,) * 2)
    return made


def test_a_list_shows_the_chiefs_run_and_rm_takes_those_of_its_workers(
    cluster_runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    chief, other, alone = cluster_runs
    assert run_cluster.other_workers(chief) == [other]
    assert [run_cluster.local_chief(run) for run in cluster_runs] == [None, chief, None]
    assert cli.run(["runs", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {one["id"]: one["workers"] for one in told} == {alone.id: [], chief.id: [other.id]}
    before_they_met = replace(entry_of(chief), workers=())
    assert entry_of(chief, before_they_met).workers == (other.id,)
    for last, expected in ((1, [(alone.id, [])]), (2, [(alone.id, []), (chief.id, [other.id])])):
        assert cli.run(["runs", "--json", "--last", str(last)]) == 0
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(one["id"], one["workers"]) for one in told] == expected, "the chief's run is read, too"
    assert cli.run(["runs", "rm", chief.id, "--yes"]) == 0
    out = capsys.readouterr().out
    assert f"with {chief.name} go the runs of its other workers: {other.name}" in out
    assert "deleted 2 runs" in out
    assert runs.all_runs() == [alone]


def test_the_latest_run_of_a_shared_home_is_the_chiefs(cluster_runs: list[Run]) -> None:
    chief, other, alone = cluster_runs
    cli.run(["runs", "rm", alone.id, "--yes"])
    assert runs.all_runs()[0] == other
    assert runs.find("latest") == chief
    assert other.id.startswith(chief.id), "a part of its id names both"
    assert runs.find(chief.id) == chief
    with pytest.raises(RunError) as refusal:
        resuming.latest()
    assert str(refusal.value) == f"there is no run to resume: {resuming.without_checkpoint(chief)}", "it asks no other"


@pytest.mark.parametrize(
    ("content", "index"),
    [
        ({"workers": ["h0:1", "h1:1"], "index": 1, "source": "x"}, 1),
        ({"workers": ["h0:1", "h1:1"], "index": 2, "source": "x"}, None),
        ({"workers": ["h0:1", "h1:1"], "index": -1, "source": "x"}, None),
        ({"workers": ["h0:1", "h1:1"], "source": "x"}, None),
        ({"index": 0, "source": "x"}, None),
    ],
)
def test_a_damaged_file_of_a_cluster_is_none(content: dict[str, Any], index: int | None, home: Path) -> None:
    run = runs.create("one", "schema_version: 1\n")
    run.file(run_cluster.FILE).write_text(json.dumps(content))
    cluster = run_cluster.of_run(run)
    assert (cluster.index if cluster else None) == index


def test_each_worker_resumes_its_own_run_from_the_checkpoint_of_the_chief(
    cluster_runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    chief, other, alone = cluster_runs

    def environment(index: int | None, *workers: str) -> None:
        if index is None:
            monkeypatch.delenv("TF_CONFIG", raising=False)
        else:
            monkeypatch.setenv("TF_CONFIG", Cluster(workers or ADDRESSES, index, "--cluster").as_tf_config())

    step = chief.file("checkpoints/step-0000000100")
    step.mkdir(parents=True)
    for name in ("state.index", "state.data-00000-of-00001"):
        (step / name).write_text("x")
    assert [resuming.why_not(run) for run in cluster_runs] == ["", "", ""]
    environment(1)
    assert resuming.latest() == alone, "the newest of its index"
    environment(0)
    assert resuming.latest() == chief
    shutil.rmtree(alone.path)
    for index, expected in ((0, chief), (1, other), (None, chief)):
        environment(index)
        assert resuming.latest() == expected, index
    environment(2, *ADDRESSES, "h2:1")
    with pytest.raises(RunError) as refusal:
        resuming.latest()
    assert str(refusal.value) == (
        f"there is no run to resume: none is of this worker, and the newest is {chief.name}"
    )  # fmt: skip
    environment(0, "h0:1")
    assert resuming.latest() == chief, "a cluster of one is none"
    (step / "state.index").unlink()
    environment(1)
    with pytest.raises(RunError, match=f"^there is no run to resume: {chief.name} has no intact checkpoint to resume"):
        resuming.latest()


# ---- runs that go on -----------------------------------------------------------------------------


def test_a_run_that_may_be_alive_elsewhere_is_watched_until_its_heartbeat_stops_or_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = presets.resolve("quickstart", ["epochs=3"])
    run = launch.create(launch.settle(preset, Path.cwd()))
    run.file("result.json").write_text('{"outcome": "stopped"}')
    looks, told, slept = [0], list[str](), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        looks[0] += 1

    monkeypatch.setattr(resuming, "time", SimpleNamespace(sleep=sleep))

    alive, goes_on = True, False
    monkeypatch.setattr(Run, "liveness", property(lambda _: Liveness(engine=alive and looks[0] < 3, host="box")))
    monkeypatch.setattr(Run, "status", property(lambda _: {"heartbeat": looks[0] if goes_on else 7}))
    assert resuming.of_preset(preset, told.append) == run
    assert told == [f"{run.name} was running on box: waiting until its heartbeat goes on, for at most a minute"]
    assert slept == [0.2] * 3
    looks[0], goes_on = 0, True
    assert resuming.of_preset(preset, told.append) is None
    assert (len(told), slept) == (2, [0.2] * 4)


def test_a_sweep_that_a_restart_of_this_machine_has_ended_is_known(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Place.here()
    listed = []
    for number, (state, place) in enumerate(
        [
            ("running", replace(here, boot_id="before")), ("running", here), ("done", replace(here, boot_id="before")),
            ("running", replace(here, boot_id="before", host="other")), ("running", replace(here, boot_id="before")),
        ]
    ):  # fmt: skip
        run = runs.create(f"t{number}", "schema: 1\n", more={
            part_of_sweep.FILE: part_of_sweep.SweepPlace(f"sweep-{number}", 3, {"train.epochs": 2}, 5).as_file()
        })  # fmt: skip
        folder = proofs_folder() / f"sweep-{number}"
        folder.mkdir(parents=True)
        (folder / "proof.json").write_text(json.dumps({"state": state} | place.as_fields()))
        listed.append(Entry(run.id, float(number)))
    ended = part_of_sweep.SweepPlace("sweep-4").as_file()
    other = runs.create("t4b", "schema: 1\n", more={part_of_sweep.FILE: ended})
    alone = runs.create("alone", "schema: 1\n")
    listed += [Entry(other.id, 9.0), Entry(alone.id, 10.0)]
    assert runner.interrupted(listed) == {
        proofs_folder() / "sweep-0": listed[0].run, proofs_folder() / "sweep-4": listed[4].run
    }  # fmt: skip
    trial = Run(runs.runs_folder() / listed[0].run)
    assert part_of_sweep.read(trial) == part_of_sweep.SweepPlace("sweep-0", 3, {"train.epochs": 2}, 5)
    part_of_sweep.set_pause(trial, None)
    assert part_of_sweep.read(trial) == part_of_sweep.SweepPlace("sweep-0", None, {"train.epochs": 2}, 5)
    assert part_of_sweep.read(alone) == part_of_sweep.SweepPlace()
    assert (entries.all_entries(), run_cluster.members(alone)) == ((), ())
