"""The commands gpus and lease, and starts on free GPUs, as a user types them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.doors.engine import runs
from tests.support.fakegpu import FakeGpu
from tests.support.fakenvml import FakeNvml
from tests.support.front_door import COMMAND, until
from tests.support.idle import idle
from tests.support.standing_in import stand_in as stand_in


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


def test_a_gpu_under_mps_is_free_if_only_its_server_is_on_it(nvml: FakeNvml, tmp_path: Path, sleeper: int) -> None:
    server = subprocess.Popen([shutil.copy(shutil.which("sleep") or "", tmp_path / "nvidia-cuda-mps-server"), "600"])
    words = f"use={tmp_path / 'use'} compute_mode=3 procs={server.pid}"
    try:
        assert answer(nvml.environment(words) | {"GPUTUI_IDLE_SECONDS": "0"}, "lease", "1", "--", "true")[0] == 0
        assert "'s sleep since" in answer(nvml.environment(f"{words},{sleeper}"), "gpus")[1]
    finally:
        server.kill()
        server.wait()


@pytest.mark.usefixtures("nothing_left_running", "stand_in")
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
    waiting = gputui(box, *long, "--wait")
    assert waiting.stderr is not None
    assert "waiting: needs a GPU; GPU 0: used by" in waiting.stderr.readline()
    first = runs.all_runs()[-1]
    answer(box, "stop", first.id)
    newest = until(lambda: len(runs.all_runs()) > 2 and runs.all_runs()[0])
    until(lambda: newest.status.get("phase") == "training")
    assert json.loads(newest.file("options.json").read_text())["device"]["visible"] == chosen[-1]
    for run in runs.all_runs()[:2]:
        answer(box, "stop", run.id)
        until(lambda: not run.is_active)  # noqa: B023
    waiting.communicate(timeout=120)
    assert waiting.returncode == 130
    _, output, _ = answer(box, "gpus", "--json")
    assert [json.loads(line)["free"] for line in output.splitlines()] == [True, True]


# ---- idle processes ------------------------------------------------------------------------------


HOUR = 3600.0


def test_the_command_names_an_idle_process_and_how_it_was_decided(
    nvml: FakeNvml, tmp_path: Path, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "leases"
    box = nvml.environment(f"procs={sleeper} mem_used=9000") | {"GPUTUI_LEASES": str(folder)}
    _, output, _ = answer(box, "gpus", "--json")
    (process,) = json.loads(output)["processes"]
    assert process["idle_seconds"] == 0
    path = folder / f"idle.{os.geteuid()}.json"
    content = json.loads(path.read_text())
    (note,) = content["notes"].values()
    for name in ("idle_since", "noted_at"):
        note[name] -= 3 * HOUR + 60
    path.write_text(json.dumps(content))
    _, output, _ = answer(box, "gpus")
    rows = output.splitlines()
    assert "'s sleep since " in rows[1]
    assert ", idle for 3 h (" in rows[1]
    assert rows[-1].startswith("idle: at no look of gputui since then")
    _, output, _ = answer(box | {"FAKE_NVML": f"procs={sleeper} mem_used=9000 worked={sleeper}"}, "gpus")
    assert "idle" not in output
