"""Options: their values, names and ranges."""

from __future__ import annotations

import itertools
import json
from dataclasses import FrozenInstanceError, asdict
from typing import Any

import pytest

from tests.doors.engine import OPTIONS, Options, gpu_choice, keys_of, option_meant, presets, validated
from tests.support.cases import all_hold
from tests.support.training import options


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


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "1.0e-3", "0.001", ".001", "1e-03", "+1e-3"])
def test_numbers_may_be_written_with_an_exponent(text: str) -> None:
    assert presets.defaults([f"learning_rate={text}"]).options.train.learning_rate == 0.001


def test_options_cannot_be_changed_once_resolved() -> None:
    with pytest.raises(FrozenInstanceError):
        Options().input.batch_size = 3  # type: ignore[misc]


# ---- What follows from the values of options -----------------------------------------------------


GB = 1024**3


def value(path: str, *settings: str) -> Any:
    found: Any = options(*settings)
    for name in path.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize(
    ("path", "settings", "expected"),
    [
        ("input.device_batches", "", 2), ("input.device_batches", "prefetch=off", 0),
        ("input.device_batches", "prefetch=off prefetch_to_device=3", 3),
        ("input.device_batches", "prefetch_to_device=off", 0), ("input.augmentations", "", ()),
        ("input.augmentations", "augment=light", ("flip", "shift")),
        ("input.augmentations", "augment=blur,flip", ("flip", "blur")),
        ("input.only_moves", "augment=flip,blur", False), ("device.divided", "", []), ("device.grows", "", True),
        ("device.grows", "logical_devices=2", False), ("device.grows", "memory_growth=false", False),
        ("workload.normalization_of_model", "model=cnn normalization=layer", "layer"),
        ("workload.normalization_of_model", "model=resnet50", "batch"),
        ("workload.normalization_of_model", "model=mlp", "none"), ("workload.first_stride", "model=resnet50", 2),
        ("workload.is_separable", "model=cnn", False), ("workload.is_separable", "model=separable_cnn", True),
        ("workload.is_separable", "model=separable_cnn separable=false", False),
        ("workload.is_separable", "model=cnn separable=true", True),
        ("workload.source", "data=npz:/a:b.npz", ("npz", "/a:b.npz")), ("train.validates", "", True),
        ("train.validates", "validation_split=0", False),
        ("train.validates", "validation_split=0 validation=test", True), ("train.stops_by", "", None),
        ("train.reduces_rate_by", "plateau_figure=loss", None), ("run.keeps_best_by", "", None),
        ("run.follow", "follow=mlflow,tensorboard,mlflow", ["mlflow", "tensorboard"]),
        ("run.follow", "follow=mlflow,", ["mlflow"]), ("train.optimizer_arguments", "", {}),
        ("train.optimizer_arguments", "weight_decay=0.1 gradient_accumulation=3 global_clip_norm=2 clip_value=3",
         {"weight_decay": ("weight_decay", 0.1), "gradient_accumulation_steps": ("gradient_accumulation", 3),
          "global_clipnorm": ("global_clip_norm", 2.0), "clipvalue": ("clip_value", 3.0)}),
        ("bytes_to_device", "", False), ("bytes_to_device", "cast=device augment=light", True),
        ("bytes_to_device", "cast=device augment=blur", False),
        ("bytes_to_device", "cast=device model=transformer", False),
    ],
)  # fmt: skip
def test_a_value_that_follows_from_others(path: str, settings: str, expected: Any) -> None:
    assert value(path, *settings.split()) == expected


# ---- a choice of GPUs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "total", "fits"),
    [
        ("free:1", None, None, True),
        ("free:1@a100", "NVIDIA A100-SXM4", None, True),
        ("free:1@A100", "NVIDIA H100", 80 * GB, False),
        ("free:1@A100", None, 80 * GB, False),
        ("free:1@100GB", "A", 90 * GB, True),  # a tenth may be missing
        ("free:1@100GB", "A", 90 * GB - 1, False),
        ("free:1@100GB", "A", None, False),
        ("free:1@100GB@A", "B", 100 * GB, False),
    ],
)
def test_a_gpu_is_of_the_kind_of_a_choice(text: str, name: str | None, total: int | None, fits: bool) -> None:
    choice = gpu_choice.parse(text)
    assert choice is not None
    assert choice.allows(name, total) is fits


# ---- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "keys"),
    [
        ("lr", ("train.learning_rate",)), ("train.lr", ("train.learning_rate",)),
        ("num-workers", keys_of("num_workers")), ("out of memory", keys_of("oom")), ("batch_size", ()),
        ("clip", ("train.global_clip_norm", "train.clip_norm", "train.clip_value")),
    ],
)  # fmt: skip
def test_another_name_leads_to_its_options(word: str, keys: tuple[str, ...]) -> None:
    assert keys_of(word) == keys


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("lr", ", did you mean train.learning_rate?"),
        ("clip", ", did you mean train.global_clip_norm, train.clip_norm or train.clip_value?"),
        ("reproducible", ", did you mean train.deterministic or train.seed?"),
        ("input.epochs", ", did you mean train.epochs?"),
        ("epoch", ", did you mean epochs?"),
        ("qqqqqq", "; gputui options lists them all"),
    ],
)
def test_an_unknown_name_is_answered_with_all_that_it_may_mean(word: str, words: str) -> None:
    assert option_meant(word, OPTIONS) == words
