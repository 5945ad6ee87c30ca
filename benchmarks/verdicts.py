"""Measures whether the verdicts on the shipped presets are true: short runs, compared with the results of ablations.

TRUE has the verdicts that are true for each preset on a machine without a GPU, with the reason: an ablation, that is
the same training in turn with its input prepared once (`input.one_batch`), with 16 steps in one call, and without
evaluation and checkpoints. The verdict `undecided` is always allowed. Every verdict counts, also those before the end.

    python benchmarks/verdicts.py [--runs 50] [--seed 1] [--only quickstart ...]

Prints a row for each preset and verdict, and the sentence of each false verdict. The exit code is 1 if a verdict was
false.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Truth:
    """The true `verdicts` on a preset, each with the measurement that shows it, and the `settings` that the preset
    needs without a GPU.
    """

    verdicts: Mapping[str, str]
    settings: tuple[str, ...] = ()


# Two cores of a Xeon with AMX, other programs beside it; milliseconds a step are means of two interleaved trials of 3 s
# each, as it is, with one batch and with 16 steps in a call; epochs are with and without evaluation and checkpoints.
PYTHON = "python_overhead"
TRUE: Mapping[str, Truth] = {
    # 5.8, 7.2 and 3.9 ms: 32 % is Python between the steps, the input costs nothing. Epochs: 0.31 and 0.29 s.
    "quickstart": Truth({PYTHON: "16 steps in a call take 32 % less time"}),
    # 10.1, 11.7 and 11.2 ms: nothing is lost, float32 is multiplied and the CPU has bfloat16. Epochs: 0.15 and 0.15 s.
    "fast": Truth({"compute_bound": "nothing is lost, and bfloat16 is not in use"}),
    # 4.9, 6.2 and 2.9 ms. Epochs: 0.58 and 0.60 s.
    "safe-memory": Truth({PYTHON: "16 steps in a call take 40 % less time"}),
    # 203 and 164 ms beside programs that took most of the CPU, 0.4 % input wait: the input costs nothing.
    "xla-bf16": Truth({"healthy": "computing is 97 % of the step, and every remedy is in use"}),
    # 12.1, 4.7 and 12.3 ms: 61 % of the step is gone with the input.
    "input-heavy": Truth({"input_bound": "without its input a step takes 61 % less time"}),
    # Deterministic operations hide where the time goes, and 30 steps of 1.5 ms are too few to tell.
    "debug": Truth({}),
    # 14.2, 11.2 and 10.2 ms on two logical CPUs: 28 % is Python, 21 % is gone with the input. Epochs: 0.78 and 0.39 s.
    "multi-gpu": Truth(
        {
            PYTHON: "16 steps in a call take 28 % less time",
            "input_bound": "without its input a step takes 21 % less time",
            "stalls": "without evaluation an epoch takes 50 % less time",
        },
        settings=("logical_devices=2",),
    ),
}
ALWAYS = ("undecided",)


@dataclass(frozen=True)
class Told:
    """A verdict of a run with its sentence. `last` is True for the run's last verdict."""

    preset: str
    verdict: str
    sentence: str
    last: bool

    @property
    def allowed(self) -> bool:
        return self.verdict in TRUE[self.preset].verdicts or self.verdict in ALWAYS


def run(preset: str, epochs: int, seed: int) -> list[Told]:
    """Train a preset for `epochs`, and return the verdicts of the run in their order. A failed run ends the program."""
    settings = (f"epochs={epochs}", f"seed={seed}", *TRUE[preset].settings)
    command = [str(Path(sys.executable).parent / "gputui"), "--preset", preset, "--json"]
    command += [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{preset} failed: {done.stderr.strip()}")
    events = [event for event in map(json.loads, done.stdout.splitlines()) if event["type"] == "diagnosis"]
    return [Told(preset, event["verdict"], event["sentence"], event is events[-1]) for event in events]


def plan(runs: int, seed: int, presets: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return preset, epochs (1 to 3) and seed for each of `runs` runs: all presets equally often, in a random order.

    The same `seed` gives the same plan.
    """
    drawn = random.Random(seed)
    found = [(presets[i % len(presets)], drawn.randint(1, 3), drawn.randrange(1000)) for i in range(runs)]
    drawn.shuffle(found)
    return found


def show(told: Sequence[Told]) -> None:
    """Print a table with a row for each preset and verdict: how often the verdict was given, how often as the last, and
    whether it is allowed.
    """
    counts = Counter((one.preset, one.verdict, one.allowed) for one in told)
    last = Counter((one.preset, one.verdict) for one in told if one.last)
    print(f"\n{'preset':<14}{'verdict':<20}{'told':>6}{'last word':>11}  allowed")
    for (preset, verdict, allowed), count in sorted(counts.items()):
        print(f"{preset:<14}{verdict:<20}{count:>6}{last[preset, verdict]:>11}  {'yes' if allowed else 'NO'}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=[*TRUE], default=[*TRUE])
    asked = parser.parse_args()
    told: list[Told] = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUTUI_HOME"] = home
        for number, (preset, epochs, seed) in enumerate(plan(asked.runs, asked.seed, asked.only), 1):
            new = run(preset, epochs, seed)
            told += new
            last = new[-1].sentence if new else "nothing told"
            print(f"{number:>3} {preset:<12} {epochs} epochs: {last}", flush=True)
    show(told)
    false = [one for one in told if not one.allowed]
    print(f"\n{asked.runs} runs, {len(told)} verdicts told, {len(false)} of them false")
    for one in false:
        print(f"  {one.preset}: {one.sentence}")
    return int(bool(false))


if __name__ == "__main__":
    sys.exit(main())
