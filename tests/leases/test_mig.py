"""MIG instances are chosen and leased as GPUs of their own, through the real pynvml against a stand-in for NVML."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import checks, presets
from gputui.engine.job import allocation
from gputui.engine.job.machine_gpus import Gpu, Instance, Machine
from gputui.engine.job.training_gpus import candidates
from gputui.engine.leases import free_gpus, lease, start_devices
from gputui.engine.leases.free_gpus import name_of
from gputui.engine.leases.idle_notes import IdleNotes
from gputui.engine.options import gpu_choice
from gputui.engine.queue import entries, free_devices
from gputui.engine.queue.free_devices import CPU, Device
from gputui.tui.reading.gpu_leases import with_leases
from gputui.tui.reading.run.gpu_reading import Gpu as ReadGpu
from gputui.tui.reading.run.gpu_reading import GpuProcess
from gputui.tui.reading.run.gpu_reading import Instance as ReadInstance

from tests.leases.test_commands import answer
from tests.leases.test_leases import start
from tests.support.fakenvml import FakeNvml
from tests.support.queued import Trainings, add, no_runner, waiting

pytest_plugins = ("tests.support.fakenvml.fixture",)

GIB = 1024**3
BOX = "gpus=2 mig=2@0 mem_used=20"
# Chooses as often as it is asked to, and says what it has got or why it has got nothing.
CHOOSES = """
import json, os, sys
from gputui.engine import presets
from gputui.engine.leases import start_devices
from gputui.engine.leases.lease import NotFree
got = []
for visible in sys.argv[1:]:
    options = presets.resolve("quickstart", [f"device.visible={visible}"]).options
    try:
        devices = start_devices.lease_devices(options, "digits")
    except NotFree as fault:
        got.append(str(fault))
    else:
        got.append([devices.options.device.visible, sorted(each.name for each in devices.leases)])
print(json.dumps(got))
"""


def chosen(nvml: FakeNvml, words: str, *visible: str) -> list[Any]:
    output, _ = start(nvml, CHOOSES, *visible, gpus=words).communicate(timeout=60)
    return list(json.loads(output.splitlines()[-1]))


def machine(visible: str | None = None) -> Machine:
    """A machine with a GPU of two instances, and a whole GPU."""
    cut = Gpu(0, "GPU-a", "A100", (8, 0), 40 * GIB, mig=True,
              instances=(Instance("MIG-a", 10 * GIB), Instance("MIG-b", 20 * GIB)))  # fmt: skip
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return Machine(
        (cut, Gpu(1, "GPU-b", "A100", (8, 0), 40 * GIB)), "", 8, 64 * GIB,
        visible_devices=visible, allocation=allocation.read(environment, 2),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "visible", "names"),
    [
        ("free:1", None, ["MIG-a", "MIG-b", "GPU-b"]),
        ("free:1@16GB", None, ["MIG-b", "GPU-b"]),
        ("fits:1", None, ["MIG-a", "MIG-b", "GPU-b"]),
        ("free:2", None, ["GPU-b"]),
        ("free:1", "0", ["MIG-a", "MIG-b"]),
        ("free:1", "1", ["GPU-b"]),
        ("free:1", "MIG-b", ["MIG-b"]),
        ("free:1", "MIG-b,MIG-a", ["MIG-b", "MIG-a"]),
        ("free:1", "", []),
    ],
)
def test_the_choice_is_among_the_instances_that_the_process_may_use(
    choice: str, visible: str | None, names: list[str]
) -> None:
    made = gpu_choice.parse(choice)
    assert made is not None
    assert [name_of(gpu) for gpu in candidates(made, machine(visible))] == names


def test_several_gpus_are_refused_if_there_are_only_instances_with_the_reason() -> None:
    options = presets.resolve("quickstart", ["device.visible=free:2"]).options
    (found,) = [each for each in checks.check(options, machine("0")) if each.level == "error"]
    assert "free:2 needs 2 GPUs; this process may use 0 such of 2; CUDA shows one MIG instance" in found.message


def test_each_start_gets_an_instance_of_its_own_then_a_whole_gpu(nvml: FakeNvml) -> None:
    *taken, last = chosen(nvml, f"{BOX} use=/nowhere", "free:1", "free:1", "free:1", "free:1")
    assert taken == [[[name], [name]] for name in ("MIG-0000-100", "MIG-0000-101", "GPU-0000-1")]
    assert last.startswith("needs a GPU; GPU 0:0: used by ")
    assert "; GPU 0:1: used by " in last


def test_an_instance_that_the_options_name_is_leased_and_not_its_whole_gpu(nvml: FakeNvml) -> None:
    named, other, first = chosen(nvml, BOX, "[MIG-0000-101]", "free:1", "[0]")
    assert named == [["MIG-0000-101"], ["MIG-0000-101"]]
    assert other == [["MIG-0000-100"], ["MIG-0000-100"]]
    assert first == [[0], []], "CUDA shows the first instance, which is leased already"


def test_the_commands_show_each_instance_with_its_processes(nvml: FakeNvml, tmp_path: Path, sleeper: int) -> None:
    leases = {"GPUTUI_LEASES": str(tmp_path / "leases")}
    box = nvml.environment(f"{BOX} procs={sleeper}@101") | leases
    _, output, _ = answer(box, "gpus", "--json")
    rows = [json.loads(line) for line in output.splitlines()]
    assert [(row["index"], row["instance"], row["uuid"], row["free"]) for row in rows] == [
        (0, 0, "MIG-0000-100", True), (0, 1, "MIG-0000-101", False), (1, None, "GPU-0000-1", False)
    ]  # fmt: skip
    assert rows[0]["busy"] is None
    assert rows[1]["processes"][0]["pid"] == sleeper
    _, output, _ = answer(box, "gpus")
    lines = output.splitlines()
    assert lines[1].split()[0] == "0:0"
    assert lines[1].endswith("free")
    assert "'s sleep since " in lines[2]
    code, output, errors = answer(box, "lease", "1", "--", "bash", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert (code, output) == (0, "MIG-0000-100\n")
    assert "on GPU 0:0" in errors
    hidden = nvml.environment(
        f"{BOX} fail=DeviceGetComputeRunningProcesses_v3:4@0 fail=DeviceGetComputeRunningProcesses_v2:4@0"
    )
    _, output, _ = answer(hidden | leases, "gpus")
    assert output.splitlines()[1].endswith("free, by its memory: its processes are not visible from here")
    _, output, _ = answer(nvml.environment("mig=0") | leases, "gpus")
    assert output.splitlines()[1].endswith("in MIG mode without an instance")


@pytest.mark.parametrize(
    ("where", "names"), [("@101", ["MIG-0000-101"]), ("@0", ["MIG-0000-100", "MIG-0000-101"]), ("@1", ["GPU-0000-1"])]
)
def test_the_instance_that_a_process_uses_is_known_else_all_of_its_gpu(
    nvml: FakeNvml, sleeper: int, where: str, names: list[str]
) -> None:
    program = f"from gputui.engine.job import this_machine; print(sorted(this_machine.gpus_of({sleeper})))"
    output, _ = start(nvml, program, gpus=f"{BOX} procs={sleeper}{where}").communicate(timeout=60)
    assert output.strip() == str(names)


def test_the_queue_starts_runs_on_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    parts = [Device(f"MIG-{name}", 0, instance=place) for place, name in enumerate("ab")]
    trainings = Trainings([*parts, Device("GPU-b", 1), Device(CPU)])
    many, whole, one, first, every = (
        waiting(visible=visible) for visible in ("free:2", [1], "free:1", [0], "all")
    )  # fmt: skip
    add(many, whole, one, first, every)
    trainings.runner().tick()
    assert trainings.begun == [(whole.id, ("GPU-b",)), (one.id, ("MIG-a",))]
    why = entries.news()["why"]
    assert why[many.id] == "needs 2 GPUs, which this machine does not have"
    assert why[first.id] == "needs GPU 0; GPU 0:0 is kept for a run before it"
    assert why[every.id].startswith("needs its GPU; GPU 0:0 is kept")
    seen = free_devices.from_news(entries.news()["devices"])
    assert [str(device) for device in seen] == ["GPU 0:0", "GPU 0:1", "GPU 1", "the CPU"]
    monkeypatch.setattr(free_gpus.GpuWatch, "read", lambda _: [free_gpus.GpuUse(0, "MIG-a", "A100", instance=0)])
    assert free_devices.DeviceReader()()[0].instance == 0


def test_the_screen_shows_the_lease_of_each_instance() -> None:
    user = GpuProcess(12, "python", user="bob")
    parts = (ReadInstance(uuid="MIG-a", processes=()), ReadInstance(uuid="MIG-b", processes=(user,)))
    held = lease.take(["MIG-a"], "digits")
    (gpu,) = with_leases([ReadGpu(0, uuid="GPU-a", mig=parts, processes=())], IdleNotes())
    for each in held:
        each.release()
    assert gpu.lease.startswith("0:0 ")
    assert gpu.lease.partition("'s ")[2].startswith("digits since ")
    assert gpu.lease.endswith("; 0:1 used by bob's python")
    (empty,) = with_leases([replace(gpu, mig=())], IdleNotes())
    assert empty.lease == "free"


def test_the_wait_for_a_named_instance_names_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    options = presets.resolve("quickstart", ["device.visible=[MIG-b]"]).options
    user = free_gpus.GpuUser(12, "bob", "python")
    uses = [free_gpus.GpuUse(0, f"MIG-{name}", "A100", users=(user,), instance=at) for at, name in enumerate("ab")]
    monkeypatch.setattr(free_gpus, "read", lambda: uses)
    assert start_devices.in_use(options, machine()) == "GPU 0:1: used by bob's python"
