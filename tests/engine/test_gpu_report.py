"""The report of a first hour on a GPU: what becomes of a step that fails, and what a recording of the GPU tells."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from gputui.engine.interpreter import compatibility
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Gpu

from benchmarks.gpu_report import __main__ as report
from benchmarks.gpu_report import steps, text, timeline
from benchmarks.gpu_report.commands import QUICK, Done, Failed, Lab, Skipped, Training, call, given
from benchmarks.gpu_report.text import ROOT
from tests.support.front_door import until
from tests.support.recorded_search import ENDED

LAB = Lab(Path("/nowhere"), QUICK, quick=True)


def stepping(monkeypatch: pytest.MonkeyPatch, *ends: BaseException | str) -> list[str]:
    """Steps of the report that end so: with an exception, or with their text; their names."""

    def step(end: BaseException | str) -> Callable[[Lab], str]:
        def do(lab: Lab) -> str:
            if isinstance(end, BaseException):
                raise end
            return end

        return do

    made = {f"s{place}": report.Step(f"Step {place}", step(end), 1, 4) for place, end in enumerate(ends)}
    monkeypatch.setattr(report, "STEPS", made)
    return list(made)


def test_without_a_gpu_one_line_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_report", "--output", str(tmp_path / "report.md")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "is missing" not in done.stdout:
        pytest.skip("this machine has a driver")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert done.stdout.startswith("no GPU to report on: no NVIDIA driver")
    assert not (tmp_path / "report.md").exists()


def test_a_step_that_fails_is_a_row_with_its_reason_and_the_others_follow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = stepping(monkeypatch, Failed("oom: no memory"), Skipped("nsys is not installed"), KeyError("busy"),
                     "| all | well |")  # fmt: skip
    path = tmp_path / "report.md"
    assert report.measure(LAB, names, path) == 1
    written = path.read_text()
    for line in (
        "| Step 0 | failed: oom: no memory | 0 |",
        "| Step 1 | not measured here: nsys is not installed | 0 |",
        "| Step 2 | failed: KeyError: 'busy' | 0 |",
        "| all | well |",
        "- Step 1: nsys is not installed",
    ):
        assert line in written
    assert report.measure(LAB, names[1:2] + names[3:], path) == 0, "what cannot be measured here has not failed"
    out = capsys.readouterr().out
    assert out.startswith(
        "4 steps, about 72 s\n1/4 Step 0 (about 18 s)\n    failed: oom: no memory (0 s); about 54 s left"
    )


def test_an_interrupted_report_has_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = stepping(monkeypatch, "| first | here |", KeyboardInterrupt(), "| never | here |")
    assert report.measure(LAB, names, tmp_path / "report.md") == 130
    written = (tmp_path / "report.md").read_text()
    assert "| first | here |" in written
    assert "**Interrupted in: Step 1**" in written
    assert "never" not in written


def test_the_estimate_follows_what_was_measured_and_what_takes_longer_than_the_time_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = stepping(monkeypatch, "", "", "")
    assert report.estimate(LAB, names) == 3 * (report.START_SECONDS + LAB.size.seconds)
    slow = [report.Row("Step 0", "ok", 300.0, "", 1.0)]
    assert report.estimate(LAB, names[1:], slow) == pytest.approx(2 * (3 * 18 + 300) / 4)
    little = replace(LAB, deadline=time.monotonic() + 60)
    assert report.done(little, "s0", 80.0).result.startswith("not measured here: it takes about 80 s, and the report's")
    assert report.done(little, "s0", 10.0).result == "ok"
    with pytest.raises(Skipped, match="the time of the report ended in it"):
        replace(LAB, deadline=time.monotonic() + 0.5).call(["/bin/sleep", "60"], 100.0)


def test_the_report_names_no_user_no_machine_and_none_of_their_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "jane.doe")
    monkeypatch.setenv("HOME", "/home/jane.doe")
    monkeypatch.setenv("PWD", "/data/My secret project")
    monkeypatch.setattr("socket.gethostname", lambda: "doe-box.lab.example")
    planted = (
        "/data/My secret project/train.py: no file", "read ~/thesis/run.py", "at '/mnt/thesis/secret/a b.py'",
        "ssh Jane.Doe@doe-box", "doe-box.lab.example: GPU-12345678-1234-1234-1234-123456789abc", "user jane.doe.",
        "jane@lab.example", f"{ROOT}/engine/x.py", "/home/jane.doe", "file:///home/other/secret/x",
    )  # fmt: skip
    shown = text.anonymous("\n".join(planted))
    for word in ("jane", "doe", "thesis", "secret", "/mnt", "lab", "12345678", ROOT.name + "/", "other"):
        assert word not in shown.lower(), shown
    kept = (
        "| 12.5 samples/s | /device:GPU:0 | /job:localhost/replica:0/task:0 |",
        "see /dev/shm and /usr/lib/libcuda.so, with / without",
        "9.10.2.21, https://docs.nvidia.com/cuda/x, driver 580.10, NVIDIA H100 80GB HBM3",
    )
    for line in kept:
        assert text.anonymous(line) == line


def test_a_figure_that_no_training_has_is_named_with_the_reason() -> None:
    lab = replace(LAB, missing={})
    finished = {"type": "finished", "summary": {"outcome": "ok", "samples_per_second": 99.5, "step_ms": {"p50": 2.0}}}
    shown = steps.results(lab, [("single", Training((finished,), Path(), 1.0))])
    assert shown.splitlines()[::2] == ["| training | samples/s | step ms p50 |", "| single | 99.5 | 2.00 |"]
    assert "the peak of these GPUs" in lab.missing["MFU %"]
    assert lab.missing["samples/s"] == ""
    steps.results(lab, [("with MFU", Training((finished | {"summary": {"mfu": 0.4}},), Path(), 1.0))])
    assert "- MFU %" not in report.report(lab, [])
    assert "- SM %: the driver has no performance metrics" in report.report(lab, [])


def test_a_copy_that_takes_no_longer_than_reading_is_a_known_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)  # no nsys
    for share, line in ((0.0, "copied in 0.000 ms"), (0.25, "copied in 0.500 ms"), (None, "no time of a copy")):
        summary = {"outcome": "ok", "step_ms": {"p50": 2.0}, "transfer": share}
        run = Training(({"type": "finished", "summary": summary},), Path(), 1.0)
        monkeypatch.setattr(Lab, "train", Mock(return_value=run))
        assert line in steps.copies(replace(LAB, missing={})), share


@pytest.mark.parametrize(
    ("capability", "aborts", "quick", "whole"),
    [
        ((7, 5), False, ["float32", "float16", "float16 + XLA"], ["float32", "float16", "float16 + XLA"]),
        ((6, 1), False, ["float32"], ["float32"]),
        ((12, 0), True, ["float32", "TF32", "bfloat16"],
         ["float32", "TF32", "bfloat16", "float16", "bfloat16 + 8 steps together"]),
        ((9, 0), False, ["float32", "TF32", "bfloat16 + XLA"], list(steps.PRECISIONS)),
    ],
)  # fmt: skip
def test_the_precisions_are_those_of_the_chip_and_a_refused_one_is_a_row(
    capability: tuple[int, int], aborts: bool, quick: list[str], whole: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu(0, "GPU-0", "a GPU", capability, 2**33)
    monkeypatch.setattr(this_machine, "visible_gpus", lambda: (gpu,))
    monkeypatch.setattr(compatibility, "xla_aborts", lambda _: aborts)
    monkeypatch.setattr(Lab, "call", lambda lab, *words, **more: Done(2, "", "gputui: it is refused", 1.0))
    for is_quick, names in ((True, quick), (False, whole)):
        shown = steps.precisions(replace(LAB, quick=is_quick, missing={}))
        rows = [f"| {name}, 1: no result: gputui: it is refused |" for name in names]
        assert [line[: line.index(" |", 2) + 2] for line in shown.splitlines()[2:]][: len(rows)] == rows


def test_a_search_is_shown_with_the_pairs_that_prove_its_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lab, "answer", lambda lab, *words, **limits: ENDED)
    shown = steps.proof(LAB)
    assert (
        "| precision | input.batch_size=256, precision.policy=mixed_bfloat16 | b 1490.0 | 0.240 | kept +24.0 %" in shown
    )
    (pairs,) = (line for line in shown.splitlines() if line.startswith("| pairs"))
    assert "a 411.0, b 1466.0, b 1502.0, a 414.0, a 412.0, b 1471.0 | 2.570 | kept" in pairs
    assert "In all: 3.57 times as fast; ended because every option has been tried." in shown


def test_readings_are_compared_with_those_of_nvidia_smi_at_the_same_moment() -> None:
    gpu = {"index": 1, "memory_used_bytes": 300 * 2**20, "power_w": None}
    run = Training(tuple({"type": "gpu", "t": t, "gpus": [gpu]} for t in (10.0, 20.0)), Path(), 1.0)
    theirs = [(9.9, ["0", "1", "1"]), (10.1, ["1", "296", "[N/A]"]), (15.0, ["1", "999", "7"])]
    assert steps.pairs(1, "memory.used", run, theirs) == ["memory.used", 1, "300.0", "296.0", "4.0", "4.0"]
    assert steps.pairs(2, "power.draw", run, theirs) == ["power.draw", 0, "-", "-", "-", "-"]


def test_a_setting_is_a_word_of_the_command() -> None:
    assert given({"a": True, "b": 3}) == ["--set", "a=true", "--set", "b=3"]


def test_a_command_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    with pytest.raises(Failed, match="not done within 3 s"):
        call(["/bin/sh", "-c", f"sleep 600 & echo $! > {told}; wait"], 3.0)

    def has_ended() -> bool:
        try:
            return psutil.Process(int(told.read_text())).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    until(has_ended)


def test_gaps_and_copies_are_read_from_a_recording(tmp_path: Path) -> None:
    ms = 10**6
    path = tmp_path / "nsys.sqlite"
    with sqlite3.connect(path) as recording:
        recording.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (deviceId INT, start INT, end INT)")
        recording.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (deviceId INT, start INT, end INT, bytes INT, "
                          "copyKind INT)")  # fmt: skip
        kernels = [(0, 10 * i, 10 * i + 8) for i in range(10)] + [(0, 52, 57)] + [(1, 0, 5), (1, 7, 10)]
        recording.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)",
                              [(device, a * ms, b * ms) for device, a, b in kernels])  # fmt: skip
        copies = [(0, 5 * ms, 6 * ms, 99, 1), (0, 66 * ms, 72 * ms, 600, 1), (0, 80 * ms, 81 * ms, 50, 2)]
        recording.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?)", copies)
    first, second = timeline.read(path)
    # Of eleven kernels the last six count: from 50 ms to 98 ms, two ms between each.
    assert (first.device, first.longest_gap_ms, first.copied_bytes) == (0, 2.0, 600)
    assert first.seconds == pytest.approx(0.048)
    assert first.idle == pytest.approx(4 * 2 / 48)
    assert first.copying == pytest.approx(6 / 48)
    assert first.hidden == pytest.approx(4 / 6)
    assert (second.device, second.idle, second.copied_bytes, second.hidden) == (1, 0.0, 0, None)
    with pytest.raises(sqlite3.Error):
        timeline.read(tmp_path / "none.sqlite")
