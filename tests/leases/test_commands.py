"""`gputui gpus`, `gputui lease`, and starts with `device.visible=free:1`, as a user types them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.leases import memory_needs

from tests.support.fakegpu import FakeGpu
from tests.support.fakenvml import FakeNvml
from tests.support.front_door import COMMAND, until
from tests.support.idle import idle

pytest_plugins = ("tests.support.fakegpu.fixture", "tests.support.fakenvml.fixture")


def gputui(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, *words], env=os.environ | environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def answer(environment: dict[str, str], *words: str) -> tuple[int, str, str]:
    process = gputui(environment, *words)
    output, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    return process.returncode, output, errors


def test_a_program_runs_on_a_leased_gpu_and_others_see_who_has_it(nvml: FakeNvml, tmp_path: Path) -> None:
    box = nvml.environment(f"gpus=2 use={tmp_path / 'use'}")
    held = gputui(box, "lease", "1", "--", "bash", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 600")
    assert held.stdout is not None
    uuid = held.stdout.readline().strip()
    _, output, _ = answer(box, "gpus", "--json")
    gpus = [json.loads(line) for line in output.splitlines()]
    assert [gpu["free"] for gpu in gpus] == [gpu["uuid"] != uuid for gpu in gpus]
    assert {gpu["lease"]["what"] for gpu in gpus if gpu["lease"]} == {"bash"}
    _, output, _ = answer(box, "gpus")
    assert sum(f"used by {Path.home().owner()}'s bash since " in line for line in output.splitlines()) == 1
    code, _, errors = answer(box, "lease", "2", "true")
    assert code == 2
    assert "needs 2 GPUs, and 1 can be had: GPU " in errors
    held.send_signal(signal.SIGTERM)
    held.communicate(timeout=60)
    assert held.returncode == 128 + signal.SIGTERM
    code, output, _ = answer(box, "lease", "2", "--", "bash", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 7")
    assert code == 7
    assert uuid in output.strip().split(",")


def test_a_program_keeps_its_gpu_if_the_command_is_killed(nvml: FakeNvml, tmp_path: Path) -> None:
    box = nvml.environment(f"gpus=1 use={tmp_path / 'use'}")
    with gputui(box, "lease", "1", "--", "bash", "-c", "echo $$; exec sleep 600") as held:
        assert held.stdout is not None
        program = int(held.stdout.readline())
        until(lambda: json.loads(answer(box, "gpus", "--json")[1])["lease"]["pid"] == program)  # noted after its start
        held.kill()
    try:
        (gpu,) = [json.loads(line) for line in answer(box, "gpus", "--json")[1].splitlines()]
        assert not gpu["free"]
        assert (gpu["lease"]["what"], gpu["lease"]["pid"]) == ("bash", program)
    finally:
        os.kill(program, signal.SIGKILL)
    until(lambda: json.loads(answer(box, "gpus", "--json")[1])["free"])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("lease", "x", "true"), "'x' is no number of GPUs; write 1, 2@24GB or 1@A100"),
        (("lease", "9", "true"), "9 GPUs cannot be leased: this process may use 2 such; gputui gpus lists all"),
        (("lease", "1"), "name the program: gputui lease 1 -- python train.py"),
        (("lease", "1", "no-such-program"), "there is no program no-such-program"),
        (
            ("--preset", "quickstart", "--set", "visible=free:3"),
            "free:3 needs 3 GPUs; this process may use 2 such of 2",
        ),
        (("--preset", "quickstart", "--set", "visible=fits:1"), f"{memory_needs.NOT_MEASURED}\n"),
    ],
)
def test_what_cannot_be_had_is_refused_in_words(
    nvml: FakeNvml, tmp_path: Path, words: tuple[str, ...], error: str
) -> None:
    code, output, errors = answer(nvml.environment(f"gpus=2 use={tmp_path / 'use'}"), *words)
    assert (code, output) == (2, "")
    assert error in errors
    assert "--wait" not in errors, "nothing of this changes by itself"


def test_programs_that_draw_the_screen_leave_the_gpu_free(nvml: FakeNvml, tmp_path: Path, sleeper: int) -> None:
    def box(words: str, root: str = "/") -> dict[str, str]:
        use = f"use={tmp_path / 'use'} mem_total=8192"
        return nvml.environment(f"{use} {words}") | {"GPUTUI_IDLE_SECONDS": "0", "GPUTUI_ROOT": root}

    desktop = shutil.copy(shutil.which("sleep") or "sleep", tmp_path / "gnome-shell")
    both = subprocess.Popen([desktop, "600"])
    wsl = tmp_path / "wsl"
    (wsl / "dev").mkdir(parents=True)
    (wsl / "dev/dxg").touch()
    display = "free, with a display (limits: 2.0 GiB and 30 %)"
    try:
        for where, state in (
            (box(f"graphics={sleeper} mem_used=1300"), display),
            (box(f"graphics={both.pid} procs={both.pid} mem_used=1300"), display),
            (box(f"graphics={sleeper} procs={sleeper} mem_used=1300"), f"used by {Path.home().owner()}'s sleep since"),
            (box(f"graphics={sleeper} mem_used=2100"),
             "2.1 GiB of its memory are in use (limit with a display: 2.0 GiB), by processes that are not visible"),
            (box("mem_used=1300"),
             "1.3 GiB of its memory are in use, by processes that are not visible"),
            (box("mem_used=1300", str(wsl)), display),
        ):  # fmt: skip
            output = answer(where, "gpus")[1]
            assert state in output
            code, _, errors = answer(where, "lease", "1", "--", "true")
            assert code == (0 if state == display else 2), errors
    finally:
        both.kill()
        both.wait()


def test_a_gpu_under_mps_is_free_if_only_its_server_is_on_it(nvml: FakeNvml, tmp_path: Path, sleeper: int) -> None:
    server = subprocess.Popen([shutil.copy(shutil.which("sleep") or "", tmp_path / "nvidia-cuda-mps-server"), "600"])
    words = f"use={tmp_path / 'use'} compute_mode=3 procs={server.pid}"
    try:
        assert answer(nvml.environment(words) | {"GPUTUI_IDLE_SECONDS": "0"}, "lease", "1", "--", "true")[0] == 0
        assert "'s sleep since" in answer(nvml.environment(f"{words},{sleeper}"), "gpus")[1]
    finally:
        server.kill()
        server.wait()


def test_processes_are_right_also_if_the_driver_has_longer_entries(
    nvml: FakeNvml, tmp_path: Path, sleeper: int
) -> None:
    """As 535.43 to 535.86 answer the newest functions."""
    words = f"use={tmp_path / 'use'} procs={os.getpid()},{sleeper} driver=535.54.03 entry=32"
    processes = json.loads(answer(nvml.environment(words), "gpus", "--json")[1])["processes"]
    assert [(each["pid"], each["memory_used_bytes"]) for each in processes] == [
        (os.getpid(), 1024**3), (sleeper, 1024**3),
    ]  # fmt: skip


def test_without_a_gpu_the_cpu_is_named() -> None:
    code, _, errors = answer({}, "gpus")
    assert code == 2
    assert "gputui doctor says what to do; trainings run on the CPU" in errors
    code, _, errors = answer({}, "--preset", "quickstart", "--set", "visible=free:1")
    assert "free:1 needs a GPU" in errors
    assert "set it to all, and the CPU trains" in errors


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left_running")
def test_two_runs_train_on_two_gpus_and_a_third_waits(fakegpu: FakeGpu, tmp_path: Path) -> None:
    box = fakegpu.environment(tmp_path / "box", gpus=2)
    long = ("--preset", idle(tmp_path), "--set", "visible=free:1")
    for _ in range(2):
        code, _, errors = answer(box, *long, "--detach")
        assert code == 0, errors
    code, _, errors = answer(box, *long)
    assert code == 2
    assert errors.count("used by") == 2
    chosen = [json.loads(run.file("options.json").read_text())["device"]["visible"] for run in runs.all_runs()]
    assert sorted(chosen) == [["GPU-0000-0"], ["GPU-0000-1"]]
    waiting = gputui(box, "--preset", "quickstart", "--set", "visible=free:1", "--set", "train.epochs=1", "--wait")
    assert waiting.stderr is not None
    assert "waiting: needs a GPU; GPU 0: used by" in waiting.stderr.readline()
    first = runs.all_runs()[-1]
    answer(box, "stop", first.id)
    waiting.communicate(timeout=120)
    assert waiting.returncode == 0
    newest = runs.all_runs()[0]
    assert json.loads(newest.file("options.json").read_text())["device"]["visible"] == chosen[-1]
    answer(box, "stop", runs.all_runs()[1].id)
    until(lambda: not runs.all_runs()[1].is_active)
    _, output, _ = answer(box, "gpus", "--json")
    assert [json.loads(line)["free"] for line in output.splitlines()] == [True, True]
