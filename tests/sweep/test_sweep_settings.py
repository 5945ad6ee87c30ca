"""What a sweep is to do, as it follows from what a user gives: its whole settings, and both sides of each limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.proof.request import ProofError
from gputui.engine.sweep import preset_block, sweep_request, swept_values
from gputui.engine.trials import sweep_record
from gputui.engine.trials.sweep_record import Axis, SweepSettings

RATE, DECAY = "train.learning_rate", "train.weight_decay"
RATES = "learning_rate=1e-3,3e-3"


def asked(
    *over: str, metric: str = "val_loss", halve_from: int | None = None, preset: tuple[str, ...] = (), **more: Any
) -> SweepSettings:
    return sweep_request.settings_of(presets.defaults(preset), over or (RATES,), metric, halve_from, **more)


def refused(*over: str, **more: Any) -> str:
    with pytest.raises(ProofError) as fault:
        asked(*over, **more)
    return str(fault.value)


def has_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    gpus = tuple(Gpu(number, f"GPU-{number}", "T4", (7, 5), 2**34) for number in range(count))
    monkeypatch.setattr(this_machine, "read", lambda: Machine(gpus, "" if gpus else "none", 8, 2**36))


@pytest.mark.parametrize(("gpus", "one_each", "at_once"), [(0, False, 1), (1, False, 1), (2, True, 2)])
def test_the_settings_of_a_sweep_for_which_only_the_values_are_given(
    home: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, one_each: bool, at_once: int
) -> None:
    has_gpus(monkeypatch, gpus)
    assert asked() == SweepSettings(
        axes=[Axis(key=RATE, values=[0.001, 0.003])], metric="val_loss", higher=False, minutes=60.0, seeds=1,
        proof_seeds=5, finalists=2, sampler="grid", most_trials=None, parallel=at_once, ahead=1, rungs=[], factor=3,
        one_gpu_each=one_each, study=None, study_name=None, member="",
    )  # fmt: skip


def test_all_that_is_given_is_in_the_settings(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_gpus(monkeypatch, 0)
    study = tmp_path / "shared.journal"
    made = asked(
        RATES, "weight_decay=0.001..0.1", metric="val_cost:max", halve_from=2, preset=("epochs=20",), sampler="random",
        most_trials=7, factor=2, seeds=2, proof_seeds=3, finalists=4, minutes=90.0, parallel=3, study=str(study),
        study_name="mine",
    )  # fmt: skip
    assert made.member
    assert replace(made, member="") == SweepSettings(
        axes=[Axis(key=RATE, values=[0.001, 0.003]), Axis(key=DECAY, low=0.001, high=0.1, log=True)],
        metric="val_cost", higher=True, minutes=90.0, seeds=2, proof_seeds=3, finalists=4, sampler="random",
        most_trials=7, parallel=3, ahead=1, rungs=[2, 4, 8, 16], factor=2, one_gpu_each=False, study=str(study),
        study_name="mine",
    )  # fmt: skip
    assert asked(halve_from=1, preset=("epochs=20",)).rungs == [1, 3, 9], "one of three goes on if nothing is given"
    assert asked("weight_decay=0.001..0.1").axes == [Axis(key=DECAY, values=[0.001, 0.01, 0.1])], "a grid has values"


@pytest.mark.parametrize(
    ("metric", "higher"),
    [("loss", False), ("val_accuracy", True), ("val_accuracy:min", False), ("val_loss:max", True), ("AUC", True),
     ("val_my_error", False)],
)  # fmt: skip
def test_which_way_a_metric_is_better(home: Path, metric: str, higher: bool) -> None:
    assert (asked(metric=metric).metric, asked(metric=metric).higher) == (metric.partition(":")[0], higher)


def test_halving_that_is_off_goes_with_every_sampler(home: Path) -> None:
    for off in (0, None):
        assert asked(sampler="tpe", most_trials=5, halve_from=off).rungs == []
    assert refused(sampler="tpe", most_trials=5, halve_from=1).startswith(
        "--halving goes with --sampler grid or random"
    )
    assert (
        refused(halve_from=1, preset=("epochs=1",))
        == "--halving needs a training of at least 2 epochs, and train.epochs is 1"
    )
    assert asked(halve_from=1, preset=("epochs=2",)).rungs == [1]
    few = ("epochs=5",)
    assert asked(halve_from=4, preset=few).rungs == [4]
    for wrong in (5, -1):
        assert refused(halve_from=wrong, preset=few) == (
            f"--halving {wrong}: the first rung is an epoch from 1 to 4, as train.epochs=5"
        )


def test_a_grid_and_a_sampler_have_limits_of_their_own(home: Path) -> None:
    hundred = "learning_rate=1e-5..1e-1:100"
    assert len(asked(hundred, "weight_decay=0..1:100").axes) == 2
    assert refused(hundred, "weight_decay=0..1:101") == (
        "the grid has 10,100 settings; give fewer values, or --sampler random --trials N"
    )
    assert asked(hundred, "weight_decay=0..1:101", sampler="random", most_trials=2).most_trials == 2
    assert refused(most_trials=3) == "--trials is for --sampler random; a grid has all combinations"
    assert refused(sampler="tpe") == "--sampler tpe needs --trials N"
    assert [asked(proof_seeds=count).proof_seeds for count in (0, 3)] == [0, 3]
    assert refused(proof_seeds=2) == "--proof-seeds: at least 3 are needed for a spread, or 0 for no proof"
    assert refused(study_name="mine").startswith("--name is the name of the sweep in a study")


def test_the_request_has_the_minutes_of_the_sweep(home: Path) -> None:
    made = sweep_request.of_preset("quickstart", ("epochs=3",), [RATES], "loss", None, minutes=2.5)
    assert made.sweep is not None
    assert (made.kind, made.limit_seconds, made.sweep.minutes) == ("sweep", 150.0, 2.5)
    assert made.baseline().options.train.epochs == 3


def test_random_settings_are_each_drawn_once_as_long_as_there_are_others() -> None:
    axes = [Axis(key="a", values=[1, 2]), Axis(key="b", values=["x", "y"])]
    every = swept_values.distinct(axes, 3, 4)
    assert sorted(map(str, every)) == sorted(str({"a": a, "b": b}) for a in (1, 2) for b in ("x", "y"))
    assert swept_values.distinct(axes, 3, 9) == every, "there are no more"
    assert swept_values.distinct(axes, 3, 2) == every[:2]
    many = [Axis(key="a", low=0.0, high=1.0)]
    first, second = (swept_values.distinct(many, seed, 20) for seed in (3, 4))
    assert not {each["a"] for each in first} & {each["a"] for each in second}, "another seed draws others"
    assert swept_values.size([*axes, Axis(key="c", values=[1, 2, 3])]) == 12
    assert list(swept_values.grid(axes))[:3] == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}]


LIMITS: dict[str, tuple[str, Any, Any]] = {
    "seeds": ("seeds", 1, 100), "minutes": ("minutes", 0.01, 10_000_000), "trials": ("most_trials", 2, 10_000),
    "halving": ("halve_from", 0, 1_000_000), "proof_seeds": ("proof_seeds", 0, 100), "finalists": ("finalists", 2, 20),
    "parallel": ("parallel", 1, 1000),
}  # fmt: skip


@pytest.mark.parametrize("entry", LIMITS)
def test_each_number_in_the_block_of_a_preset_has_its_limits(entry: str) -> None:
    parameter, least, most = LIMITS[entry]
    for value in (least, most):
        assert preset_block.of_block({entry: value}) == {parameter: value}
    kind = "a number" if entry == "minutes" else "a whole number"
    for wrong in (least - (0.001 if entry == "minutes" else 1), most + 1, True, "3", None, [2]):
        with pytest.raises(ProofError) as fault:
            preset_block.of_block({entry: wrong}, "mine: sweep.")
        assert str(fault.value).startswith(f"mine: sweep.{entry}: ")
        assert str(fault.value).endswith(f" does not fit: give {kind} from {least:g} to {most:,}")
    if entry != "minutes":
        with pytest.raises(ProofError, match="give a whole number"):
            preset_block.of_block({entry: float(most)})


def test_texts_in_the_block_of_a_preset() -> None:
    block = {"metric": "val_f1:max", "sampler": "tpe", "study": "shared.db", "name": "mine", "over": {"seed": 3}}
    assert preset_block.of_block(block) == {
        "metric": "val_f1:max", "sampler": "tpe", "study": "shared.db", "study_name": "mine", "over": ("seed=3",),
    }  # fmt: skip
    for entry in ("metric", "sampler", "study", "name"):
        with pytest.raises(ProofError) as fault:
            preset_block.of_block({entry: 3})
        assert str(fault.value) == f"{entry}: 3 does not fit: give a text"
    nothing: list[Any] = [{}, [], "learning_rate", None]
    for wrong in nothing:
        with pytest.raises(ProofError, match=r"^over: give options with their values, such as"):
            preset_block.of_block({"over": wrong})
    with pytest.raises(ProofError) as fault:
        preset_block.of_block({"quite": 3}, "p: ")
    assert str(fault.value) == f"p: quite: there is no such entry; there are over, {', '.join(preset_block.ENTRIES)}"


def test_the_settings_of_a_sweep_are_read_as_they_were_written() -> None:
    plain: dict[str, Any] = {"axes": [{"key": RATE, "low": 1.0, "high": 9.0, "log": True, "whole": True}],
                             "metric": "loss", "seeds": 4, "of_a_later_version": 1}  # fmt: skip
    read = sweep_record.settings(plain)
    assert read == SweepSettings(axes=[Axis(key=RATE, low=1.0, high=9.0, log=True, whole=True)], metric="loss", seeds=4)
    assert plain["axes"] == [{"key": RATE, "low": 1.0, "high": 9.0, "log": True, "whole": True}], "it stays as it is"
