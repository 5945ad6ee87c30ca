"""Simulates sweeps whose truth is known: how often the best setting is found, and how far the claims can be trusted.

    python -m benchmarks.sweeps [--sweeps 200]

No training takes place: a loss is a known function of the setting, with normal noise of a known size for each seed. The
rest is the code of `gputui sweep` (engine/sweep). Printed are, over all sweeps: how often the best setting wins, how
often the intervals of a sweep all contain the true differences, how often equal settings are told apart, and how many
epochs halving trains of those of the grid.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from gputui.engine.trials.record import Record

from tests.support.swept import Simulated, request_of, swept

OVER = ("learning_rate=1e-4,3e-4,1e-3,3e-3", "weight_decay=0,0.01,0.1", "batch_size=32,64")
NOISE = 0.01  # standard deviation of a loss over seeds
EPOCHS = 9
Truth = Callable[[Mapping[str, Any]], float]


def planted(changes: Mapping[str, Any]) -> float:
    """Return the true final loss: three noises below all others with rate 1e-3, decay 0.01, batch 32."""
    rate = {1e-4: 0.3, 3e-4: 0.08, 1e-3: 0.0, 3e-3: 0.05}[changes["train.learning_rate"]]
    decay = {0: 0.03, 0.01: 0.0, 0.1: 0.1}[changes["train.weight_decay"]]
    return 0.4 + rate + decay + (0.0 if changes["input.batch_size"] == 32 else 0.03)


def equal(_changes: Mapping[str, Any]) -> float:
    """Return the same true loss for all settings."""
    return 0.4


def noisy(truth: Truth, number: int) -> Callable[[Mapping[str, Any], int, int], float]:
    """Return the metric of the sweep `number`: the truth with noise of the setting and the seed, above it early."""

    def metric(changes: Mapping[str, Any], seed: int, epoch: int) -> float:
        noise = random.Random(f"{number} {sorted(changes.items())} {seed} {epoch}").gauss(0, NOISE)
        return truth(changes) + 0.5 / epoch - 0.5 / EPOCHS + noise

    return metric


def simulate(truth: Truth, sweeps: int, **more: Any) -> tuple[list[Record], list[int]]:
    """Return the records of so many sweeps, and the number of epochs that the search of each has trained."""
    records, epochs = [], []
    for number in range(sweeps):
        trainings = Simulated(noisy(truth, number), EPOCHS)
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(Record, "write"):  # it is written at the end
            record = swept(request_of(OVER, epochs=EPOCHS, **more), trainings, Path(folder))
        records.append(record)
        assert record.sweep is not None
        searched = {trial.run for trial in record.sweep.trials if trial.part == "search"}
        epochs.append(sum(len(done) for run, done in trainings.trained.items() if run in searched))
    return records, epochs


def covered(record: Record, truth: Truth) -> bool:
    """Return True if each interval of the sweep contains the true difference."""
    assert record.sweep is not None
    best = record.sweep.best or {}
    return all(
        abs((rival.mean or 0.0) - (truth(rival.changes) - truth(best))) <= (rival.half_width or 0.0)
        for rival in record.sweep.rivals
    )


def claims(record: Record) -> bool:
    """Return True if the sweep says of any two settings that one is better."""
    assert record.sweep is not None
    return any(rival.decision != "undecided" for rival in record.sweep.rivals)


def row(name: str, truth: Truth, sweeps: int, **more: Any) -> Sequence[str]:
    """Return the figures of a way of sweeping as texts."""
    records, epochs = simulate(truth, sweeps, **more)
    optimum = {"train.learning_rate": 1e-3, "train.weight_decay": 0.01, "input.batch_size": 32}
    won = sum(record.sweep is not None and record.sweep.winner == optimum for record in records)
    inside = sum(covered(record, truth) for record in records)
    told = sum(map(claims, records))
    share = sum(epochs) / sweeps / (24 * EPOCHS * more.get("seeds", 1))
    wins = f"{100 * won / sweeps:.1f}" if truth is planted else "-"
    return [name, wins, f"{100 * inside / sweeps:.1f}", f"{100 * told / sweeps:.1f}", f"{100 * share:.0f} %"]


def main() -> None:
    """Print a row for each way of sweeping."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=200)
    sweeps = parser.parse_args().sweeps
    head = ["simulated sweeps", "best wins", "interval true", "a difference claimed", "epochs of the grid"]
    print(f"of 100, over {sweeps} sweeps each\n\n| {' | '.join(head)} |\n| --- | ---: | ---: | ---: | ---: |")
    for name, truth, more in (
        ("planted, grid", planted, {}),
        ("planted, 3 seeds, 3 finalists", planted, {"seeds": 3, "finalists": 3}),
        ("planted, halving from epoch 1", planted, {"rungs": [1, 3]}),
        ("planted, the same with 3 seeds", planted, {"rungs": [1, 3], "seeds": 3}),
        ("equal, grid", equal, {}),
        ("equal, 5 finalists", equal, {"finalists": 5}),
        ("equal, halving from epoch 1", equal, {"rungs": [1, 3]}),
    ):
        print(f"| {' | '.join(row(name, truth, sweeps, **more))} |", flush=True)


if __name__ == "__main__":
    main()
