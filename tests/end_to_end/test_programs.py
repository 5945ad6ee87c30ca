"""Keras programs of different shape: each trains by itself, and through workload.entry with ten lines changed."""

from __future__ import annotations

import difflib
import runpy
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.support.own import Write
from tests.support.training import Training

PROGRAMS = Path(__file__).parents[1] / "support" / "programs"
NAMES = ("custom_step", "multi_input", "sequence", "text", "transfer", "guide_step")
SAME_AS_PLAIN = ("custom_step", "guide_step")  # to the figure: with a training step of their own
OVER_REPLICAS = ("custom_step", "multi_input", "sequence", "guide_step")
SETTINGS = {"transfer": ("epochs=3",), "text": ("epochs=4", "cache=memory")}
PLAIN_EPOCHS = {"multi_input": 2, "sequence": 3, "text": 2, "transfer": 2}  # that of transfer is stopped by a callback
MOST_CHANGED_LINES = 10


def changed_lines(plain: list[str], entry: list[str]) -> int:
    """Lines that a person touches: changed, added or taken out; blank ones cost nothing."""
    plain, entry = ([line for line in lines if line.strip()] for lines in (plain, entry))
    found = difflib.SequenceMatcher(None, plain, entry, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in found if kind != "equal")


def plain_fits(name: str) -> list[dict[str, Any]]:
    """The history of every model.fit of a plain program."""
    seen: list[dict[str, Any]] = []
    stock = keras.Model.fit

    def fit(self: Any, *arguments: Any, **more: Any) -> Any:
        history = stock(self, *arguments, **more | {"verbose": 0})
        seen.append(history.history)
        return history

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keras.Model, "fit", fit)
        runpy.run_path(str(PROGRAMS / "plain" / f"{name}.py"), run_name="__main__")
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_at_most_ten_lines_change(name: str) -> None:
    plain, entry = ((PROGRAMS / kind / f"{name}.py").read_text().splitlines() for kind in ("plain", "entry"))
    assert 1 <= changed_lines(plain, entry) <= MOST_CHANGED_LINES


def test_the_count_of_changed_lines_is_right() -> None:
    assert changed_lines(["a", "b", "c"], ["a", "x", "c"]) == 1
    assert changed_lines(["a", "b", "c"], ["a", "c", "d", "e"]) == 3
    assert changed_lines(["a", "", "b"], ["a", "b"]) == 0


@pytest.mark.usefixtures("cpus")
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize("name", sorted({*NAMES} - {*SAME_AS_PLAIN}))
def test_the_plain_program_trains_by_itself(name: str) -> None:
    """Those that are not compared with their entry, below."""
    (history,) = plain_fits(name)
    assert len(history["loss"]) == PLAIN_EPOCHS[name]
    assert np.isfinite(list(history.values())).all()


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize(
    ("name", "strategy"), [*((name, "single") for name in NAMES), *((name, "mirrored") for name in OVER_REPLICAS)]
)
def test_the_program_trains_through_its_entry(name: str, strategy: str, own: Write) -> None:
    """With a training step of its own and the batch of the plain program, to the very figures of that; text learns."""
    same_as_plain = strategy == "single" and name in SAME_AS_PLAIN
    batch = 32 if same_as_plain else 16
    more = (*SETTINGS.get(name, ("epochs=2",)), "checkpoint=epoch", f"strategy.kind={strategy}")
    training = own(PROGRAMS / "entry" / f"{name}.py", f"batch_size={batch}", "steps_per_execution=3", *more)
    losses = training.announce().train().losses()
    epochs = 4 if name == "text" else 2
    assert len(losses) == epochs
    assert np.isfinite(losses).all()
    assert training.loop.step == epochs * training.loop.steps_per_epoch
    assert training.loop.built.checkpoints.latest_step() == training.loop.step
    told = training.events("started")[0]
    assert told["replicas"] == (2 if strategy == "mirrored" else 1)
    assert told["not_applied"] == []
    # Its callback ends the transfer learning, which would go on.
    assert training.loop.steps == (3 if name == "transfer" else epochs) * training.loop.steps_per_epoch
    if name == "text":
        assert training.events("epoch")[-1]["metrics"]["val_accuracy"] > 0.9
    if same_as_plain:
        (history,) = plain_fits(name)
        _has_the_figures(training, history)


def _has_the_figures(training: Training, plain: dict[str, Any]) -> None:
    ours = [event["metrics"] for event in training.events("epoch")]
    assert set(ours[0]) == set(plain)
    for figure, values in plain.items():
        assert [metrics[figure] for metrics in ours] == pytest.approx(values, rel=1e-5)
