"""What a launch gives to the engine, and what a resume writes before it: files, variables and the clock; no process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.leases import lease, start_devices
from gputui.engine.leases.start_devices import Devices
from gputui.engine.options import Options, options_json
from gputui.engine.process import launch, resuming
from gputui.engine.process.known_failures import RESUMED
from gputui.engine.runs import Run, RunError, code_copy, liveness, run_cluster, titles
from gputui.engine.runs.events import EVENTS_FILE, Phase
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.runs.run_cluster import Cluster
from gputui.engine.system import locks
from gputui.engine.system.identity import Place
from gputui.engine.system.locks import ENGINE_LOCK, Lock
from gputui.engine.system.run_clock import RunClock

from tests.support.recorded import stopped


@dataclass
class Spawned:
    """Stands for the start of an engine, and keeps what it was given."""

    calls: list[tuple[Run, Lock, RunClock, Devices | None]] = field(default_factory=list)
    held: list[bool | None] = field(default_factory=list)  # whether the run's lock was held

    def __call__(self, run: Run, lock: Lock, clock: RunClock, devices: Devices | None = None) -> Any:
        self.calls.append((run, lock, clock, devices))
        self.held.append(locks.held(run.file(ENGINE_LOCK)))
        if devices is not None:
            devices.release()
        return "an engine"


@pytest.fixture
def spawned(home: Path, monkeypatch: pytest.MonkeyPatch) -> Spawned:
    made = Spawned()
    monkeypatch.setattr(launch, "spawn", made)
    return made


# ---- the process ---------------------------------------------------------------------------------


class Process:
    """Stands for subprocess.Popen."""

    pid = os.getpid()
    made: list[tuple[list[str], dict[str, Any]]] = []  # cleared by the fixture

    def __init__(self, command: list[str], **more: Any) -> None:
        self.made.append((command, more))


@pytest.fixture
def processes(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[list[str], dict[str, Any]]]]:
    monkeypatch.setattr(launch.subprocess, "Popen", Process)  # type: ignore[attr-defined]
    yield Process.made
    Process.made.clear()


def test_an_engine_gets_its_lock_its_leases_the_moment_of_the_launch_and_its_cluster(
    processes: list[tuple[list[str], dict[str, Any]]],
) -> None:
    worker = Cluster(("a:1", "b:1"), 1, "--cluster")
    alone, one_of_two = runs.create("alone", "schema: 1\n"), runs.create("big", "schema: 1\n", cluster=worker)
    alone.file("engine.log").write_text("before\n")
    clock = RunClock(5.0, 7.0)
    leases = lease.take(["GPU-1", "GPU-2"], "alone")
    with locks.take(alone.file(ENGINE_LOCK)) as lock:
        launch.spawn(alone, lock, clock, Devices(Options(), leases))
        launch.spawn(one_of_two, lock, clock)
        (command, first), (_, second) = processes
        assert command == [sys.executable, "-P", "-m", "gputui.engine", str(alone.path)]
        descriptors = [each.lock.fd for each in leases]
        assert (first["pass_fds"], second["pass_fds"]) == ([lock.fd, *descriptors], [lock.fd])
        more = {"GPUTUI_LOCK": str(lock.fd), "GPUTUI_LAUNCHED": "5.0 7.0"}
        leased = ",".join(f"{each.lock.fd} {each.name}" for each in leases)
        assert first["env"] == os.environ | more | {"GPUTUI_LEASED": leased}
        assert second["env"] == os.environ | more | {"TF_CONFIG": worker.as_tf_config()}
    for run, how in ((alone, first), (one_of_two, second)):
        assert (how["start_new_session"], how["stdin"], how["stdout"], how["stdout"].name) == (
            True, subprocess.DEVNULL, how["stderr"], str(run.file("engine.log"))
        )  # fmt: skip
    assert alone.file("engine.log").read_text() == "before\n"
    assert lease.holders() == {}, "they were handed over: this process has closed its locks"


def test_a_queued_run_begins_with_the_options_of_its_devices_and_after_its_last_event(
    spawned: Spawned, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = presets.resolve("quickstart", ["visible=none"])
    run = launch.create_queued(preset)
    writer = EventWriter(run.file(EVENTS_FILE), run.id)
    writer.emit(Phase(phase="ended"), time.time() + 900)
    writer.close()
    chosen = replace(preset.options, input=replace(preset.options.input, batch_size=7))
    asked: list[Any] = []

    def lease_devices(options: Options, what: str, _tell: object, *, among: object, all_visible: bool) -> Devices:
        asked.append((options, what, among, all_visible))
        return Devices(chosen, [])

    monkeypatch.setattr(start_devices, "lease_devices", lease_devices)
    assert launch.begin(run, preset, ["GPU-b"]) == "an engine"  # type: ignore[comparison-overlap]
    assert asked == [(preset.options, "quickstart", ["GPU-b"], False)]
    assert run.file(options_json.FILE).read_text() == options_json.to_json(chosen)
    ((_, _, clock, devices),) = spawned.calls
    assert (clock.date, devices) == (run.last_date(), Devices(chosen, []))
    assert spawned.held == [True]
    assert locks.held(run.file(ENGINE_LOCK)) is False
    monkeypatch.setattr(Run, "liveness", property(lambda _: runs.run.Liveness(trainer=True)))  # type: ignore[attr-defined]
    with pytest.raises(RunError, match=rf"^{run.name} cannot be started: its trainer has not ended yet$"):
        launch.begin(run, preset, None)

    def taken(*_: object, **__: object) -> Lock:
        raise locks.Taken

    monkeypatch.setattr(locks, "take", taken)
    with pytest.raises(RunError, match=rf"^another gputui is using the new run {run.name}$"):
        launch.begin(run, preset, None)
    assert len(spawned.calls) == 1


# ---- a resume ------------------------------------------------------------------------------------


def test_a_resume_writes_all_options_goes_on_in_the_log_and_begins_after_the_last_event(spawned: Spawned) -> None:
    run = stopped("visible=none", "epochs=3", "seed=5")
    before = presets.resolve(str(run.file("preset.yaml"))).options
    run.file("preset.yaml").write_text(
        "schema_version: 1\nextends: quickstart\ntrain: {epochs: 3, seed: 5}\nrun: {checkpoint: epoch}\n"
        "device: {visible: none}\n"
    )
    run.file("engine.log").write_text("earlier\n")
    writer = EventWriter(run.file(EVENTS_FILE), run.id)
    writer.emit(Phase(phase="ended"), time.time() + 900)
    writer.close()
    told: list[str] = []
    assert resuming.resume(run, tell=told.append) == "an engine"  # type: ignore[comparison-overlap]
    ((resumed, _, clock, devices),) = spawned.calls
    assert (resumed, clock.date, spawned.held, told) == (run, run.last_date(), [True], [])
    assert devices is not None
    assert devices.options == before
    assert presets.resolve(str(run.file("preset.yaml"))).options == before
    assert "extends" not in run.file("preset.yaml").read_text(), "an older gputui has written fewer options"
    assert run.file(options_json.FILE).read_text() == options_json.to_json(before)
    assert run.file("engine.log").read_text() == f"earlier\n{RESUMED}\n"
    assert run.result == {"outcome": "stopped"}, "its engine puts it aside"
    assert locks.held(run.file(ENGINE_LOCK)) is False


def test_a_run_that_comes_from_another_machine_has_left_it_when_it_is_resumed(
    spawned: Spawned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "BEATS_WITHIN_SECONDS", 0.0)
    run = stopped("visible=none")
    for place, phase in ((Place("elsewhere", "another boot", "pid:[1]"), "ended"), (Place.here(), "training")):
        run.file("status.json").write_text(
            json.dumps({"phase": "training", "heartbeat": 5.0, "engine_pid": 2**22 + 1} | place.as_fields())
        )
        resuming.resume(run)
        assert run.status == {"phase": phase, "heartbeat": 5.0, "engine_pid": 2**22 + 1} | place.as_fields()


def test_where_there_are_no_locks_the_files_of_the_last_launch_are_put_aside(
    spawned: Spawned, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped("visible=none")
    run.file("status.json").write_text('{"phase": "ended"}')
    take = locks.take
    monkeypatch.setattr(locks, "take", lambda *given, **named: replace(take(*given, **named), works=False))
    resuming.resume(run)
    assert (run.file("result.json").exists(), run.file("status.json").exists()) == (False, False)
    assert json.loads(run.file("result-1.json").read_text()) == {"outcome": "stopped"}


def test_a_worker_is_resumed_in_the_cluster_of_today(spawned: Spawned, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, now = Cluster(("a:1", "b:1"), 0, "--cluster"), Cluster(("c:9", "d:9"), 0, "TF_CONFIG")
    run = stopped("visible=none", "strategy.kind=multi_worker", cluster=kept)
    resuming.resume(run)
    assert run_cluster.of_run(run) == kept
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": list(now.workers)},
                                                "task": {"type": "worker", "index": 0}}))  # fmt: skip
    resuming.resume(run)
    assert run_cluster.of_run(run) == now


def test_a_resume_with_new_code_copies_it_and_one_with_the_copy_trains_the_copy(
    spawned: Spawned, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.py").write_text("x = 1\n")
    (mine / "data.csv").write_text("1\n")
    preset = presets.defaults([f"entry={mine}/train.py:build", "run.checkpoint=epoch", "visible=none"])
    run = launch.create(launch.settle(preset, mine))
    run.file("result.json").write_text('{"outcome": "stopped"}')
    step = run.file("checkpoints/step-0000000100")
    step.mkdir(parents=True)
    for name in ("state.index", "state.data-00000-of-00001"):
        (step / name).write_text("x")
    assert not (run.file(code_copy.FOLDER) / "data.csv").is_symlink()
    resuming.resume(run, from_copy=True)
    assert (run.file(code_copy.FOLDER) / "data.csv").readlink() == mine / "data.csv"
    assert json.loads(run.file(options_json.FILE).read_text())["run"]["code"] == "copy"
    (mine / "train.py").write_text("x = 2\n")
    resuming.resume(run, new_code=True)
    texts = [(run.file(name) / "train.py").read_text() for name in (code_copy.FOLDER, "code-1")]
    assert texts == ["x = 2\n", "x = 1\n"]
    assert sorted(path.name for path in run.path.glob("code*") if path.is_dir()) == ["code", "code-1"], "only once"


# ---- what is settled before a launch -------------------------------------------------------------


def with_workload(**values: Any) -> presets.Preset:
    """The default preset with a relative path, as it stands before it is launched."""
    preset = presets.defaults([])
    return replace(preset, options=replace(preset.options, workload=replace(preset.options.workload, **values)))


def test_a_launch_settles_what_the_preset_leaves_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUTUI_PYTHON", raising=False)
    preset = with_workload(data="npz:x.npz")
    made = [launch.settle(preset, tmp_path).options for _ in range(2)]
    seeds = [options.train.seed for options in made]
    assert None not in seeds
    assert seeds[0] != seeds[1]
    assert all(0 <= (seed or 0) < 2**31 for seed in seeds)
    assert [options.workload.data for options in made] == [f"npz:{tmp_path}/x.npz"] * 2
    assert made[0].run.python is None
    monkeypatch.setenv("GPUTUI_PYTHON", "/envs/a/bin/python")
    given = launch.settle(presets.defaults(["seed=0", "run.python=/envs/b/bin/python"]), tmp_path).options
    assert (given.train.seed, given.run.python) == (0, "/envs/b/bin/python")
    assert launch.settle(preset, tmp_path).options.run.python == "/envs/a/bin/python"


def test_the_origin_names_no_secret_and_no_folder_and_a_preset_without_a_file_has_none(
    home: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("workload: {entry: train.py:build}\n")
    (tmp_path / "train.py").write_text("")
    changed = presets.resolve(str(own), ["notify.url=https://a/secret", "epochs=7", f"workload.folder={tmp_path}"])
    assert json.loads(launch.origin_of(changed)) == {
        "preset": "own", "file": str(own), "changes": {"train.epochs": {"from": 2, "to": 7}}
    }  # fmt: skip
    assert launch.origin_of(presets.defaults(["epochs=7"])) == ""
    assert launch.title_of(changed) == "own: epochs=7"
    own.write_text("broken: [")
    assert json.loads(launch.origin_of(changed))["changes"] == {}, "of a preset that cannot be read nothing is a change"


def test_a_queued_run_trains_its_own_code_from_the_copy(home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1\n")
    preset = with_workload(entry="train.py:build")
    own = launch.create_queued(preset, tmp_path, more={"more.json": "{}"})
    options = presets.resolve(str(own.file("preset.yaml"))).options
    assert (options.run.code, options.workload.entry) == ("copy", f"{tmp_path}/train.py:build")
    assert (own.file("code/train.py").read_text(), own.file("more.json").read_text()) == ("x = 1\n", "{}")
    plain = launch.create_queued(presets.resolve("quickstart", ["epochs=9"]))
    assert presets.resolve(str(plain.file("preset.yaml"))).options.run.code == "live"
    assert (titles.title(plain), plain.number, own.number) == ("quickstart: epochs=9", 2, 1)
