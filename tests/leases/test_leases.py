"""Leases of GPUs and the choice of free ones, through the real pynvml against a stand-in for the driver."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from gputui.engine.leases import free_gpus, lease, start_devices
from gputui.engine.leases.free_gpus import GpuUse, Wish
from gputui.engine.leases.lease import NotFree
from gputui.engine.options import Options, gpu_choice

from tests.support.fakenvml import FakeNvml

pytest_plugins = ("tests.support.fakenvml.fixture",)

ANOTHER_USER = 65534
# Starts again and again, and says so if two hold a GPU at once: a file of each GPU is made as only one can make it.
STARTS = """
import os, random, sys, time
from gputui.engine.job import this_machine
from gputui.engine.leases import free_gpus
from gputui.engine.leases.free_gpus import Wish
from gputui.engine.leases.lease import NotFree
from gputui.engine.options import gpu_choice
from gputui.engine.system.identity import Place
folder, starts, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[4])
wish = Wish.of(gpu_choice.parse(sys.argv[3]), this_machine.read())
free_gpus.read(), Place.here()  # loads what another user may not be able to read
os.setuid(user)
for _ in range(starts):
    try:
        gpus, leases = free_gpus.choose(wish, "a training")
    except NotFree:
        print("not free", flush=True)
        continue
    for gpu in gpus:
        try:
            os.close(os.open(f"{folder}/{gpu.uuid}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            print("twice", flush=True)
    time.sleep(random.random() / 50)
    for gpu in gpus:
        os.unlink(f"{folder}/{gpu.uuid}")
    for each in leases:
        each.release()
    print("trained", flush=True)
"""
# Leases a GPU, says which, and holds it until it is killed.
HOLDS = """
import json, os, sys, time
from gputui.engine.job import this_machine
from gputui.engine.leases import free_gpus
from gputui.engine.leases.free_gpus import Wish
from gputui.engine.options import gpu_choice
gpus, leases = free_gpus.choose(Wish.of(gpu_choice.parse(sys.argv[1]), this_machine.read()), "digits")
print(json.dumps([gpu.index for gpu in gpus]), flush=True)
time.sleep(600)
"""
LOOKS = """
import json
from gputui.engine.leases import free_gpus
print(json.dumps([gpu.why_not_free() for gpu in free_gpus.read()]))
"""


def start(nvml: FakeNvml, program: str, *words: str, gpus: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program, *words], env=os.environ | nvml.environment(gpus), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def holding(nvml: FakeNvml, choice: str, gpus: str) -> tuple[subprocess.Popen[str], list[int]]:
    process = start(nvml, HOLDS, choice, gpus=gpus)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def looks(nvml: FakeNvml, gpus: str) -> list[str]:
    output, _ = start(nvml, LOOKS, gpus=gpus).communicate(timeout=60)
    return list(json.loads(output))


@pytest.mark.parametrize("choice", ["free:1", "free:2"])
def test_starts_at_once_of_two_users_never_get_the_same_gpu(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    with tempfile.TemporaryDirectory() as name:  # in a folder that another user can read
        folder = Path(name)
        folder.chmod(0o777)
        monkeypatch.setenv("GPUTUI_LEASES", str(folder / "leases"))
        gpus = f"gpus=4 use={folder / 'use'}"
        users = [0, ANOTHER_USER] if os.geteuid() == 0 else [os.geteuid()]
        processes = [start(nvml, STARTS, name, "12", choice, str(users[number % len(users)]), gpus=gpus)
                     for number in range(8)]  # fmt: skip
        outputs = [process.communicate(timeout=120)[0].splitlines() for process in processes]
        assert {line for lines in outputs for line in lines} <= {"trained", "not free"}, outputs
        assert all("trained" in lines for lines in outputs)
        assert lease.holders() == {}


@pytest.mark.needs("cc")
def test_killed_starts_and_foreign_processes_leave_one_run_on_each_gpu() -> None:
    """Some rounds of those that benchmarks/sharing.py does by the hundreds."""
    program = Path(__file__).parents[2] / "benchmarks/sharing.py"
    command = [sys.executable, "-P", str(program), "--rounds", "6", "--strangers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 foreign processes" in done.stdout
    assert {"killed", "trained", "not free"} <= set(re.findall(r"[0-9]+ ([a-z ]+)", done.stdout)), done.stdout


def test_a_lease_ends_with_its_process_and_names_it_before(nvml: FakeNvml, tmp_path: Path) -> None:
    gpus = f"gpus=2 use={tmp_path / 'use'}"
    process, (first,) = holding(nvml, "free:1", gpus)
    by = f"used by {Path.home().owner()}'s digits since "
    assert [why.startswith(by) for why in looks(nvml, gpus)] == [index == first for index in range(2)]
    other, (second,) = holding(nvml, "free:1", gpus)
    assert {first, second} == {0, 1}
    refused, _ = start(nvml, HOLDS, "free:1", gpus=gpus).communicate(timeout=60)
    assert "needs a GPU; GPU 0: used by" in refused
    end(process)
    assert [bool(why) for why in looks(nvml, gpus)] == [index == second for index in range(2)]
    end(other)
    assert lease.holders() == {}


def test_a_gpu_that_another_program_uses_is_not_free(nvml: FakeNvml, tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        (tmp_path / f"use.{stranger.pid}").write_text("1 600 0\n")
        gpus = f"gpus=2 use={tmp_path / 'use'}"
        free, used = looks(nvml, gpus)
        assert not free
        assert used.startswith(f"used by {Path.home().owner()}'s sleep since ")
        process, (index,) = holding(nvml, "free:1", gpus)
        end(process)
        assert index == 0
    finally:
        stranger.kill()
        stranger.wait()


def test_memory_decides_if_processes_are_not_visible(nvml: FakeNvml, tmp_path: Path) -> None:
    gpus = f"gpus=2 use={tmp_path / 'use'} mem_used=4096@1 fail=DeviceGetComputeRunningProcesses_v3:3"
    gpus += " fail=DeviceGetComputeRunningProcesses_v2:3"
    assert looks(nvml, gpus)[0] == ""
    assert looks(nvml, gpus)[1].endswith("of its memory are in use, by processes that are not visible")


def test_a_file_of_another_user_or_of_an_ended_process_tells_nothing(tmp_path: Path) -> None:
    taken = lease.take(["GPU-1"], "digits")
    folder = lease.folder()
    forged = folder / f"GPU-1.{os.geteuid() + 1}.json"
    forged.write_text(json.dumps({"what": "not theirs", "since": time.time() + 9.0}))
    who = lease.holder("GPU-1")
    assert who is not None
    assert (who.what, who.pid) == ("digits", os.getpid())
    with pytest.raises(NotFree, match=r"GPU-1 is used by .*'s digits"):
        lease.take(["GPU-0", "GPU-1"], "all or none")
    assert lease.holder("GPU-0") is None
    taken[0].release()
    assert lease.holders() == {}


def test_only_a_queued_run_waits_for_devices_that_it_names_itself() -> None:
    (held,) = lease.take([lease.CPU], "digits " * 99)
    options = Options(device=replace(Options().device, visible="none"))
    assert list(start_devices.lease_devices(options, "mine").leases) == []
    with pytest.raises(NotFree, match=r"^the CPU is used by .{1,40}'s digits digits .{1,80}$"):
        start_devices.lease_devices(options, "mine", among=[lease.CPU])
    held.release()
    devices = start_devices.lease_devices(options, "mine", among=[lease.CPU])
    assert [each.name for each in devices.leases] == [lease.CPU]
    devices.release()
    assert lease.holders() == {}


def test_a_folder_that_not_all_users_share_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (tmp_path / "link").symlink_to(target)
    monkeypatch.setenv("GPUTUI_LEASES", str(tmp_path / "link"))
    with pytest.raises(NotFree, match="GPUs cannot be leased: is no folder"), lease.choosing():
        pass


def use(index: int, used: int) -> GpuUse:
    return GpuUse(index, f"GPU-{index}", "NVIDIA A100", used << 30, 24 << 30, 0.0, ())


def wish(text: str, needs_gb: int = 0) -> Wish:
    choice = gpu_choice.parse(text)
    assert choice is not None
    return Wish(choice, needs_gb << 30, ("GPU-0", "GPU-1", "GPU-2"))


def test_a_run_that_fits_takes_the_gpu_with_the_least_memory_that_is_enough() -> None:
    gpus = [use(0, 0), use(1, 10), use(2, 20)]
    assert [gpu.index for gpu in wish("fits:1", 8).fitting(gpus)] == [1, 0]
    assert wish("fits:2", 16).missing(gpus) == (
        "needs 2 GPUs with 16.0 GiB free, and 1 can be had: GPU 1: 14.0 GiB are free of the 16.0 GiB needed; "
        "GPU 2: 4.0 GiB are free of the 16.0 GiB needed"
    )


def test_a_choice_reads_as_it_is_written() -> None:
    for text in ("free:2", "fits:1@24GB", "free:1@A100", "fits:3@40GB@RTX A6000"):
        assert str(gpu_choice.parse(text)) == text
    assert gpu_choice.parse("all") is gpu_choice.parse([0]) is None
    assert not wish("free:1@24GB").choice.allows("NVIDIA T4", 15 << 30)
    assert wish("free:1@24GB").choice.allows("NVIDIA A10", 23 << 30)
    assert not wish("free:1@T4").choice.allows("NVIDIA A10", 23 << 30)


@pytest.mark.parametrize("is_queued", [False, True])
def test_a_process_that_appears_between_the_look_and_the_start_keeps_its_gpu(
    is_queued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look, the choice and the lease are one step; a queued run was looked at by the runner before."""
    free = use(0, 0)
    taken = replace(free, users=(free_gpus.GpuUser(1, "bob", "python"),))
    looks = iter([[taken]] if is_queued else [[free], [taken]])
    monkeypatch.setenv(free_gpus.IDLE_VARIABLE, "0")
    monkeypatch.setattr(free_gpus, "read", lambda: next(looks))
    with pytest.raises(NotFree, match="bob's python"):
        free_gpus.choose(Wish(wish("free:1").choice, 0, (free.uuid,)), "digits", idle_known=is_queued)
    assert lease.holder(free.uuid) is None
    assert not list(looks)


WATCHES = """
import json, sys, threading
from gputui.engine.leases import free_gpus
from gputui.engine.leases.lease import NotFree
free_gpus.PATIENCE_SECONDS = 0.5 if sys.argv[1:] else 10.0
watch, seen = free_gpus.GpuWatch(), []
for _ in range(4):
    try:
        seen.append([gpu.why_not_free() for gpu in watch.read()])
    except NotFree as fault:
        seen.append(str(fault))
print(json.dumps([seen, threading.active_count()]))
watch.close()
"""


def test_the_queue_opens_the_driver_once_for_many_looks(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "log"
    seen, threads = nvml.run(WATCHES, f"gpus=2 procs={os.getpid()} log={log}")
    assert [[bool(why) for why in looked] for looked in seen] == [[True, True]] * 4
    calls = [line.split()[1] for line in log.read_text().splitlines()]
    assert (calls.count("InitWithFlags"), calls.count("Shutdown")) == (1, 1), calls
    assert threads == 2


def test_a_driver_that_hangs_keeps_one_thread_of_the_queue(nvml: FakeNvml) -> None:
    seen, threads = nvml.run(WATCHES, "gpus=2 hang=DeviceGetMemoryInfo_v2@1", "hangs")
    assert seen == [
        "the GPUs cannot be read: no answer within 0.5 s",
        *["the GPUs cannot be read: an earlier call has not been answered"] * 3,
    ]
    assert threads == 2


def test_only_a_gpu_that_is_free_at_every_look_counts_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that pauses at the last look keeps its GPU."""
    busy, free, other = replace(use(0, 0), busy=0.9), use(0, 0), use(1, 0)
    looks = iter([[busy, other], *[[free, other]] * 99])
    monkeypatch.setenv(free_gpus.IDLE_VARIABLE, "0.05")
    monkeypatch.setattr(free_gpus, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(free_gpus, "read", lambda: next(looks))
    gpus, leases = free_gpus.choose(wish("free:1"), "digits")
    for each in leases:
        each.release()
    assert [gpu.index for gpu in gpus] == [1]
