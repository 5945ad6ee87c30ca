"""Programs that read the stand-in as the engine does, and what they tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.fakenvml import FakeNvml

READ = """
import json, os, time
from gputui.engine.telemetry.nvml.connection import Nvml
from gputui.engine.telemetry.nvml.reasons import NvmlUnavailable
try:
    nvml = Nvml(pcie=True, own_pid=os.getppid())
except NvmlUnavailable as reason:
    print(json.dumps(str(reason)))
else:
    told = {"identities": nvml.identities()}
    nvml.read()
    time.sleep(0.12)
    told["gpus"] = nvml.read(slow=False)
    nvml.close()
    print(json.dumps(told))
"""

WATCH = """
import json, time
from dataclasses import asdict
from pathlib import Path
from gputui.engine.telemetry import sampler
told = []
sampler.FIRST_RETRY_SECONDS, sampler.SLOW_FIGURES_SECONDS = 0.2, 1.1
thread = sampler.GpuReader(lambda event: told.append((time.time(), event)), {interval})
thread.start()
until = time.monotonic() + 60
while time.monotonic() < until:
    gpus = [event.gpus for _, event in told if event.type == "gpu"]
    warned = [event.kind for _, event in told if event.type == "warning"]
    if {enough}:
        break
    time.sleep(0.02)
thread.stop({patience})
print(json.dumps({{
    "alive": thread.is_alive(), "count": len(told),
    "told": [asdict(event) | {{"type": event.type, "t": t}} for t, event in told],
}}))
"""


def readings(nvml: FakeNvml, words: str, *, old: bool = False) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = nvml.run(READ, words, old=old)["gpus"]
    return found


def watched(
    nvml: FakeNvml, words: str, *, enough: str, interval: float = 0.1, patience: float = 60.0
) -> dict[str, Any]:
    """What a reader of the GPUs tells until it is `enough`: an expression of the readings of `gpus` so far, and of the
    kinds of what it has `warned` of.
    """
    program = WATCH.format(enough=enough, interval=interval, patience=patience)
    found: dict[str, Any] = nvml.run(program, words, timeout=120)
    return found


def of_type(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in found["told"] if event["type"] == kind]


def calls(log: Path) -> list[list[str]]:
    """Function, GPU and note of each call."""
    return [[*line.split()[1:], ""][:3] for line in log.read_text().splitlines()]


# `nvidia-smi`, as far as benchmarks/gpu_report asks it: it reads the stand-in as the real one reads the driver.
SMI = """#!{python}
import sys, time
import pynvml
words = dict(word.partition("=")[::2] for word in sys.argv[1:])
if sys.argv[1] == "topo":
    sys.exit(print("GPU0 X SYS"))
pynvml.nvmlInit()
asked = words["--query-gpu"].split(",")
TELLS = {{
    "name": pynvml.nvmlDeviceGetName,
    "utilization.gpu": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memory.used": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2).used // 2**20,
    "power.draw": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "clocks.sm": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "temperature.gpu": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
}}
if "noheader" not in words["--format"]:
    print(", ".join(asked))
while True:
    for index in range(pynvml.nvmlDeviceGetCount()):
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        cells = (index if name == "index" else TELLS.get(name, lambda gpu: "[N/A]")(gpu) for name in asked)
        print(", ".join(map(str, cells)), flush=True)
    if "--loop-ms" not in words:
        break
    time.sleep(int(words["--loop-ms"]) / 1000)
"""
