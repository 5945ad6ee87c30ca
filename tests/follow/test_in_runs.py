"""Followers that the engine starts (run.follow), in real runs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.doors.engine import Run, runs, to_tensorboard
from tests.doors.engine import follow_start as start
from tests.support.front_door import detached, ended, gputui, happened, until
from tests.support.idle import idle


def follower_of(run: Run, target: str) -> int | None:
    """The process id of the run's follower for a target."""
    words = [b"gputui.engine.follow", os.fsencode(run.path), target.encode()]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            given = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if given[3:6] == words:
            return int(path.parent.name)
    return None


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_a_follower_that_is_killed_goes_on_and_a_target_that_fails_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the text file for Prometheus does not exist. Both followers outlive the training."""
    monkeypatch.setenv("GPUTUI_PROMETHEUS_FOLDER", str(tmp_path / "nowhere"))
    run = detached("--preset", idle(tmp_path), "--set", "follow=tensorboard,prometheus")
    pid = until(lambda: start.state(run.path, "tensorboard").place.number > 3 and follower_of(run, "tensorboard"))
    os.kill(pid, signal.SIGKILL)
    again = until(lambda: (other := follower_of(run, "tensorboard")) != pid and other)
    until(lambda: os.getpriority(os.PRIO_PROCESS, again) == 19)
    waits = until(lambda: start.state(run.path, "prometheus").place.problem)
    assert "No such file or directory" in waits
    until(lambda: any("prometheus waits" in warning["message"] for warning in happened(run, "warning")))
    assert gputui("stop", run.id).returncode == 0
    assert ended(run)["outcome"] == "stopped"
    until(lambda: start.state(run.path, "tensorboard").place.state == "done")
    told = [warning["message"] for warning in happened(run, "warning") if warning["kind"] == "follow"]
    assert [message.partition(":")[0] for message in told] == [
        "the follower for tensorboard has ended, and is started again", "prometheus waits",
    ]  # fmt: skip
    assert not any(warning["kind"] == "left_behind" for warning in happened(run, "warning"))
    (file,) = run.file(to_tensorboard.FOLDER).iterdir()
    whole = to_tensorboard.write_all(run, tmp_path / "whole")
    assert whole is not None
    assert file.stat().st_size == whole.stat().st_size
    (tmp_path / "nowhere").mkdir()
    until(lambda: start.state(run.path, "prometheus").words == "done")
    (text,) = (tmp_path / "nowhere").iterdir()
    assert 'outcome="stopped"} 1' in text.read_text()


@pytest.mark.usefixtures("forked_trainers")
def test_the_command_ends_after_the_followers_and_a_missing_library_is_refused() -> None:
    tiny = ("--preset", "quickstart", "--set", "model=mlp", "--set", "width=0.05", "--set", "epochs=1")
    done = gputui(*tiny, "--set", "follow=tensorboard", "--set", "steps_per_epoch=5")
    assert done.returncode == 0, done.stderr
    run = runs.find("latest")
    assert start.state(run.path, "tensorboard").place.state == "done"
    refused = gputui(*tiny, "--set", "follow=mlflow")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 2)
    assert "run.follow: mlflow is not installed\npip install 'mlflow>=3,<4' adds it" in refused.stderr
    assert runs.all_runs() == [run]
