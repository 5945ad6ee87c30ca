"""Real sweeps in pairs, a grid and one with halving: how much time halving saves, and what its pauses cost.

    python -m benchmarks.halving [--pairs 3] [--steps 300] [--settings 9] [--epochs 9]

Both train the preset quickstart on the CPU, with the same learning rates and seed, one trial after the other; every
second pair begins with the sweep with halving. The time of a sweep is that of its record. The time of a start is what
its trials have taken outside of their epochs: start of the process, import of TensorFlow, tracing, the pause with its
checkpoint, the queue. From it follows how long an epoch has to be for halving to save time. The exit code is 1 if an
epoch of a halved trial has other figures than in the grid, or was trained twice.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import EVENTS_FILE, EpochEnd, Started

RATES = (1e-5, 1e-2)  # the lowest and the highest


@dataclass(frozen=True)
class Measured:
    """A sweep: its time in seconds, that within epochs, the number of starts, the epochs of each trial with their
    figures, and the best setting.
    """

    seconds: float
    in_epochs: float
    starts: int
    epochs: dict[str, list[tuple[int, dict[str, float | None]]]]
    winner: dict[str, Any]

    @property
    def trained(self) -> int:
        return sum(map(len, self.epochs.values()))

    @property
    def start_seconds(self) -> float:
        return (self.seconds - self.in_epochs) / self.starts


def measure(home: Path, given: argparse.Namespace, halves: bool) -> Measured:
    """Carry out a sweep in a new home folder."""
    home.mkdir()
    over = f"learning_rate={RATES[0]:g}..{RATES[1]:g}:{given.settings}"
    words = ["sweep", "--preset", "quickstart", "--set", f"train.epochs={given.epochs}", "--set", "train.seed=1",
             "--set", f"train.steps_per_epoch={given.steps}", "--over", over, "--proof-seeds", "0", "--minutes", "600",
             "--json", *(["--halving", "1"] if halves else [])]  # fmt: skip
    own = {"GPUTUI_HOME": str(home), "GPUTUI_LEASES": str(home / "leases"), "CUDA_VISIBLE_DEVICES": "-1"}
    environment = os.environ | own
    command = [str(Path(sys.executable).with_name("gputui")), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=home)
    if done.returncode:
        sys.exit(done.stderr)
    record = json.loads(done.stdout)
    epochs, in_epochs, starts = {}, 0.0, 0
    for trial in record["sweep"]["trials"]:
        events = read_events(home / "runs" / trial["run"], [EVENTS_FILE])
        ends = events.of(EpochEnd)
        epochs[json.dumps(trial["changes"])] = [(end.epoch, dict(end.metrics)) for end in ends]
        in_epochs += sum(end.seconds or 0.0 for end in ends)
        starts += len(events.of(Started))
    return Measured(record["seconds"], in_epochs, starts, epochs, record["sweep"]["winner"])


def faults(halved: Measured, grid: Measured) -> int:
    """Return how many trials with halving have other figures than those of the grid, or an epoch twice."""
    return sum(epochs != grid.epochs[key][: len(epochs)] for key, epochs in halved.epochs.items())


def main() -> int:
    """Print a row for each pair, and the means; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--settings", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=9)
    given = parser.parse_args()
    head = ("pair", "grid s", "halving s", "of the grid's time", "epochs", "starts", "s of an epoch", "s of a start",
            "pays from s of an epoch", "same best")  # fmt: skip
    print(f"| {' | '.join(head)} |\n|{' ---: |' * len(head)}")
    shares, wrong = [], 0
    for pair in range(given.pairs):
        with tempfile.TemporaryDirectory() as folder:
            order = (False, True) if pair % 2 == 0 else (True, False)
            by_halving = {halves: measure(Path(folder) / str(halves), given, halves) for halves in order}
        grid, halved = by_halving[False], by_halving[True]
        shares.append(halved.seconds / grid.seconds)
        wrong += faults(halved, grid)
        start = fmean((grid.start_seconds, halved.start_seconds))
        pays = start * (halved.starts - grid.starts) / (grid.trained - halved.trained)
        cells = (f"{pair + 1}", f"{grid.seconds:.0f}", f"{halved.seconds:.0f}", f"{100 * shares[-1]:.0f} %",
                 f"{halved.trained} of {grid.trained}", f"{halved.starts}, {grid.starts}",
                 f"{grid.in_epochs / grid.trained:.2f}", f"{start:.1f}", f"{pays:.2f}",
                 "yes" if halved.winner == grid.winner else "no")  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nhalving takes {100 * fmean(shares):.0f} % of the grid's time; trials that differ: {wrong}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
