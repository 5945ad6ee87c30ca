"""The runs of a training on several machines whose workers share a home: it stands once in every list."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.compare import baseline, comparison
from gputui.engine.process import launch, resuming
from gputui.engine.runs import Run, RunError, folders, run_cluster
from gputui.engine.runs.events import Started
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.system.run_clock import RunClock
from gputui.tui import cli
from gputui.tui.reading.run_list import entry_of
from gputui.tui.screens.runs.screen import RunsScreen

from tests.support.tiny import Tiny, wait_for

ADDRESSES = ("h0:1", "h1:1")


def begun(*made: Run) -> None:
    """Tell in each run of these workers that they have met."""
    members = [{"index": index, "address": f"h{index}:1", "host": "h", "run": run.id, "folder": str(run.path),
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


def test_workers_of_one_training_are_no_repeats_of_it(cluster_runs: list[Run]) -> None:
    chief, other, alone = cluster_runs
    found = comparison.compare(baseline.line_up((chief, other, alone)))
    assert found.groups == (0, 1, 1)
    assert any("workers of one training" in note for note in found.notes)
    assert not any("workers of one" in note for note in comparison.compare(baseline.line_up((chief, alone))).notes)


async def test_the_screen_folds_the_workers_and_deletes_them_with_the_chief(cluster_runs: list[Run]) -> None:
    chief, _, alone = cluster_runs
    async with Tiny(RunsScreen).run_test(size=(100, 24), notifications=True) as pilot:
        shown = await wait_for(pilot, "2 of 2 runs")
        assert "2 workers" in shown
        await pilot.press("down", "d")
        shown = await wait_for(pilot, "Delete 2 runs")
        assert chief.id in shown
        assert "worker 1 of 2 (its worker)" in shown
        await pilot.press("d")
        await wait_for(pilot, "1 of 1 run")
    assert runs.all_runs() == [alone]


def test_a_worker_that_dies_knows_the_checkpoint_of_its_chief(cluster_runs: list[Run]) -> None:
    chief = cluster_runs[0]
    assert [run_cluster.is_saved(run) for run in cluster_runs] == [False, False, True], (
        "nobody can look at the last one's"
    )
    chief.file("checkpoints/step-0000000050").mkdir(parents=True)
    assert [run_cluster.is_saved(run) for run in cluster_runs] == [True, True, True]
    preset = presets.resolve("quickstart", ["strategy.kind=multi_worker"])
    assert not run_cluster.is_saved(launch.create(preset, joins=Cluster(ADDRESSES, 1, "--cluster")))


def test_of_two_trainings_in_one_home_each_chief_has_its_own_workers(cluster_runs: list[Run]) -> None:
    chief, worker = cluster_runs[:2]
    assert [run.id for run in run_cluster.other_workers(chief)] == [run.id for run in cluster_runs[1:2]]
    assert run_cluster.local_chief(worker) == chief
    assert run_cluster.other_workers(worker) == []
    kept = json.loads(worker.file(run_cluster.FILE).read_text())
    worker.file(run_cluster.FILE).write_text(json.dumps(kept | {"index": 5}))  # of another training
    assert worker not in run_cluster.other_workers(chief)
    assert run_cluster.local_chief(worker) is None


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


def test_a_members_run_is_that_of_its_folder_name_and_index(
    cluster_runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    member = run_cluster.members(cluster_runs[0])[1]
    other = cluster_runs[1]
    assert run_cluster.run_of(member) == other
    assert run_cluster.run_of({**member, "run": "another"}) is None
    assert run_cluster.run_of({**member, "index": 0}) is None
    monkeypatch.chdir(other.path.parent)
    assert run_cluster.run_of({**member, "folder": other.id}) is None, "of a relative folder nobody knows where it lies"
    assert run_cluster.run_of({**member, "folder": "/gone/" + other.id}) is None


def test_the_chief_has_the_checkpoint_of_all_workers(cluster_runs: list[Run]) -> None:
    chief, other, alone = cluster_runs
    assert [run_cluster.is_saved(run) for run in (chief, other)] == [False, False]
    assert run_cluster.is_saved(alone) is alone.file("options.json").exists(), "its chief's folder cannot be read"
    alone.file("options.json").write_text(json.dumps({"run": {"checkpoint": "epoch"}}))
    assert run_cluster.is_saved(alone)
    alone.file("options.json").write_text(json.dumps({"run": {"checkpoint": "off"}}))
    assert not run_cluster.is_saved(alone)
    step = chief.file("checkpoints/step-0000000100")
    step.mkdir(parents=True)
    for name in ("state.index", "state.data-00000-of-00001"):
        (step / name).write_text("x")
    assert [run_cluster.is_saved(run) for run in (chief, other, alone)] == [True, True, False]


def test_two_workers_without_their_chief_are_told_as_of_one_training(home: Path) -> None:
    preset = presets.resolve("quickstart", ["strategy.kind=multi_worker"])
    addresses = (*ADDRESSES, "h2:1")
    made = [launch.create(preset, joins=Cluster(addresses, index, "--cluster")) for index in range(3)]
    assert not any("workers of one" in note for note in comparison.compare(baseline.line_up(made[1:])).notes)
    begun(*made)
    assert any("workers of one training" in note for note in comparison.compare(baseline.line_up(made[1:])).notes)


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
