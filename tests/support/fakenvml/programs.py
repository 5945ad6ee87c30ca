"""Programs that read the stand-in as the engine does, and what they tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.fakenvml import FakeNvml

READ = """
import json, os, time
from gputui.engine.telemetry.nvml import Nvml, NvmlUnavailable
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
from gputui.engine.telemetry import reader
told = []
reader.FIRST_RETRY_SECONDS, reader.SLOW_FIGURES_SECONDS = 0.2, 1.1
thread = reader.GpuReader(lambda event: told.append((time.time(), event)), {interval})
began = time.monotonic()
thread.start()
started = time.monotonic() - began
time.sleep({seconds})
began = time.monotonic()
thread.stop(1.0)
print(json.dumps({{
    "started": started, "stopped": time.monotonic() - began, "alive": thread.is_alive(), "count": len(told),
    "told": [asdict(event) | {{"type": event.type, "t": t}} for t, event in told],
}}))
"""


def readings(nvml: FakeNvml, words: str, *, old: bool = False) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = nvml.run(READ, words, old=old)["gpus"]
    return found


def watched(nvml: FakeNvml, words: str, *, seconds: float, interval: float = 0.1) -> dict[str, Any]:
    found: dict[str, Any] = nvml.run(WATCH.format(seconds=seconds, interval=interval), words)
    return found


def of_type(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in found["told"] if event["type"] == kind]


def calls(log: Path) -> list[list[str]]:
    """Function, GPU and note of each call."""
    return [[*line.split()[1:], ""][:3] for line in log.read_text().splitlines()]
