"""Options: their values, names and ranges."""

from __future__ import annotations

import itertools
import json
from dataclasses import FrozenInstanceError, asdict

import pytest

from tests.doors.engine import OPTIONS, Options, presets, validated
from tests.support.cases import all_hold


def test_every_default_is_valid_and_survives_being_written_out() -> None:
    dumped = json.loads(json.dumps(asdict(Options())))
    read = validated(dumped)
    for info in OPTIONS:
        assert dumped[info.group][info.name] == info.default, info.key
        assert getattr(getattr(read, info.group), info.name) == info.default, info.key


OFF = [info.key for info in OPTIONS if "off" in info.choices] + ["input.cache", "run.profile"]


def test_off_may_be_written_as_yaml_people_write_it() -> None:
    with all_hold() as cases:
        for key, spelling in itertools.product(OFF, ("off", "Off", "OFF", "'off'", '"off"', "no", "false", "False")):
            with cases.case(f"{key}={spelling}"):
                group, name = key.split(".")
                assert getattr(getattr(presets.defaults([f"{key}={spelling}"]).options, group), name) == "off"


def test_options_cannot_be_changed_once_resolved() -> None:
    with pytest.raises(FrozenInstanceError):
        Options().input.batch_size = 3  # type: ignore[misc]
