"""How long reading a run's events takes, beside bare `json.loads` of the same lines.

    python benchmarks/reading.py [--events 100000]

The two are timed in turn in this one process, and the quickest of each is told: other load only ever adds time.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gputui.engine.runs import events
from gputui.engine.runs.event_reading import Tail
from gputui.engine.runs.parsing import EventWriter

REPEATS = 7


def write(path: Path, count: int) -> list[str]:
    """Write a file with `count` progress events, and return its lines."""
    writer = EventWriter(path, "benchmark")
    for step in range(count):
        writer.emit(events.Progress(
            epoch=1, epochs=2, step=step, steps=count, samples_per_second=1234.5 + step, step_ms_p50=1.5,
            step_ms_p95=2.5, input_wait=0.1, loss=0.5, metrics={"accuracy": 0.5}, eta_seconds=9.0,
        ))  # fmt: skip
    writer.close()
    return path.read_text().splitlines()


def seconds(read: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    kept = read()  # so that forgetting it is not timed
    taken = time.process_time() - began
    del kept
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    count = parser.parse_args().events
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        lines = write(path, count)
        pairs = [
            (seconds(lambda: [json.loads(line) for line in lines]), seconds(lambda: Tail(path).read()))
            for _ in range(REPEATS)
        ]
    bare, ours = (min(column) for column in zip(*pairs, strict=True))
    print(f"{count:,} events: json.loads {bare:.3f} s, typed and checked {ours:.3f} s, {ours / bare:.2f} times as long")


if __name__ == "__main__":
    main()
