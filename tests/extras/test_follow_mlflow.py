"""Followers write to a real MLflow server: what it has, after kills, while it hangs, refuses or has a full disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import EXPERIMENT
from tests.doors.engine import follow_start as start
from tests.doors.tui import tui_cli as cli
from tests.support.followed import Written
from tests.support.front_door import until
from tests.support.small_disk import SmallDisk
from tests.support.small_disk import small_disk as small_disk


class Server:
    """An MLflow server on this machine, whose database is in `folder`."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder, self.uri = folder, f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        store = ["--backend-store-uri", f"sqlite:///{self.folder}/db", "--artifacts-destination", str(self.folder)]
        command += ["--workers", "1", *store]
        nothing = subprocess.DEVNULL
        self.process = subprocess.Popen(command, start_new_session=True, stdout=nothing, stderr=nothing)
        until(self.answers, 120)

    def answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def send(self, number: int) -> None:
        """Send a signal to all its processes, which are of one session."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def stop(self) -> None:
        if self.process is not None:
            self.send(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def run(self, written: Written) -> tuple[Any, dict[str, list[tuple[int, int, float]]]]:
        """The MLflow run of a run, and the points of each metric: step, time in ms, value."""
        from mlflow import MlflowClient

        client = MlflowClient(self.uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        assert experiment is not None
        (run,) = client.search_runs([experiment.experiment_id], f"tags.`gputui.run` = '{written.run.id}'")
        keys = run.data.metrics
        points = {key: client.get_metric_history(run.info.run_id, key) for key in keys}
        return run, {key: sorted((p.step, p.timestamp, p.value) for p in points[key]) for key in keys}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("mlflow"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def written(home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Written:
    """A run whose id is that of the test, as one server serves all tests."""
    written = Written(home / "runs" / f"20260101-000000-{request.node.name.replace('_', '-')[:30]}")
    written.run.file("notes.json").write_text('{"note": "after the fix", "tags": ["best"]}')
    return written


def follow(written: Written, server: Server, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    return cli.run(["follow", written.run.id, "--to", "mlflow"])


def has_all(written: Written, points: dict[str, list[tuple[int, int, float]]], steps: int) -> None:
    """Each step has exactly one point of each metric."""
    for name in ("loss", "accuracy", "gpu0_busy", "host_cpu", "samples_per_second"):
        assert [step for step, _, _ in points[name]] == list(range(1, steps + 1))
    assert points["loss"][3][2] == 0.25
    assert [value for _, _, value in points["result/step_ms.p50"]] == [2.5]


def test_a_server_has_the_figures_options_tags_and_the_end(
    written: Written, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.train(range(1, 301))
    written.finish("ok", 300)
    assert follow(written, server, monkeypatch) == 0
    run, points = server.run(written)
    has_all(written, points, 300)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"run.checkpoint": "epoch"}
    tags = {"gputui.tags": "best", "mlflow.note.content": "after the fix", "gputui.outcome": "ok"}
    assert tags.items() <= run.data.tags.items()
    written.resume(250)
    written.train(range(251, 261))
    written.finish("stopped", 260)
    assert follow(written, server, monkeypatch) == 0
    run, points = server.run(written)
    assert run.info.status == "KILLED"
    assert len(points["loss"]) == 310


def test_kills_of_the_follower_and_of_the_server_lose_and_double_nothing(
    written: Written, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    written.train(range(1, 1501))

    def number_now() -> int:
        return start.state(written.run.path, "mlflow").place.number

    for number in range(4):
        before, process = number_now(), start.start(written.run.path, "mlflow")
        while number_now() == before:
            time.sleep(0.02)
        if number == 1:
            server.stop()
            time.sleep(1)
            server.start()
        process.kill()
        process.wait()
        written.train(range(1501 + 10 * number, 1511 + 10 * number))
    written.finish("ok", 1540)
    assert follow(written, server, monkeypatch) == 0
    has_all(written, server.run(written)[1], 1540)


def test_a_server_that_hangs_is_waited_for(written: Written, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    written.train(range(1, 301))
    process = start.start(written.run.path, "mlflow")
    until(lambda: start.state(written.run.path, "mlflow").place.number)
    server.send(signal.SIGSTOP)
    written.train(range(301, 321))
    written.finish("ok", 320)
    until(lambda: "timed out" in start.state(written.run.path, "mlflow").place.problem)
    server.send(signal.SIGCONT)
    assert process.wait(60) == 0
    has_all(written, server.run(written)[1], 320)


@pytest.mark.needs("mount")
def test_a_server_with_a_full_disk_is_waited_for(
    written: Written, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(small_disk.path)
    try:
        server.start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
        written.train(range(1, 301))
        process = start.start(written.run.path, "mlflow")
        until(lambda: start.state(written.run.path, "mlflow").place.number)
        with small_disk.full():
            written.train(range(301, 1301))
            written.finish("ok", 1300)
            problem = until(lambda: start.state(written.run.path, "mlflow").place.problem)
            assert "503" in problem or "full" in problem
        assert process.wait(120) == 0
        has_all(written, server.run(written)[1], 1300)
    finally:
        server.stop()


def test_without_a_server_the_database_is_in_the_home(
    written: Written, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    written.train(range(1, 11))
    written.finish("ok", 10)
    assert cli.run(["follow", written.run.id, "--to", "mlflow"]) == 0
    assert (home / "follow" / "mlflow.db").exists()
    assert "sqlite:///" in start.state(written.run.path, "mlflow").place.where
