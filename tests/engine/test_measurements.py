"""All figures that the diagnosis collects from the events of recorded trainings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import EVENT_FILES, Collector, Run, diagnose, options_of, recalled
from tests.support import recorded
from tests.support.recorded import BEGAN, GIB, STAGES

GPUS = [f"GPU-{index:08d}-aaaa-bbbb-cccc-000000000000" for index in range(2)]
SLOW_CARD = {
    "busy": 0.99, "sm_clock_mhz": 1200, "throttle": ["hardware thermal"], "clocks_set_by": ["application clocks"],
    "max_sm_clock_mhz": 1980, "power_limit_default_w": 800.0,
    "processes": [{"pid": 7, "name": "blender", "own": False, "memory_used_bytes": 3 * GIB}],
}  # fmt: skip
HOSTS = [{"index": index, "address": f"h{index}:1", "host": f"h{index}"} for index in (0, 1)]
WORKERS = [HOSTS[0] | {"input_wait": 0.05}, HOSTS[1] | {"input_wait": 0.45}]
MORE = {"cpus": 16, "sample_bytes": 1024}
STORIES: dict[str, tuple[float, dict[str, Any]]] = {
    "two of four GPUs train": (41.0, {"gpus": 4, "readings_a_second": 2.0}),
    "one of two GPUs is slow": (60.0, {"gpus": 2}),
    "two workers train": (60.0, {"gpus": 2}),
}


def told(run: Run, slow: bool, workers: bool) -> Iterator[dict[str, Any]]:
    """The events with what only a real training has: its GPUs, a share of Python, pauses, and other programs."""
    lines = [line for name in EVENT_FILES for line in run.file(name).read_text().splitlines()]
    for event in sorted(map(json.loads, lines), key=lambda event: float(event["t"])):
        match event["type"]:
            case "started" if "GPU" in event["devices"][0]:
                of_gpu = {"memory_limit_bytes": 76 * GIB, "compute_capability": (9, 0)}
                devices = [of_gpu | {"uuid": uuid, "device": f"/device:GPU:{i}"} for i, uuid in enumerate(GPUS)]
                yield (
                    event
                    | MORE
                    | ({"workers": HOSTS} if workers else {})
                    | {"gpus": GPUS, "gpu_devices": devices, "compute_capability": (8, 0)}
                )
            case "started":
                yield event | MORE | {"cpu_bfloat16": True}
                yield {"t": event["t"], "type": "input_stages"} | STAGES
            case "progress":
                yield event | {"python_share": 0.1, "transfer": 0.02, "traces": 2}
                if workers:
                    yield {"t": event["t"] + 0.01, "type": "workers", "workers": WORKERS}
                    yield {"t": event["t"] + 0.02, "type": "exchange", "ms": 20.0, "bytes": 50_000_000, "step": 9}
                if event["step"] % 100 == 0:
                    yield {"t": event["t"] + 0.1, "type": "phase", "phase": "saving", "detail": "checkpoint"}
                    yield {"t": event["t"] + 0.25, "type": "phase", "phase": "training"}
            case "host":
                yield event | {"io_wait": 0.05, "others_cpu": 0.1, "trainer_read_bytes_per_second": 1e6}
            case "gpu" if slow and event["gpus"]:
                yield event | {"gpus": [event["gpus"][0], event["gpus"][1] | SLOW_CARD]}
            case _:
                yield event


@pytest.mark.parametrize("name", STORIES)
def test_the_figures_of_a_recorded_training(name: str, home: Path, snapshot: Any) -> None:
    after, settings = STORIES[name]
    run = recorded.write(home, name="run", **({"seconds": 72} | settings))
    collector = Collector(options_of(run), None)
    collector.feed(
        recalled(event) for event in told(run, "slow" in name, "workers" in name) if event["t"] <= BEGAN + after
    )
    known = collector.measurements()
    figures = [f"{key}: {_rounded(value)}" for key, value in asdict(known).items() if key not in ("options", "stages")]
    assert "\n".join([*figures, "", diagnose(known).sentence]) == snapshot


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
