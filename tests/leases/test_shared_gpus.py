"""Leases of a GPU that several queued runs share, through the real pynvml against a stand-in for the driver."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from gputui.engine.files.places import runs_folder
from gputui.engine.leases import free_gpus, lease
from gputui.engine.leases.free_gpus import GpuUse, GpuUser
from gputui.engine.leases.lease import NotFree

from tests.support.fakenvml import FakeNvml

pytest_plugins = ("tests.support.fakenvml.fixture",)

NOBODY = 65534
# Leases a place on a GPU as a queued run does, hands it over to a run of the home in HOME_OF, and holds it.
SHARES = """
import json, os, sys, time
from pathlib import Path
from gputui.engine.files.places import runs_folder
from gputui.engine.job import this_machine
from gputui.engine.leases import free_gpus, start_devices
from gputui.engine.leases.lease import NotFree
from gputui.engine.options import Options
from dataclasses import replace
per_gpu, user, home = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
options = replace(
    Options(), device=replace(Options().device, visible="free:1"), run=replace(Options().run, per_gpu=per_gpu)
)
free_gpus.read(), start_devices.wish_of(options, this_machine.read())  # loads what another user may not be able to read
os.setuid(user)
os.environ["GPUTUI_HOME"] = home
try:
    devices = start_devices.lease_devices(options, "digits", among=["GPU-0000-0"])
except NotFree as fault:
    print(json.dumps(str(fault)), flush=True)
    sys.exit()
for each in devices.leases:
    each.write("digits", str(runs_folder() / "20261127-010101-digits"))
print(json.dumps(devices.options.device.memory_limit_mb), flush=True)
time.sleep(600)
"""


class Box:
    """One GPU with 8 GiB, and the processes that lease places on it."""

    def __init__(self, nvml: FakeNvml, folder: Path) -> None:
        self.environment = os.environ | nvml.environment(f"gpus=1 mem_total=8192 use={folder / 'use'}")
        self.processes: list[subprocess.Popen[str]] = []

    def share(self, per_gpu: int = 2, user: int | None = None, home: str = "") -> object:
        """The memory limit of a run that gets a place, or why it gets none."""
        words = [str(per_gpu), str(os.geteuid() if user is None else user), home or os.environ["GPUTUI_HOME"]]
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", SHARES, *words], env=self.environment, text=True, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    def end(self, *processes: subprocess.Popen[str]) -> None:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def test_only_runs_of_one_home_with_one_number_share_a_gpu_and_a_kill_frees_one_place(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as name:  # which another user can read
        folder = Path(name)
        folder.chmod(0o777)
        monkeypatch.setenv("GPUTUI_LEASES", str(folder / "leases"))
        box = Box(nvml, folder)
        try:
            assert box.share() == int(0.95 * 8192 / 2 - 768), "the part of each"
            (who,) = lease.holders().values()
            assert who.places == "1 of 2 runs"
            with pytest.raises(NotFree, match=r"is used by 1 of 2 runs: .*'s digits since \d\d:\d\d$"):
                lease.take(["GPU-0000-0"], "a run for itself")
            assert "used by 1 of 2 runs: " in str(box.share(per_gpu=3))
            assert "used by 1 of 2 runs: " in str(box.share(home=name))
            if os.geteuid() == 0:
                assert "used by 1 of 2 runs: " in str(box.share(user=NOBODY))
            assert isinstance(box.share(), int)
            assert re.search(r"used by 2 of 2 runs: .* and 1 more$", str(box.share()))
            box.end(box.processes[0])
            (who,) = lease.holders().values()
            assert who.places == "1 of 2 runs"
            assert isinstance(box.share(), int), "its place is free again"
            box.end(*box.processes)
            assert lease.holders() == {}
            (whole,) = lease.take(["GPU-0000-0"], "a run for itself")
            assert "'s a run for itself" in str(box.share())
            whole.release()
        finally:
            box.end(*box.processes)


def use(*users: GpuUser) -> GpuUse:
    ours = lease.Holder("GPU-1", lease.user_name(os.geteuid()), os.getpid(), run=str(runs_folder() / "a"), per_gpu=2)
    return GpuUse(1, "GPU-1", "A100", 9 << 30, 24 << 30, 0.9, users, replace(ours, sharers=(ours,)))


def test_a_gpu_on_which_another_program_computes_is_not_shared(sleeper: int) -> None:
    own, child = GpuUser(os.getpid()), GpuUser(sleeper, "bob", "python")
    assert use(own, child).why_not_sharing(2) == "", "a process of the run may have started others"
    assert use(own, GpuUser(1, "bob", "python")).why_not_sharing(2) == "used by bob's python"
    assert use(own).why_not_sharing(1).startswith("used by 1 of 2 runs")
    assert use(own).why_not_fitting(1).startswith("used by 1 of 2 runs"), "nor is it shared with fits:1"


LOOKS = """
import json
from gputui.engine.queue.free_devices import DeviceReader
print(json.dumps([[gpu.per_gpu, gpu.places, [user.pid for user in gpu.users]] for gpu in DeviceReader()()[:1]]))
"""


def test_the_queue_sees_how_many_runs_share_a_gpu_and_who_else_is_on_it(nvml: FakeNvml, sleeper: int) -> None:
    (place,) = lease.take(["GPU-0000-0"], "digits", per_gpu=3)
    place.write("digits", str(runs_folder() / "a"))
    assert nvml.run(LOOKS, f"gpus=1 procs={sleeper}") == [[3, "1 of 3 runs", []]]
    place.write("digits", str(runs_folder() / "a"), sleeper)
    assert nvml.run(LOOKS, f"gpus=1 procs={os.getpid()}") == [[1, "1 of 3 runs", [os.getpid()]]]
    place.release()


def test_a_place_is_given_back_at_once_and_the_whole_gpu_only_when_its_memory_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (first,) = lease.take(["GPU-1"], "digits", {"GPU-1": 0}, per_gpu=2)
    first.write("digits", str(runs_folder() / "a"))
    (second,) = lease.take(["GPU-1"], "digits", {"GPU-1": 4 << 30}, per_gpu=2)
    assert second.used_bytes == 0, "that of the GPU before all of them"
    monkeypatch.setattr(free_gpus, "read", lambda: [GpuUse(1, "GPU-1", "A100", 4 << 30, 24 << 30)])
    monkeypatch.setattr(free_gpus, "GIVE_BACK_SECONDS", 0.0)
    assert free_gpus.give_back([first]) == []
    assert [line.partition(":")[0] for line in free_gpus.give_back([second])] == ["GPU 1 is stuck"]
    assert "4.0 GiB" in lease.holders()["GPU-1"].stuck
    (third,) = lease.take(["GPU-1"], "digits", {"GPU-1": 0}, per_gpu=2)
    third.release()
    (whole,) = lease.take(["GPU-1"], "digits")
    with pytest.raises(NotFree, match="digits"):
        lease.take(["GPU-1"], "digits", per_gpu=2)
    whole.release()
    assert lease.holders() == {}
