"""Recorded trainings: the figures of every epoch, bit by bit, in golden/trainings.json.

`pytest --snapshot-update` records the figures of this CPU; look at the difference. Kernels differ with the instructions
of the CPU, so each set of instructions has figures of its own; on a CPU with others, five digits must be those of one
of them. That a training and its exported script equal plain Keras is tested elsewhere
(tests/end_to_end/test_programs.py); this keeps what it has no word for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doors.engine import presets
from tests.support.cluster import epochs, program, workers_of
from tests.support.forking import Forks, trainer_of

GOLDEN = Path(__file__).parent / "golden" / "trainings.json"
PROGRAMS = Path(__file__).parents[1] / "support" / "programs"
OWN = Path(__file__).with_name("programs.py")
SMALL = ("workload.model=mlp", "workload.width=0.1", "seed=11", "deterministic=true", "epochs=2")
TRAININGS: dict[str, tuple[str, ...]] = {
    "one device": SMALL,
    "augmented cnn, cached": ("model=cnn", "width=0.1", "seed=11", "deterministic=true", "epochs=1", "augment=light",
                              "cache=memory", "shuffle=500"),
    "schedule, clipping, early stop": (*SMALL, "schedule=cosine", "warmup_steps=5", "optimizer=adamw",
                                             "weight_decay=0.01", "global_clip_norm=0.5", "early_stop=val_loss"),
    "mixed precision, XLA, several steps at once": (*SMALL, "precision.policy=mixed_bfloat16", "xla=true",
                                                    "steps_per_execution=4"),
    "mirrored": (*SMALL, "logical_devices=2", "strategy.kind=mirrored", "batch_size=30"),
    "micro-batches": (*SMALL, "micro_batches=3", "batch_size=48"),
    "gradient accumulation": (*SMALL, "gradient_accumulation=2"),
    "own code with arrays": (f"entry={PROGRAMS}/own_models.py:multi_input", "seed=11", "batch_size=16", "epochs=2"),
    "own step": (f"entry={PROGRAMS}/own_steps.py:vae", "seed=11", "batch_size=16", "epochs=2"),
    "PyDataset": (f"entry={OWN}:py_dataset", "seed=11", "epochs=2"),
    "generator": (f"entry={OWN}:generator", "seed=11", "epochs=2"),
    "callbacks": (f"entry={OWN}:callbacks", "seed=11", "epochs=3", "batch_size=10"),
}  # fmt: skip
Figures = dict[str, dict[str, str]]
Check = Callable[[str, dict[int, dict[str, float]]], None]


def instructions() -> list[str]:
    """Those of this CPU for which TensorFlow and oneDNN have kernels of their own."""
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return sorted(flag for flag in (flags[1].split() if flags else ()) if re.match(r"fma|avx|amx", flag))


def as_golden(found: dict[int, dict[str, float]]) -> Figures:
    return {str(epoch): {name: float(value).hex() for name, value in of.items()} for epoch, of in found.items()}


def close(figures: Figures, recorded: Figures) -> bool:
    assert {epoch: sorted(of) for epoch, of in figures.items()} == {epoch: sorted(of) for epoch, of in recorded.items()}
    return all(
        math.isclose(float.fromhex(value), float.fromhex(recorded[epoch][name]), rel_tol=1e-5)
        for epoch, of in figures.items()
        for name, value in of.items()
    )


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Check:
    """check(name, figures by epoch): compares them with the recorded ones."""

    def compare(name: str, found: dict[int, dict[str, float]]) -> None:
        golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
        figures, here = as_golden(found), " ".join(instructions())
        if request.config.getoption("update_snapshots"):
            golden.setdefault(name, {})[here] = figures
            GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
        elif here in golden[name]:
            assert figures == golden[name][here]
        else:
            assert any(close(figures, recorded) for recorded in golden[name].values()), figures

    return compare


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_has_the_recorded_figures(name: str, forks: Forks, check: Check) -> None:
    run, trainer = trainer_of(presets.defaults(TRAININGS[name]))
    forks.run(trainer)
    check(name, epochs(run))


def test_a_training_that_is_stopped_within_an_epoch_and_resumed(forks: Forks, check: Check, tmp_path: Path) -> None:
    (tmp_path / "ends").write_text("14")
    settings = (
        f"entry={OWN}:ends_itself",
        "seed=11",
        "batch_size=10",
        "epochs=3",
        "checkpoint=epoch",
        f"args={{at: {tmp_path}/ends}}",
    )
    run, trainer = trainer_of(presets.defaults(settings))
    forks.run(trainer)
    assert sorted(epochs(run)) == [1]
    forks.run(trainer)
    check("resumed within an epoch", epochs(run))


def test_a_training_on_two_workers(forks: Forks, check: Check, tmp_path: Path) -> None:
    more = ("seed=11", "epochs=2", "batch_size=20", "deterministic=true")
    runs, trainers = workers_of(2, *program(tmp_path), *more)
    forks.run(*trainers)
    check("two workers", epochs(runs[0]))
