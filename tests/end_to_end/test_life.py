"""Who lives, and where: the lock of a run, its processes' identity, other machines, and who gets a signal."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.presets import PresetError
from gputui.engine.process import resuming
from gputui.engine.runs import Run, RunError, liveness
from gputui.engine.system import locks
from gputui.engine.system.identity import Place, Process
from gputui.engine.system.locks import ENGINE_LOCK

from tests.support.deleting import deleted
from tests.support.front_door import gputui, until
from tests.support.standing_in import engines_of, kept, stand_in, training

__all__ = ["stand_in"]

ELSEWHERE = Place("node-b", "another-start", "pid:[1]")
NEXT_DOOR = Place("box", Place.here().boot_id, "pid:[1]")  # another container of this machine

pytestmark = pytest.mark.usefixtures("nothing_left_running")


def rewritten(run: Run, **changes: Any) -> Run:
    """Its status says something else."""
    run.file("status.json").write_text(json.dumps({**run.status, **changes}))
    return run


def left(*, place: Place = ELSEWHERE, heartbeat: float | None = None, phase: str = "training") -> Run:
    """A run of another place, with a checkpoint, as it looks from here."""
    run = runs.create("left", presets.resolve("quickstart").to_yaml())
    shards = run.file("checkpoints") / "step-0000000001"
    shards.mkdir(parents=True)
    for name in ("state.index", "state.data-00000-of-00001"):
        (shards / name).write_text("x")
    run.file(ENGINE_LOCK).touch()
    run.file("status.json").write_text("{}")
    beat = time.time() if heartbeat is None else heartbeat
    return rewritten(run, **place.as_fields(), phase=phase, heartbeat=beat, engine_pid=1, engine_start_ticks=7)


def stopped(run: Run) -> None:
    """Ask it to stop, and wait until it has."""
    runs.request_stop(run)
    until(lambda: not run.alive("engine"))


def test_a_process_is_not_dead_because_nothing_more_can_be_opened() -> None:
    me, limits = Process.current(), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        alive = me.alive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert alive


# ---- the lock -----------------------------------------------------------------------------------


def test_a_run_lives_as_long_as_its_engine_whatever_its_files_say(stand_in: None) -> None:
    run = training()
    before = dict(run.status)
    for odd in ({}, {"engine_pid": "x"}, {"engine_pid": -1, "engine_start_ticks": 1}, {"engine_start_ticks": 5}):
        run.file("status.json").write_text(json.dumps({**before, **odd} if odd else {}))
        assert run.alive("engine")
        with pytest.raises(RunError, match="cannot be resumed"):
            resuming.resume(run)
        with pytest.raises(RunError, match="cannot be deleted"):
            deleted(run)
        assert engines_of(run) == [before["engine_pid"]]
    until(lambda: run.process("engine") == Process.of(before["engine_pid"]))  # it has told it again
    assert run.state == "running"
    os.kill(before["engine_pid"], signal.SIGKILL)
    until(lambda: not run.alive("engine") and not run.alive("trainer"))
    assert Run(run.path).state == "crashed"


def test_neither_the_trainer_nor_what_it_starts_holds_the_lock(stand_in: None) -> None:
    run = training()
    trainer, engine = run.process("trainer"), run.process("engine")
    assert trainer is not None
    assert engine is not None
    assert engine.has_open(run.file(ENGINE_LOCK))
    assert not trainer.has_open(run.file(ENGINE_LOCK))


def test_a_forked_process_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    with locks.take(tmp_path / "lock"):
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        assert locks.held(tmp_path / "lock")
    try:
        until(lambda: locks.held(tmp_path / "lock") is False)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_whoever_looks_at_a_lock_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            locks.held(tmp_path / "lock")

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(200):
            with locks.take(tmp_path / "lock"):
                pass
    finally:
        done.set()
        for looker in lookers:
            looker.join()


def test_the_lock_of_a_deleted_run_is_worth_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = locks.take(path)
    path.unlink()
    with first, locks.take(path):
        assert locks.held(path)


def test_without_locks_the_processes_are_looked_for(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run = training()
    for reason in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):

        def no_lock(fd: int, operation: int) -> None:
            raise OSError(reason, os.strerror(reason))  # noqa: B023

        monkeypatch.setattr(fcntl, "flock", no_lock)
        assert locks.held(run.file(ENGINE_LOCK)) is None
    assert run.state == "running"
    with pytest.raises(RunError, match="it is running"):
        resuming.resume(run)
    stopped(run)
    until(lambda: run.state == "stopped")
    engine = kept(resuming.resume(run))
    assert run.state in ("starting", "running")
    until(lambda: run.status.get("phase") == "training")
    stopped(run)
    engine.wait(60)


def test_a_run_without_a_status_is_not_about_to_start_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.create("new", presets.resolve("quickstart").to_yaml())
    assert run.state == "starting"
    for second in (3600, -3600, 20):  # written by a clock that was ahead, or behind
        os.utime(run.file("preset.yaml"), (time.time() + second,) * 2)
        assert run.state == ("crashed" if abs(second) > 15 else "starting")
    os.utime(run.file("preset.yaml"))
    run.file(ENGINE_LOCK).touch()
    assert Run(run.path).state == "crashed"


# ---- two and six at once ------------------------------------------------------------------------


def resumed_at_once(run: Run, times: int) -> list[subprocess.Popen[bytes]]:
    """The engines of those that won."""
    ready, won, lost = threading.Barrier(times), [], []

    def resume() -> None:
        ready.wait()
        try:
            won.append(kept(resuming.resume(run)))
        except RunError as reason:
            lost.append(str(reason))

    threads = [threading.Thread(target=resume) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) + len(lost) == times
    return won


@pytest.mark.parametrize("times", [2, 6])
def test_of_several_resumes_at_once_one_wins(stand_in: None, times: int) -> None:
    run = training()
    for sitting in range(2, 5):
        stopped(run)
        (engine,) = resumed_at_once(run, times)
        until(lambda: run.state == "running" and run.status["phase"] == "training")
        assert engines_of(run) == [engine.pid] == [run.status["engine_pid"]]
        assert len(list(run.path.glob("result-*.json"))) == sitting - 1
    stopped(run)


# ---- what cannot be resumed loses nothing -------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a mapping|empty|give"),
        ("schema_version: 1\nrun: {hang_seconds: [1\n", "preset.yaml:"),
        ("- a\n- b\n", "preset.yaml"),
        ("schema_version: 1\ntrain: {epochs: many}\n", r"preset.yaml:2: train.epochs: 'many' does not fit"),
    ],
)
def test_a_run_whose_preset_is_broken_keeps_its_result(text: str, said: str) -> None:
    run = left(place=Place.here(), phase="ended")
    run.file("result.json").write_text('{"outcome": "stopped"}')
    run.file("preset.yaml").write_text(text)
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    if text:
        with pytest.raises(PresetError, match=said):
            resuming.resume(run)
        assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()} == before
        assert run.state == "stopped"


@pytest.mark.parametrize("name", ["events.jsonl", "telemetry.jsonl", "status.json", "engine.log"])
def test_a_run_with_a_folder_in_place_of_its_file_is_not_resumed(name: str) -> None:
    run = left(place=Place.here(), phase="ended")
    run.file("result.json").write_text('{"outcome": "stopped"}')
    run.file(name).unlink(missing_ok=True)
    run.file(name).mkdir()
    refused = gputui("resume", run.id, "--detach")
    assert refused.returncode == 2
    assert f"{run.name} cannot be resumed: {name} cannot be read: is a folder, not a file\n" in refused.stderr
    assert run.file("result.json").exists()


def test_a_resume_whose_engine_cannot_start_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = left(place=Place.here(), phase="ended")
    run.file("result.json").write_text('{"outcome": "stopped"}')
    before = run.status
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(OSError, match="No such file"):
        resuming.resume(run)
    assert run.state == "stopped"
    assert run.status == before


def test_a_preset_that_lacks_an_option_of_today_resumes(stand_in: None) -> None:
    run = training()
    stopped(run)
    text = run.file("preset.yaml").read_text()
    assert "hang_seconds" in text
    run.file("preset.yaml").write_text("schema_version: 1\nrun: {checkpoint: 20}\n")
    kept(resuming.resume(run))
    until(lambda: run.state == "running" and run.status["phase"] == "training")
    assert "checkpoint: 20" in run.file("preset.yaml").read_text()
    stopped(run)
    assert run.state == "stopped"


def test_a_run_whose_lock_was_replaced_runs(stand_in: None) -> None:
    run = training()
    run.file(ENGINE_LOCK).unlink()
    run.file(ENGINE_LOCK).touch()  # as when the folder is copied back over itself
    assert (run.state, run.liveness.engine) == ("running", True)
    runs.request_stop(run)
    until(lambda: run.state == "stopped")


# ---- another machine ----------------------------------------------------------------------------


def test_a_run_of_another_machine_runs_there() -> None:
    run = left()
    assert (run.state, run.liveness.host) == ("running", "node-b")
    for verb, act in (("stop", runs.request_stop), ("delete", deleted), ("resume", resuming.resume)):
        with pytest.raises(RunError, match=f"is running on node-b; {verb} it there"):
            act(run)
    assert "running on node-b" in gputui("runs").stdout
    assert json.loads(gputui("runs", "--json").stdout)["host"] == "node-b"


def test_a_heartbeat_that_has_stopped_is_a_crash_and_can_be_resumed(stand_in: None) -> None:
    run = left(heartbeat=time.time() - 3600)
    assert run.state == "crashed"
    engine = kept(resuming.resume(run))
    assert not run.liveness.host
    until(lambda: run.state == "running")
    assert run.status["host"] == Place.here().host
    stopped(run)
    engine.wait(60)


@pytest.mark.parametrize("skew_seconds", [-86400, 86400])
def test_a_heartbeat_that_goes_on_counts_whatever_the_clocks_say(skew_seconds: float) -> None:
    run = left(heartbeat=time.time() + skew_seconds)
    assert run.state == "crashed"  # at the first look
    done = threading.Event()

    def beat() -> None:
        while not done.wait(0.3):
            rewritten(run, heartbeat=time.time() + skew_seconds)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(RunError, match="running on node-b"):
            deleted(run)
        until(lambda: run.state == "running")
    finally:
        done.set()
        thread.join()


def test_a_heartbeat_is_old_by_our_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    run = left()
    assert run.state == "running"
    later = time.monotonic() + liveness.FRESH_SECONDS + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert Run(run.path).state == "crashed"


def test_another_container_of_this_machine_is_told_by_the_lock() -> None:
    run = left(place=NEXT_DOOR)
    assert run.state == "crashed"  # its heartbeat is new, and yet nobody holds the lock
    with locks.take(run.file(ENGINE_LOCK)):
        assert run.liveness.host == "box (another container of this machine)"
        with pytest.raises(RunError, match="running on box"):
            runs.request_stop(run)


def test_a_run_that_ended_on_another_machine_has_ended() -> None:
    run = left(phase="ended")
    run.file("result.json").write_text('{"outcome": "ok"}')
    assert run.state == "ok"
    deleted(run)
    assert not run.path.exists()
    assert runs.all_runs() == []


@pytest.mark.needs("root")  # for unshare
def test_a_clock_that_is_set_changes_nothing(stand_in: None, tmp_path: Path) -> None:
    """The kernel shows the clock's step in /proc/stat; a container has process numbers of its own."""
    run = training()
    for step in (1, -3600, 86400 * 400):
        lines = Path("/proc/stat").read_text().splitlines()
        fake = [f"btime {int(line.split()[1]) + step}" if line.startswith("btime") else line for line in lines]
        (tmp_path / "stat").write_text("\n".join(fake) + "\n")
        command = f"mount --bind {tmp_path}/stat /proc/stat; exec gputui runs"
        shown = subprocess.run(
            ["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False, env=on_path()
        )
        assert " running " in shown.stdout, shown.stderr
    inside = subprocess.run(
        ["unshare", "-pf", "--mount-proc", "gputui", "resume", "latest"],
        capture_output=True,
        text=True,
        check=False,
        env=on_path(),
    )
    assert inside.returncode == 2
    assert "is running on" in inside.stderr
    assert engines_of(run) == [run.status["engine_pid"]]
    stopped(run)


def on_path() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


# ---- who gets a signal --------------------------------------------------------------------------


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this user that is no engine."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("role", ["engine", "trainer"])
@pytest.mark.parametrize("locks", [True, False])
def test_a_process_that_is_not_at_work_for_a_run_gets_no_signal(
    locks: bool, role: str, bystander: subprocess.Popen[bytes]
) -> None:
    run = left(place=Place.here())
    process = Process.of(bystander.pid)
    rewritten(run, **process.as_fields(role))
    if locks:
        assert run.state == "crashed"
        with pytest.raises(RunError, match="is not running"):
            runs.request_stop(run)
    else:
        run.file(ENGINE_LOCK).unlink()  # as of a file system without locks: the status alone names the process
        with pytest.raises(RunError, match="no signal is sent"):
            runs.request_stop(run)
    with pytest.raises(RunError, match="does not belong to it: no signal is sent"):
        runs.signal_process(run, role, process)
    assert bystander.poll() is None


@pytest.mark.needs("root")  # to give a file away
def test_a_status_of_another_user_sends_no_signal(stand_in: None) -> None:
    run = training()
    foreign = left(place=Place.here())
    foreign.file(ENGINE_LOCK).unlink()
    foreign.file(ENGINE_LOCK).symlink_to(run.file(ENGINE_LOCK))
    foreign.file("status.json").write_text(json.dumps(dict(run.status)))
    os.chown(foreign.file("status.json"), 65534, 65534)
    engine = foreign.process("engine")
    assert engine is not None
    with pytest.raises(RunError, match="belongs to another user"):
        runs.signal_process(foreign, "engine", engine)
    assert run.state == "running"
    stopped(run)


def test_who_stops_a_copy_of_a_running_run_does_not_stop_the_run(stand_in: None) -> None:
    run = training()
    copy = Run(run.path.with_name("copy"))
    shutil.copytree(run.path, copy.path)
    assert not copy.alive("engine")
    with pytest.raises(RunError, match="is not running"):
        runs.request_stop(copy)
    assert run.state == "running"
    stopped(run)
    until(lambda: not run.alive("trainer"))
    deleted(copy)
    assert run.path.is_dir()


def test_a_status_of_an_older_gputui_is_alive_only_if_its_process_is_the_engine(bystander: Any) -> None:
    run = left()
    run.file(ENGINE_LOCK).unlink()
    for pid in (bystander.pid, 2**22 + 1):
        run.file("status.json").write_text(json.dumps({"engine_pid": pid, "engine_started": 1.0, "heartbeat": 1.0}))
        assert run.state == "crashed"
    code = "import time; time.sleep(600)"
    of_old = subprocess.Popen([sys.executable, "-c", code, "-m", "gputui.engine", str(run.path)])
    try:
        run.file("status.json").write_text(json.dumps({"engine_pid": of_old.pid, "engine_started": 1.0}))
        until(lambda: run.state == "running")
        runs.request_stop(run)
        assert of_old.wait(60) == -signal.SIGTERM
    finally:
        of_old.kill()
        of_old.wait()


def test_no_name_is_no_run() -> None:
    left(phase="ended")
    done = gputui("stop", "")
    assert done.returncode == 2
    assert done.stderr == "name a run, or latest; gputui runs lists them\n"


def test_a_home_that_is_relative_stays_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUTUI_HOME", "here")
    run = runs.create("mine", presets.resolve("quickstart").to_yaml())
    monkeypatch.chdir("/")
    assert run.path.parent == tmp_path / "here" / "runs"
    assert run.file("preset.yaml").is_file()


# ---- private ------------------------------------------------------------------------------------


def test_runs_and_proofs_are_their_users_alone(home: Path) -> None:
    from gputui.engine.proof import folder, request

    (home / "runs").mkdir(parents=True, mode=0o755)
    run = runs.create("mine", presets.resolve("quickstart").to_yaml())
    proof = folder.create(request.of_change("quickstart", ["steps_per_execution=4"]))
    for path in (home / "runs", run.path, home / "proofs", proof.path):
        assert path.stat().st_mode & 0o777 == 0o700, path
    (home / "runs").chmod(0o755)
    gputui("runs")
    assert (home / "runs").stat().st_mode & 0o777 == 0o700
