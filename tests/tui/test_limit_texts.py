"""The texts of the dialogs of a search and of a sweep: with which they open, and what they are read as."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.proof.request import ProofError
from gputui.engine.trials.search_record import Limits
from gputui.tui.form.search_limits import POLICIES, LimitTexts, WrongLimit
from gputui.tui.form.sweep_texts import SweepTexts

STAGES = ["batch_size", "steps_per_execution", "precision", "xla", "strategy", "input", "threads"]
USUAL = Limits(minutes=10.0, only=STAGES, leave=[], avoid_precisions=[])
OTHERS = {
    "metric": "val_loss", "seeds": "1", "minutes": "60", "sampler": "grid", "trials": "", "halving": "",
    "proof_seeds": "5", "finalists": "2", "parallel": "", "study": "", "name": "",
}  # fmt: skip
READ = {
    "metric": "val_loss", "halve_from": None, "seeds": 1, "minutes": 60, "sampler": "grid", "proof_seeds": 5,
    "finalists": 2,
}  # fmt: skip
AROUND = "learning_rate=0.00067,0.002,0.006"


@pytest.mark.parametrize(
    ("texts", "changes"),
    [
        ({}, {}),
        ({"minutes": " 0.001 "}, {"minutes": 0.001}),
        ({"minutes": "999999999"}, {"minutes": 999_999_999.0}),
        ({"memory_gb": "1.2345678906"}, {"memory_bytes": 1_234_567_891}),
        ({"memory_gb": " "}, {}),
        ({"largest_batch": " 1 "}, {"largest_batch": 1}),
        ({"warmup_steps": "0"}, {"warmup_steps": 0}),
        ({"leave": "a,b , c"}, {"leave": ["a", "b", "c"]}),
        ({"learning_rate": "sqrt"}, {"learning_rate": "sqrt"}),
        ({"allow_worse_loss": True}, {"allow_worse_loss": True}),
        ({"only": {"xla", "batch_size"}}, {"only": ["batch_size", "xla"]}),
    ],
)
def test_the_limits_of_a_search_are_read_from_texts(texts: dict[str, Any], changes: dict[str, Any]) -> None:
    assert LimitTexts(**texts).limits() == replace(USUAL, **changes)


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("minutes", " ", "give the minutes that the search may take"),
        ("minutes", " 0 ", "the time must be a number above 0, not '0'"),
        ("minutes", "1e9", "the time must be a number above 0, not '1e9'"),
        ("minutes", "ten", "the time must be a number above 0, not 'ten'"),
        ("memory_gb", "inf", "memory must be a number above 0, not 'inf'"),
        ("largest_batch", " 0 ", "the largest batch must be a whole number from 1 on, not '0'"),
        ("warmup_steps", "-1", "the warm-up must be a whole number from 0 on, not '-1'"),
        ("only", set(), "choose at least one option to search"),
        ("precisions", set(), "choose a precision, or take precision out of what is searched"),
    ],
)
def test_a_wrong_limit_names_its_field_and_what_fits(field: str, text: Any, message: str) -> None:
    with pytest.raises(WrongLimit) as wrong:
        LimitTexts(**{field: text}).limits()
    assert (wrong.value.name, str(wrong.value)) == (field, message)


def test_precisions_of_a_search_follow_the_devices_unless_they_were_chosen() -> None:
    first, second, third = POLICIES[:3]
    texts = LimitTexts()
    texts.suit([second])
    assert texts.precisions == texts.suitable == {first, second}
    assert (texts.limits().precisions, texts.limits().avoid_precisions) == (None, [])
    cases: tuple[tuple[set[str], list[str], list[str]], ...] = (
        ({first, second, third}, [first, second, third], []), ({first}, [first], []), ({third}, [third], []),
        ({second, third}, [second, third], []),
    )  # fmt: skip
    for chosen, precisions, avoided in cases:
        texts.precisions = set(chosen)
        assert (texts.limits().precisions, texts.limits().avoid_precisions) == (precisions, avoided), chosen
    texts.suit([second, third])
    assert texts.precisions == {second, third}, "they were chosen"
    assert (texts.limits().precisions, texts.limits().avoid_precisions) == (None, [first])
    texts.precisions = set()
    with pytest.raises(WrongLimit, match="choose a precision"):
        texts.limits()
    texts.only.discard("precision")
    assert "precision" not in texts.limits().only
    texts.only.clear()
    with pytest.raises(WrongLimit, match="at least one option"):
        texts.limits()


def test_the_dialog_of_a_sweep_opens_with_the_learning_rate_and_the_defaults() -> None:
    opened = presets.resolve("quickstart")
    texts = SweepTexts.first(opened)
    assert texts == SweepTexts(opened, [AROUND, "", ""], OTHERS)
    assert texts.parameters() == READ | {"over": [AROUND]}


def test_the_proposed_rates_have_two_digits_and_the_present_one_all(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for rate, over in (("0.00125", "0.00042,0.00125,0.0037"), ("3e-05", "1e-05,3e-05,9e-05"), ("0.5", "0.17,0.5,1.5")):
        path.write_text(f"train: {{learning_rate: {rate}}}\n")
        assert SweepTexts.first(presets.resolve(str(path))).over[0] == f"learning_rate={over}"


@pytest.mark.parametrize(
    ("block", "over", "others"),
    [
        ("{over: {learning_rate: [1e-3, 3e-3]}}", ["learning_rate=0.001,0.003", "", ""], {}),
        ("{over: {train.epochs: [1, 2], seed: [3, 4]}, seeds: 2, minutes: 2.5}", ["train.epochs=1,2", "seed=3,4", ""],
         {"seeds": "2", "minutes": "2.5"}),
        ("{over: {a: [1], b: [2], c: [3]}, sampler: random, trials: 9, halving: 0}", ["a=1", "b=2", "c=3", ""],
         {"sampler": "random", "trials": "9", "halving": "0"}),
        ("{over: {a: [1], b: [2], c: [3], d: [4]}}", ["a=1", "b=2", "c=3", "d=4", ""], {}),
        ("{metric: val_accuracy, parallel: 3}", [AROUND, "", ""], {"metric": "val_accuracy", "parallel": "3"}),
    ],
)  # fmt: skip
def test_the_block_of_a_preset_fills_the_dialog_which_has_always_room_for_one_more_option(
    tmp_path: Path, block: str, over: list[str], others: dict[str, str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"extends: quickstart\nsweep: {block}\n")
    texts = SweepTexts.first(presets.resolve(str(file)))
    assert (texts.over, texts.others) == (over, OTHERS | others)


def test_a_wrong_block_names_the_preset_and_the_entry(tmp_path: Path) -> None:
    opened = replace(presets.resolve("quickstart"), sweep={"seeds": 0})
    with pytest.raises(ProofError) as wrong:
        SweepTexts.first(opened)
    assert str(wrong.value) == "quickstart: sweep.seeds: 0 does not fit: give a whole number from 1 to 100"


@pytest.mark.parametrize(
    ("over", "others", "read"),
    [
        ([" learning_rate=1e-3,3e-3 ", " "], {}, {"over": ["learning_rate=1e-3,3e-3"]}),
        (["", "epochs=1,2"], {"metric": " "}, {"over": ["epochs=1,2"]}),
        (["epochs=1,2"], {"sampler": "tpe", "trials": " 7 ", "halving": "0", "parallel": "2", "metric": "loss"},
         {"over": ["epochs=1,2"], "sampler": "tpe", "most_trials": 7, "halve_from": 0, "parallel": 2,
          "metric": "loss"}),
        ([], {"proof_seeds": "0", "finalists": "3"}, {"over": [], "proof_seeds": 0, "finalists": 3}),
    ],
)  # fmt: skip
def test_the_texts_of_a_sweep_are_read_and_empty_ones_mean_the_defaults(
    over: list[str], others: dict[str, str], read: dict[str, Any]
) -> None:
    assert SweepTexts(presets.resolve("quickstart"), over, OTHERS | others).parameters() == READ | read


@pytest.mark.parametrize(
    ("over", "others", "name", "message"),
    [
        (["epochs=1,2", "x"], {}, "over1", "--over x: write OPTION=VALUE,VALUE or OPTION=LOW..HIGH"),
        (["y", "x"], {}, "over0", "--over y: write OPTION=VALUE,VALUE or OPTION=LOW..HIGH"),
        (["x"], {"seeds": "0"}, "seeds", "seeds: 0 does not fit: give a whole number from 1 to 100"),
        ([], {"minutes": " x "}, "minutes", "minutes: x does not fit: give a number from 0.01 to 10,000,000"),
    ],
)
def test_the_first_wrong_text_of_a_sweep_is_named(
    over: list[str], others: dict[str, str], name: str, message: str
) -> None:
    with pytest.raises(WrongLimit) as wrong:
        SweepTexts(presets.resolve("quickstart"), over, OTHERS | others).parameters()
    assert (wrong.value.name, str(wrong.value)) == (name, message)
