"""The declaration of the options, and what is derived from it."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import FrozenInstanceError, asdict
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.options import GROUPS, OPTIONS, Options, by_key, resolve_key
from gputui.engine.options.validation import MisfitsError, model, validated

from tests.support.cases import all_hold


def changed(*settings: str) -> dict[str, Any]:
    return presets.defaults(settings).changed()


def test_every_field_of_every_group_is_in_the_catalogue_once_in_its_order() -> None:
    keys = [
        f"{group}.{name}"
        for group, declared in model().model_fields.items()
        for name in declared.annotation.model_fields  # type: ignore[union-attr]
    ]
    assert [info.key for info in OPTIONS] == keys
    assert len(set(keys)) == len(keys) > 45


def test_every_option_says_what_it_is_and_what_it_takes() -> None:
    for info in OPTIONS:
        assert 10 < len(info.about.help) < 250, info.key
        assert info.accepts, info.key
        for text in (info.about.help, info.about.helps, info.about.hurts, info.about.call, info.about.unit):
            assert "\n" not in text, info.key
            assert text == text.strip(), info.key
            assert not text.endswith("."), info.key


def test_every_default_is_valid_and_survives_being_written_out() -> None:
    dumped = json.loads(json.dumps(asdict(Options())))
    read = validated(dumped)
    for info in OPTIONS:
        assert dumped[info.group][info.name] == info.default, info.key
        assert getattr(getattr(read, info.group), info.name) == info.default, info.key


def test_a_signal_is_also_taken_as_slurm_names_it() -> None:
    for given, signal in (("USR1", "SIGUSR1"), ("USR2", "SIGUSR2"), ("SIGUSR1", "SIGUSR1"), ("none", "none")):
        assert presets.defaults([f"stop_signal={given}"]).options.run.stop_signal == signal
    with pytest.raises(presets.PresetError, match="give none, SIGUSR1 or SIGUSR2"):
        presets.defaults(["stop_signal=TERM"])


def test_every_word_an_option_takes_is_told_and_valid() -> None:
    with all_hold() as cases:
        for info in OPTIONS:
            for word in info.choices:
                with cases.case(f"{info.key}={word}"):
                    assert word in info.accepts
                    value = presets.defaults([f"{info.key}={word}"]).options
                    assert getattr(getattr(value, info.group), info.name) == word


def test_the_catalogue_knows_types_from_the_annotations() -> None:
    known = by_key(OPTIONS)
    assert known["compile.xla"].is_bool
    assert not known["compile.xla"].is_number
    assert known["input.batch_size"].is_number
    assert known["input.prefetch"].choices == ("off", "auto")
    assert known["input.prefetch"].accepts == "off, auto or a whole number from 1 to 1,024"
    assert known["train.learning_rate"].accepts == "a number above 0.0 to 1,000.0"
    assert known["train.clip_norm"].accepts == "a number above 0.0 to 1,000,000,000.0 or null"
    keys = ("precision.policy", "input.prefetch", "compile.xla", "train.epochs")
    assert [known[key].only_choices for key in keys] == [True, False, False, False]
    assert known["compile.xla"].fixed_values == ("auto", "true", "false")
    assert known["train.deterministic"].fixed_values == ()
    assert known["input.prefetch"].fixed_values == ("off", "auto")
    assert known["train.plateau_patience"].about.part == known["train.plateau_figure"].about.part != ""
    for key, learning in (
        ("workload.width", "another model or other data is learnt"), ("device.visible", ""),
        ("input.batch_size", "the batch size changes what is learnt at the same learning rate"),
    ):  # fmt: skip
        assert known[key].about.learning == learning
    assert known["device.memory_growth"].about.gpu_only
    assert not known["input.prefetch"].about.gpu_only


def test_what_each_option_declares_besides_the_tables_of_the_documents(snapshot: Any) -> None:
    lines = []
    for info in OPTIONS:
        about = info.about
        kinds = {"bool": info.is_bool, "number": info.is_number, "only words": info.only_choices}
        parts = {
            "words": info.choices, "takes": tuple(kind for kind, holds in kinds.items() if holds), "own": about.own,
            "part": about.part, "examples": about.examples, "learning": about.learning, "unit": about.unit,
            "not exported": about.not_exported, "other names": about.other_names, "not offered": about.not_offered,
        }  # fmt: skip
        lines += [info.key, *(f"    {name}: {part}" for name, part in parts.items() if part)]
    lines += [f"{name} is private" for name, group in GROUPS.items() if group.private]
    assert "\n".join(lines) == snapshot


def test_options_share_no_list_or_mapping_of_their_defaults() -> None:
    first, second = Options(), Options()
    kept = [
        (info.key, *(getattr(getattr(options, info.group), info.name) for options in (first, second)))
        for info in OPTIONS
    ]
    mutable = [key for key, one, _ in kept if isinstance(one, list | dict)]
    assert {"workload.shape", "workload.args", "run.follow"} >= set(mutable) >= {"workload.shape", "workload.args"}
    assert [key for key, one, other in kept if key in mutable and one is other] == []


def test_a_range_that_is_told_is_the_range_that_holds() -> None:
    for info in OPTIONS:
        for side, beyond in (("from", -1), ("to", 1)):
            for text in re.findall(rf"{side} (-?[\d.,]*\d)", info.accepts):
                limit = float(text.replace(",", ""))
                step = 1 if "whole" in info.accepts else abs(limit) * 0.01 or 0.01
                outside = limit + beyond * step
                number = int(outside) if "whole" in info.accepts else outside
                with pytest.raises(presets.PresetError):
                    presets.defaults([f"{info.key}={number}"])


def test_the_json_schema_tells_types_ranges_and_help() -> None:
    schema = json.loads(json.dumps(model().model_json_schema()))
    assert set(schema["properties"]) == set(GROUPS)
    batch = schema["$defs"]["Input"]["properties"]["batch_size"]
    assert batch["type"] == "integer"
    assert batch["minimum"] == 1
    assert batch["default"] == 64
    assert "samples" in batch["description"]
    assert schema["$defs"]["Input"]["additionalProperties"] is False
    described = [p for group in schema["$defs"].values() for p in group["properties"].values()]
    assert len(described) == len(OPTIONS)
    assert all(p["description"] for p in described)


def test_short_names_stand_for_their_option_and_are_all_unique() -> None:
    for info in OPTIONS:
        assert resolve_key(info.name, OPTIONS) == info.key
        assert resolve_key(info.key, OPTIONS) == info.key


@pytest.mark.parametrize(
    ("text", "near"),
    [("batchsize", "batch_size"), ("input.batchsize", "input.batch_size"), ("lerning_rate", "learning_rate"),
     ("memory_grow", "memory_growth"), ("qqqqqqq", None)],
)  # fmt: skip
def test_an_unknown_name_gets_the_nearest_one(text: str, near: str | None) -> None:
    with pytest.raises(KeyError) as raised:
        resolve_key(text, OPTIONS)
    told = raised.value.args[0]
    assert told.startswith("unknown option")
    if near is None:
        assert told == "unknown option; gputui options lists them all"
    else:
        assert told.endswith(f"did you mean {near}?")


OFF = [info.key for info in OPTIONS if "off" in info.choices] + ["input.cache", "run.profile"]


def test_off_may_be_written_as_yaml_people_write_it() -> None:
    with all_hold() as cases:
        for key, spelling in itertools.product(OFF, ("off", "Off", "OFF", "'off'", '"off"', "no", "false", "False")):
            with cases.case(f"{key}={spelling}"):
                group, name = key.split(".")
                assert getattr(getattr(presets.defaults([f"{key}={spelling}"]).options, group), name) == "off"


@pytest.mark.parametrize("words", ["on off", "yes no", "true false", "On Off", "TRUE FALSE"])
def test_switches_take_each_yaml_boolean(words: str) -> None:
    yes, no = words.split()
    options = presets.defaults([f"xla={yes}", f"memory_growth={no}"]).options
    assert options.compile.xla is True
    assert options.device.memory_growth is False


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "1.0e-3", "0.001", ".001", "1e-03", "+1e-3"])
def test_numbers_may_be_written_with_an_exponent(text: str) -> None:
    assert presets.defaults([f"learning_rate={text}"]).options.train.learning_rate == 0.001


def test_a_whole_number_is_fine_where_a_fraction_is_taken_and_not_the_other_way_round() -> None:
    assert presets.defaults(["width=2"]).options.workload.width == 2
    with pytest.raises(presets.PresetError):
        presets.defaults(["batch_size=64.0"])


@pytest.mark.parametrize(("code", "taken"), [(0, False), (9, False), (31, False), (32, True)])
def test_control_characters_are_refused_in_texts(code: int, taken: bool) -> None:
    given = {"workload": {"tfrecord_input": f"a{chr(code)}b"}}
    if taken:
        assert validated(given).workload.tfrecord_input == "a b"
    else:
        with pytest.raises(MisfitsError, match=r"workload\.tfrecord_input"):
            validated(given)


def test_options_cannot_be_changed_once_resolved() -> None:
    with pytest.raises(FrozenInstanceError):
        Options().input.batch_size = 3  # type: ignore[misc]


def test_only_what_differs_from_the_defaults_is_told_as_changed() -> None:
    assert changed("batch_size=64", "epochs=9", "cache=off") == {"train.epochs": 9}


@pytest.mark.parametrize(
    ("data", "source"),
    [("digits", ("digits", "")), ("npz:/a/b.npz", ("npz", "/a/b.npz")), ("images:/C:/x", ("images", "/C:/x")),
     ("tfrecord:/d/*.tfrecord", ("tfrecord", "/d/*.tfrecord"))],
)  # fmt: skip
def test_a_data_source_is_a_kind_and_a_place(data: str, source: tuple[str, str]) -> None:
    assert presets.defaults([f"data={data}"]).options.workload.source == source


def test_a_profile_is_a_range_of_steps() -> None:
    assert presets.defaults(["profile=5-8"]).options.run.profile_steps == (5, 8)
    assert presets.defaults([]).options.run.profile_steps is None
