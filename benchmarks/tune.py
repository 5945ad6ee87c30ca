"""Measures whether `gputui tune` finds the settings that an exhaustive grid finds, and in which part of the grid's
time.

The grid measures every combination of a reduced space once, each as long as the search measures a candidate. The search
gets the same space through its limits. It also compares losses and proves its gain in pairs of trials, which a grid
does not, so its share of the grid's time is given without and with these. The best settings of both are then compared
in pairs of trials in turn, because the fastest of many single trials is partly luck, and because the machine's speed
drifts. The trials are kept in a folder, from which a later call continues.

    python benchmarks/tune.py [--folder DIR] [--pairs 3] [WORKLOAD ...]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputui.engine import presets
from gputui.engine.job import this_machine
from gputui.engine.trials import SCREENING_SECONDS, proof_sentences, significance
from gputui.engine.trials.comparing import Comparing
from gputui.engine.trials.record import Comparison
from gputui.engine.trials.trial_preset import with_changes
from gputui.engine.trials.trial_runner import Stop, TrialRunner

PAIR_SECONDS = 3.0
MINUTES = 10
SEED = 7
READY = {"input.parallel_calls": "auto", "input.prefetch": "auto", "input.prefetch_to_device": "auto"}
STEPS = [{"compile.steps_per_execution": count} for count in (1, 4, 16, 64)]
XLA = [{"compile.xla": on} for on in (False, True)]
PRECISION = [{"precision.policy": name} for name in ("float32", "mixed_bfloat16")]
INPUT: list[dict[str, Any]] = [{}, READY, READY | {"input.cache": "memory"}]
# Dimensions of the grids whose trials take longer, or whose other dimensions have many values. They keep what one would
# settle for by hand, the last value above all.
ONE_OR_MANY = [STEPS[0], *STEPS[2:]]  # 4 steps gain less than 16 where steps are short
ONE_OR_FEW = STEPS[:2]  # of steps of 30 ms and more, more than 4 gain nothing


@dataclass(frozen=True)
class Workload:
    """A preset with settings, and the space that the grid and the search try.

    `batches` are the batch sizes. Each of the other `dimensions` is a list of alternative settings, of which the first
    are those of the preset. `only` are the words of `gputui tune --only` for the same space.
    """

    preset: str
    settings: tuple[str, ...]
    batches: tuple[int, ...]
    dimensions: tuple[list[dict[str, Any]], ...]
    only: tuple[str, ...]

    @property
    def grid(self) -> Iterator[dict[str, Any]]:
        batches = [{"input.batch_size": size} for size in self.batches]
        for settings in itertools.product(batches, *self.dimensions):
            yield {key: value for part in settings for key, value in part.items()}


# The samples of the mlp and the own program make a pass of 64 steps and more of the largest batch: a training does not
# execute more of them together than a pass has, though an endless trial would.
WORKLOADS = {
    "input-heavy cnn": Workload(
        "input-heavy",
        ("workload.model=cnn", "workload.width=0.25", "workload.shape=[48,48,3]", "compile.xla=false"),
        (16, 32, 64, 128, 256), (STEPS, PRECISION, INPUT), ("batch_size", "precision", "steps_per_execution", "input"),
    ),
    "mlp, tiny batch": Workload(
        "quickstart",
        ("workload.model=mlp", "workload.data=synthetic", "workload.shape=[8,8,1]", "workload.samples=16384",
         "batch_size=8", "compile.xla=false"),
        (8, 16, 32, 64, 128), (ONE_OR_MANY, PRECISION, XLA), ("batch_size", "precision", "xla", "steps_per_execution"),
    ),
    "narrow resnet50, synthetic": Workload(
        "quickstart",
        ("workload.model=resnet50", "workload.width=0.1", "workload.data=synthetic", "batch_size=8",
         "compile.xla=false", "train.epochs=1", "input.cache=off", "input.parallel_calls=off", "input.prefetch=off"),
        (8, 16, 32, 64, 128), (ONE_OR_FEW, PRECISION, INPUT),
        ("batch_size", "precision", "steps_per_execution", "input"),
    ),
    "own program (examples/arrays.py), 20,000 samples": Workload(
        "examples/arrays.yaml", ("workload.args={units: 16, samples: 20000}", "compile.xla=false"),
        (25, 50, 100, 200), (STEPS, PRECISION, XLA), ("batch_size", "precision", "xla", "steps_per_execution"),
    ),
}  # fmt: skip


class Measured:
    """The trials of one workload: of its grid, of the search, and the pairs of both results. They are kept in files,
    from which a later call continues.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.workload = name, WORKLOADS[name]
        self.folder = folder / "".join(letter if letter.isalnum() else "-" for letter in name)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / "grid.jsonl"
        self.preset = presets.resolve(self.workload.preset, [*self.workload.settings, f"train.seed={SEED}"])
        self.bench = TrialRunner(
            self.folder / "trials", Path.cwd(), SEED, SCREENING_SECONDS, this_machine.read(), Stop()
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def grid(self) -> None:
        known = [row["settings"] for row in self.rows]
        for settings in self.workload.grid:
            if settings in known:
                continue
            trial = self.bench.measure(with_changes(self.preset, settings), "g", 1)
            speed = trial.samples_per_second if trial.good else None
            row = {"settings": settings, "speed": speed, "seconds": trial.seconds, "outcome": trial.outcome}
            with self.file.open("a") as out:
                out.write(json.dumps(row) + "\n")

    def search(self) -> Mapping[str, Any]:
        """Return the record of the search, as `gputui tune --json` prints it. The search is carried out only if none is
        kept.
        """
        kept = self.folder / "search.json"
        if not kept.exists():
            kept.write_text(json.dumps(searched(self.workload, max(self.workload.batches))))
        return dict(json.loads(kept.read_text()))

    def compare(self, found: Mapping[str, Any], best: Mapping[str, Any], pairs: int) -> tuple[float, float]:
        """Return the speed of the settings `found` by the search divided by that of the grid's `best`, and the spread
        of the pairs (a share). `pairs` is the number of pairs that are measured.
        """
        one, other = (with_changes(self.preset, settings) for settings in (best, found))
        if one.options == other.options:
            return 1.0, 0.0
        bench = TrialRunner(self.folder / "pairs", Path.cwd(), SEED, PAIR_SECONDS, self.bench.machine, Stop())
        comparison = Comparison(changes=found)
        with bench:
            gains = Comparing(bench, comparison, one, other, pairs, lambda _doing: None).measure()
        median, spread = significance.gain_and_spread(gains)
        return 1 + (median or 0.0), spread or 0.0


def searched(workload: Workload, most: int) -> dict[str, Any]:
    """Search the workload's space with `gputui tune` in a new home. Return the search's record.

    `most` is the largest batch size to try.
    """
    command = [str(Path(sys.executable).parent / "gputui"), "tune", "--json", "--anyway", "--minutes", str(MINUTES),
               "--preset", workload.preset, "--largest-batch", str(most), "--precision", "mixed_bfloat16",
               "--seconds", str(PAIR_SECONDS), "--allow-worse-loss"]  # fmt: skip
    for setting in (*workload.settings, f"train.seed={SEED}"):
        command += ["--set", setting]
    for stage in workload.only:
        command += ["--only", stage]
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"GPUTUI_HOME": home},
                              check=False)  # fmt: skip
    if not done.stdout:
        sys.exit(done.stderr)
    return dict(json.loads(done.stdout))


def row(name: str, measured: Measured, pairs: int) -> str:
    measured.grid()
    rows, data = measured.rows, measured.search()
    good = [one for one in rows if one["speed"]]
    best = max(good, key=lambda one: one["speed"])["settings"]
    found = data["search"]["best"]
    ratio, spread = measured.compare(found, best, pairs)
    trials = [*(one for candidate in data["search"]["candidates"] for one in candidate["trials"])]
    grid_seconds, seconds = sum(one["seconds"] for one in rows), data["seconds"]
    losses, pairs_seconds = took(data["search"]["losses"]), took(data["comparisons"])
    searching = seconds - losses - pairs_seconds
    memory = error_of_predictions(data)
    return (f"| {name} | {len(rows)} | {grid_seconds:.0f} | {len(trials)} "
            f"| {searching:.0f} + {losses:.0f} + {pairs_seconds:.0f} "
            f"| {searching / grid_seconds:.0%}, {seconds / grid_seconds:.0%} | {data.get('gain_total') or 1:.2f} "
            f"| {ratio:.3f} (spread {spread:.3f}) | {memory} | {said(best)} "
            f"| {said(found)} |")  # fmt: skip


def took(measured: list[dict[str, Any]]) -> float:
    """Return the seconds that the trials of several records took together: of comparisons of the loss, or of pairs."""
    return sum(float(trial["seconds"]) for one in measured for trial in one["trials"])


def error_of_predictions(data: Mapping[str, Any]) -> str:
    """Return the median relative error of the memory predictions as text, such as `3%`; empty without a prediction."""
    points = (data["search"]["memory"] or {}).get("points") or ()
    errors = [one["predicted_bytes"] / one["peak_bytes"] - 1 for one in points
              if one["peak_bytes"] and one["predicted_bytes"]]  # fmt: skip
    return f"{statistics.median(map(abs, errors)):.0%}" if errors else ""


def said(settings: Mapping[str, Any]) -> str:
    return proof_sentences.changes(settings).replace("mixed_bfloat16", "bf16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gputui-tune")
    parser.add_argument("--pairs", type=int, default=3)
    given = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print("| workload | grid | grid s | trials | search + losses + pairs s | share of time without, with these "
          "| gain | search's / grid's best | memory error | grid's best | search's best |")  # fmt: skip
    print("| --- " * 11 + "|")
    for name in given.workloads or WORKLOADS:
        print(row(name, Measured(given.folder, name), given.pairs), flush=True)


if __name__ == "__main__":
    main()
