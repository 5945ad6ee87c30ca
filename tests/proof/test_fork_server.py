"""Trainers that are forked from a process which has imported TensorFlow: like started ones, however anything ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.doors.engine import (
    ForkServer,
    Machine,
    Process,
    Run,
    Stop,
    TrialRunner,
    below,
    launch,
    presets,
    proof_start,
    this_machine,
)
from tests.doors.engine import run as control
from tests.support.front_door import ended, happened, until
from tests.support.standing_in import engines_of
from tests.support.standing_in import stand_in as stand_in

SMALL = ("model=mlp", "width=0.05")
SHORT = ("epochs=2", "batch_size=64", "inter_op_threads=3", "xla_flags=--xla_cpu_enable_fast_math=false")
OF_THE_PROCESS = ("t", "run", "pid")  # what differs between two equal runs
BAD_FLAG = "xla_flags=--xla_no_such_flag=1"
# The server of forks ends as soon as it starts, and writes that it was there.
NO_SERVER = """
if sys.orig_argv[-1] == "--fork-server":
    import os
    with open("{told}", "a") as stream:
        stream.write("started ")
    os._exit(1)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    made = ForkServer(tmp_path / "trials")
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """One whose process has imported TensorFlow, for all tests that train."""
    made = ForkServer(tmp_path_factory.mktemp("shared") / "trials")
    yield made
    made.close()


@pytest.fixture
def begin(shared: ForkServer, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts a run in a folder of its own; none goes on beyond the test."""
    found: list[Run] = []

    def start(*settings: str) -> Run:
        preset = presets.resolve("quickstart", [*settings, "run.checkpoint=off", "train.seed=5"])
        earlier = len(list(shared._folder.glob("*")))
        run, engine_runs = shared.start(preset, shared._folder / f"{earlier + 1:02}-a", tmp_path)
        assert engine_runs()
        found.append(run)
        return run

    yield start
    for run in found:
        for role in ("engine", "trainer"):
            process = run.process(role)
            if process is not None and process.alive():
                os.kill(process.pid, signal.SIGKILL)


def process_of(server: ForkServer) -> psutil.Process | None:
    """The process that forks for this one, if it runs.

    Engines that it has forked have its command line, and may be children of this process once it has ended.
    """
    process = next((process for process, _ in server._servers.values()), None)
    return psutil.Process(process.pid) if process is not None and process.poll() is None else None


def pid_of(run: Run, role: str) -> int:
    process = until(lambda: run.process(role))
    return int(process.pid)


def trains(run: Run) -> bool:
    return bool(until(lambda: happened(run, "progress")))


def told(run: Run, kind: str) -> list[dict[str, Any]]:
    """Its events of a kind, without what differs between two equal runs."""
    return [
        {name: value for name, value in event.items() if name not in OF_THE_PROCESS} for event in happened(run, kind)
    ]


def training_until_stopped(run: Run, engine_runs: Callable[[], bool]) -> None:
    until(lambda: run.status.get("phase") == "training")
    assert engine_runs()
    assert engines_of(run) == [run.status["engine_pid"]]
    control.request_stop(run)
    assert ended(run)["outcome"] == "stopped"
    until(lambda: not engine_runs())


@pytest.mark.slow
def test_a_forked_trainer_is_like_a_started_one_and_a_trial_that_is_too_slow_ends_before_its_time(
    begin: Callable[..., Run], shared: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    forked = begin(*SHORT)
    assert ended(forked)["outcome"] == "ok"
    assert process_of(shared) is not None, "it was forked"
    run, engine = launch.start(presets.resolve("quickstart", [*SHORT, "run.checkpoint=off", "train.seed=5"]))
    assert ended(run)["outcome"] == "ok"
    engine.wait(20)
    assert told(forked, "started") == told(run, "started")
    assert told(forked, "warning") == told(run, "warning") != []
    assert [event["metrics"] for event in told(forked, "epoch")] == [event["metrics"] for event in told(run, "epoch")]
    for name in ("steps", "traces", "trainer_returncode"):
        assert ended(forked)[name] == ended(run)[name], name
    # Threads allocate side by side, in another order each time.
    for name, apart in (("peak_memory_bytes", 3e6), ("peak_process_bytes", 30e6)):
        assert ended(forked)[name] == pytest.approx(ended(run)[name], abs=apart), name
    # What TensorFlow reads once, it has not read before.
    unknown = ended(begin(*SMALL, "compile.xla=true", BAD_FLAG))["error"]["message"]
    assert "does not know: --xla_no_such_flag=1" in unknown
    bench = TrialRunner(shared._folder, tmp_path, 1, 600.0, this_machine.read(), Stop())
    bench._fork_server = shared
    trial = bench.measure(presets.resolve("quickstart", [*SMALL, "train.seed=1"]), "s", 1, judge=below(1e12))
    assert trial.outcome == "slower", trial.error
    assert trial.samples_per_second is not None
    assert trial.samples_per_second > 0


@pytest.mark.slow
@pytest.mark.nightly
def test_however_trainer_engine_or_server_end_the_others_are_as_always(
    begin: Callable[..., Run], shared: ForkServer
) -> None:
    forever = (*SMALL, "validation_split=0", "epochs=100000")
    run = begin(*forever)
    assert trains(run)
    first = process_of(shared)
    assert first is not None
    trainer, engine = (psutil.Process(pid_of(run, role)) for role in ("trainer", "engine"))
    assert trainer.ppid() == engine.pid
    assert engine.ppid() == first.pid
    assert os.getsid(trainer.pid) == engine.pid != os.getsid(0)
    assert "tensorflow" not in Path(f"/proc/{engine.pid}/maps").read_text()
    assert Process.of(trainer.pid).serves(run.path)
    others = [what for what, _ in proof_start._of_other_homes(Machine((), "", 2, 2**30), None)]
    assert any(f"(process {trainer.pid})" in what for what in others)
    assert not any(f"(process {first.pid})" in what for what in others)
    for process in (trainer, engine):
        left = [file for file in os.listdir(f"/proc/{process.pid}/fd") if _is_socket(process.pid, file)]
        assert left == [], "the line to the proof would stay open"
    threads = first.num_threads()

    os.kill(trainer.pid, signal.SIGABRT)
    assert "the trainer ended with signal SIGABRT" in ended(run)["error"]["message"]
    until(lambda: not psutil.pid_exists(engine.pid))  # nobody waits for it, and yet it is gone

    run = begin(*forever)
    assert trains(run)
    assert first.num_threads() == threads, "it only forks"
    scratch = Path(_environment(pid_of(run, "engine"))["GPUTUI_SCRATCH"])
    assert scratch.is_dir()
    os.kill(pid_of(run, "engine"), signal.SIGKILL)
    until(lambda: not run.alive("trainer"))
    assert run.result is not None
    assert run.result["outcome"] == "crashed", "nobody has asked for it"
    assert "the engine of this run was killed" in run.result["error"]["message"]
    assert not scratch.exists()

    run = begin(*forever)
    assert trains(run)
    first.kill()
    until(lambda: process_of(shared) is None)
    steps = happened(run, "progress")[-1]["step"]
    until(lambda: happened(run, "progress")[-1]["step"] > steps)
    control.request_stop(run)
    assert ended(run)["outcome"] == "stopped"

    run = begin(*forever)  # from another server
    assert trains(run)
    second = process_of(shared)
    assert second is not None
    assert psutil.Process(pid_of(run, "engine")).ppid() == second.pid
    ((_, line),) = shared._servers.values()
    line.close()  # as when the proof is killed
    until(lambda: process_of(shared) is None)
    os.kill(pid_of(run, "trainer"), signal.SIGKILL)
    assert "(SIGKILL)" in ended(run)["error"]["message"]


def test_a_server_that_cannot_fork_is_not_tried_again(stand_in: None, server: ForkServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (tmp_path / "standing-in" / "sitecustomize.py").open("a") as stream:
        stream.write(NO_SERVER.format(told=log))
    for number in (1, 2):
        run, engine_runs = server.start(presets.resolve("quickstart"), tmp_path / "trials" / str(number), tmp_path)
        training_until_stopped(run, engine_runs)
    assert log.read_text() == "started "


def _is_socket(pid: int, file: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/{file}").startswith("socket:")
    except OSError:
        return False


def _environment(pid: int) -> dict[str, str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)
