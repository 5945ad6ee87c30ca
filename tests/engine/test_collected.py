"""All figures that the diagnosis collects from the events of recorded trainings: `__snapshots__` holds them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.diagnosis import diagnose
from gputui.engine.diagnosis.collector import Collector
from gputui.engine.runs import Run
from gputui.engine.runs.events import EVENT_FILES
from gputui.engine.runs.launched_with import options_of
from gputui.engine.runs.parsing import recalled

from tests.support import recorded
from tests.support.recorded import BEGAN, GIB
from tests.support.recorded_proof import STAGES

GPUS = [f"GPU-{index:08d}-aaaa-bbbb-cccc-000000000000" for index in range(2)]
MORE = {"cpus": 16, "sample_bytes": 1024}
STORIES: dict[str, tuple[float, dict[str, Any]]] = {
    "two of four GPUs train": (41.0, {"gpus": 4, "readings_a_second": 2.0}),
    "two GPUs have trained": (90.0, {"gpus": 2, "mfu": 0.41}),
    "the CPU trains": (60.0, {"gpus": 0, "settings": ("input.cache=off", "input.shuffle=off")}),
    "one has failed": (90.0, {"gpus": 2, "outcome": "oom", "seconds": 25, "lost_gpu": 1}),
}


def told(run: Run) -> Iterator[dict[str, Any]]:
    """The events with what only a real training has: its GPUs, a share of Python, pauses, and other programs."""
    lines = [line for name in EVENT_FILES for line in run.file(name).read_text().splitlines()]
    for event in sorted(map(json.loads, lines), key=lambda event: float(event["t"])):
        match event["type"]:
            case "started" if "GPU" in event["devices"][0]:
                of_gpu = {"memory_limit_bytes": 76 * GIB, "compute_capability": (9, 0)}
                devices = [of_gpu | {"uuid": uuid, "device": f"/device:GPU:{i}"} for i, uuid in enumerate(GPUS)]
                yield event | MORE | {"gpus": GPUS, "gpu_devices": devices, "compute_capability": (8, 0)}
            case "started":
                yield event | MORE | {"cpu_bfloat16": True}
                yield {"t": event["t"], "type": "input_stages"} | STAGES
            case "progress":
                yield event | {"python_share": 0.1, "transfer": 0.02, "traces": 2}
                if event["step"] % 100 == 0:
                    yield {"t": event["t"] + 0.1, "type": "phase", "phase": "saving", "detail": "checkpoint"}
                    yield {"t": event["t"] + 0.25, "type": "phase", "phase": "training"}
            case "host":
                yield event | {"io_wait": 0.05, "others_cpu": 0.1, "trainer_read_bytes_per_second": 1e6}
            case _:
                yield event


@pytest.mark.parametrize("name", STORIES)
def test_the_figures_of_a_recorded_training(name: str, home: Path, snapshot: Any) -> None:
    after, settings = STORIES[name]
    run = recorded.write(home, name="run", **({"seconds": 72} | settings))
    collector = Collector(options_of(run), None)
    collector.feed(recalled(event) for event in told(run) if event["t"] <= BEGAN + after)
    known = collector.measurements()
    figures = [f"{key}: {_rounded(value)}" for key, value in asdict(known).items() if key not in ("options", "stages")]
    assert "\n".join([*figures, "", diagnose(known).sentence]) == snapshot


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
