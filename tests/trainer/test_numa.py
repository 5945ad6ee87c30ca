"""The trainer beside its GPUs: pinned before TensorFlow starts, and only where that is right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.fakenvml import FakeNvml

pytest_plugins = ("tests.support.fakenvml.fixture",)
PROGRAM = """
import json, os, threading
from gputui.engine.telemetry import resource_limits
from gputui.engine.trainer.setup import environment
from tests.support.training import options

def pinned(settings):
    waiting = threading.Event()
    other = threading.Thread(target=waiting.wait)
    other.start()
    said = environment.pin_to_numa_node(options(*settings))
    told = [sorted(os.sched_getaffinity(thread)) for thread in (0, other.native_id)]
    waiting.set()
    return [said, *told, resource_limits.usable_cpus()]

def in_a_process_of_its_own(settings):
    here, there = os.pipe()
    if os.fork() == 0:
        os.write(there, json.dumps(pinned(settings)).encode())
        os._exit(0)
    os.close(there)
    with open(here) as answer:
        return json.loads(answer.read())

print(json.dumps([in_a_process_of_its_own(settings) for settings in SETTINGS]))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_auto_pins_all_threads_where_the_gpus_that_train_are_on_one_node(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = mine = sorted(os.sched_getaffinity(0))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("GPUTUI_ROOT", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    apart = f"gpus=2 cpus={1 << first:#x}@0 cpus={1 << second:#x}@1"

    def pinned(words: str, *settings: tuple[str, ...]) -> list[list[object]]:
        found: list[list[object]] = nvml.run(PROGRAM.replace("SETTINGS", repr(settings)), words)
        return found

    assert pinned(apart, ())[0][:2] == ["the machine has one NUMA node", mine]
    for node in ("node0", "node1"):
        (tmp_path / "sys/devices/system/node" / node).mkdir(parents=True)
    mirrored = "strategy.kind=mirrored"
    auto, off, both, chosen = pinned(apart, (), ("numa=off",), (mirrored,), (mirrored, "strategy.devices=[1]"))
    assert auto == [f"on CPUs {first}, the NUMA node of GPU 0", [first], [first], 1]
    assert off[:3] == ["device.numa is off", mine, mine]
    assert both[:3] == ["the GPUs that train are on different NUMA nodes", mine, mine]
    assert chosen[:2] == [f"on CPUs {second}, the NUMA node of GPU 1", [second]]
    for words, said in (
        ("gpus=2", "the driver does not report which CPUs are close to the GPUs"),
        (f"cpus={1 << 60:#x}", "no usable CPU is on the NUMA node of GPU 0"),
        (f"cpus={sum(1 << cpu for cpu in mine):#x}", "all usable CPUs are on the NUMA node of GPU 0"),
    ):
        assert pinned(words, ())[0][:3] == [said, mine, mine], words
