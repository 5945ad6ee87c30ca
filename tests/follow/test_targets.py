"""What followers write: TensorBoard's files, the text of Prometheus; and the command that starts them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from gputui.engine.follow import targets, tfevents
from gputui.engine.follow.targets import TargetKind
from gputui.engine.follow.to_prometheus import VARIABLE, Prometheus
from gputui.engine.follow_targets import FOLLOW_TARGETS
from gputui.tui import cli

from tests.support.followed import Written, follow
from tests.support.small_disk import SmallDisk
from tests.support.small_disk import small_disk as small_disk


@pytest.fixture
def written(home: Path) -> Written:
    return Written(home / "runs" / "20260101-000000-small")


def test_checksums_are_those_of_the_standard() -> None:
    """The examples of RFC 3720, and an odd number of bytes from its catalogue."""
    assert [tfevents.crc32c(bytes(32)), tfevents.crc32c(b"\xff" * 32)] == [0x8A9136AA, 0x62A8AB43]
    assert tfevents.crc32c(b"123456789") == 0xE3069283
    assert zlib.crc32(b"123456789") != 0xE3069283


def test_prometheus_reads_the_newest_figures_with_labels(
    written: Written, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written.train([1, 50])
    written.finish("ok", 50)
    written.events({"type": "progress", "epoch": 2, "step": 60, "loss": None, "metrics": {'odd "\\name"\n': 1.0}})
    assert follow(written.run, Prometheus({}), "prometheus") == "done"
    text = written.run.file("follow/gputui.prom").read_text()
    run = f'run="{written.run.id}"'
    for line in (
        f"gputui_step{{{run}}} 60",
        f'gputui_gpu_busy{{{run},gpu="0"}} 0.5',
        f"gputui_loss{{{run}}} 0.02",
        f'gputui_metric{{{run},metric="accuracy"}} 0.98',
        f'gputui_metric{{{run},metric="odd \\"\\\\name\\"\\n"}} 1.0',
        f'gputui_result{{{run},figure="step_ms.p50"}} 2.5',
        f'gputui_ended{{{run},outcome="ok"}} 1',
        "# TYPE gputui_metric gauge",
    ):
        assert f"{line}\n" in text
    assert text.count("# TYPE gputui_metric ") == 1
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert follow(written.run, target := Prometheus({}), "other") == "done"
    assert Path(target.where).parent == tmp_path
    assert Path(target.where).stat().st_mode & 0o777 == 0o644


def test_the_targets_are_the_words_of_the_option() -> None:
    assert tuple(targets.TARGETS) == FOLLOW_TARGETS


def test_what_cannot_be_followed_is_refused_before_it_starts(
    written: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(targets.TARGETS, "prometheus", TargetKind(Prometheus, "no_such_module", "such>=1"))
    for arguments, words in (
        (["--to", "prometheus"], "no_such_module is not installed; pip install 'such>=1' adds it"),
        (["--to", "nothing"], "'nothing' is not one of"),
        (["--detach"], "--detach needs --to TARGET"),
        ([], "has no followers; --to tensorboard starts one"),
    ):
        assert cli.run(["follow", written.run.id, *arguments]) == 2
        assert words in (told := capsys.readouterr().err)
        assert "Traceback" not in told
    assert not written.run.file("follow").exists()
    assert cli.run(["follow", "nothing"]) == 2


def test_a_full_disk_is_named_before_a_follower_starts(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUTUI_HOME", str(small_disk.path))
    written = Written(small_disk.path / "runs" / "20260101-000000-small")
    written.train([1])
    with small_disk.full():
        assert cli.run(["follow", written.run.id, "--to", "tensorboard", "--detach"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"disk full at {written.run.path} (")
    assert told.endswith("; a follower notes there how far it is\n")
    assert not written.run.file("follow").exists()


def test_the_command_writes_all_and_lists_the_followers(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    written.train(range(1, 20))
    written.finish("stopped", 19)
    for _ in range(2):  # the second time there is nothing to write
        assert cli.run(["follow", written.run.id, "--to", "tensorboard", "--to", "prometheus"]) == 0
        told = capsys.readouterr().out.splitlines()
        assert sorted(line.partition(": ")[2].partition(" to ")[0] for line in told) == ["done, 20 rows written"] * 2
    assert cli.run(["follow"]) == 0
    assert sorted(told) == capsys.readouterr().out.splitlines()
    path = written.run.file("follow/tensorboard.json")
    place = json.loads(path.read_text())
    for state, problem, words in (
        ("given_up", "refused", "gave up: refused"), ("waiting", "refused", "has ended before the run"),
    ):  # fmt: skip
        path.write_text(json.dumps(place | {"state": state, "problem": problem}))
        assert cli.run(["follow"]) == 0
        assert f"tensorboard: {words}, 20 rows" in capsys.readouterr().out
    path.write_text("{")
    assert cli.run(["follow", written.run.id, "--to", "tensorboard"]) == 1
    assert "is damaged: remove it" in capsys.readouterr().out
