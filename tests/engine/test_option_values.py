"""What follows from the values of options: the figures, words and sizes that all parts of gputui derive from them."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.options import gpu_choice, options_json
from gputui.engine.options.gpu_choice import GpuChoice
from gputui.engine.options.groups import OPTIONS, is_private
from gputui.engine.options.own_code import BATCHED, OWN_BATCHES, UNREAD, Handed, obstacle, remedy
from gputui.engine.options.synonyms import argument_of, keys_of, option_meant
from gputui.engine.options.watched_figure import WatchedFigure
from gputui.engine.presets import PresetError

from tests.support.training import options

GB = 1024**3


def value(path: str, *settings: str) -> Any:
    found: Any = options(*settings)
    for name in path.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize(
    ("path", "settings", "expected"),
    [
        ("input.device_batches", "", 2),
        ("input.device_batches", "prefetch=off", 0),
        ("input.device_batches", "prefetch=off prefetch_to_device=3", 3),
        ("input.device_batches", "prefetch_to_device=off", 0),
        ("input.augmentations", "", ()),
        ("input.augmentations", "augment=light", ("flip", "shift")),
        ("input.augmentations", "augment=blur,flip", ("flip", "blur")),
        ("input.only_moves", "augment=shift,flip", True),
        ("input.only_moves", "augment=flip,blur", False),
        ("input.only_moves", "", True),
        ("device.divided", "", []),
        ("device.divided", "memory_limit_mb=64 logical_devices=2",
         ["device.memory_limit_mb", "device.logical_devices"]),
        ("device.divided", "logical_devices=1", []),
        ("device.grows", "", True),
        ("device.grows", "logical_devices=2", False),
        ("device.grows", "logical_devices=2 memory_growth=true", True),
        ("device.grows", "memory_growth=false", False),
        ("workload.normalization_of_model", "model=cnn normalization=layer", "layer"),
        ("workload.normalization_of_model", "model=resnet50", "batch"),
        ("workload.normalization_of_model", "model=transformer", "layer"),
        ("workload.normalization_of_model", "model=mlp", "none"),
        ("workload.first_stride", "model=cnn", 1),
        ("workload.first_stride", "model=resnet50", 2),
        ("workload.first_stride", "model=cnn stride=3", 3),
        ("workload.is_separable", "model=cnn", False),
        ("workload.is_separable", "model=separable_cnn", True),
        ("workload.is_separable", "model=separable_cnn separable=false", False),
        ("workload.is_separable", "model=cnn separable=true", True),
        ("workload.source", "data=npz:/a:b.npz", ("npz", "/a:b.npz")),
        ("workload.data", "data=npz:/a.npz", "npz:/a.npz"),
        ("train.validates", "", True),
        ("train.validates", "validation_split=0", False),
        ("train.validates", "validation_split=0 validation=test", True),
        ("train.stops_by", "", None),
        ("train.stops_by", "early_stop=val_f1:max", WatchedFigure("val_f1", "max")),
        ("train.stops_by", "early_stop=loss", WatchedFigure("loss", "auto")),
        ("train.reduces_rate_by", "plateau_figure=loss", None),
        ("train.reduces_rate_by", "plateau_figure=loss:min schedule=reduce_on_plateau", WatchedFigure("loss", "min")),
        ("run.keeps_best_by", "", None),
        ("run.keeps_best_by", "keep_best=val_loss", WatchedFigure("val_loss", "auto")),
        ("run.profile_steps", "profile=7-7", (7, 7)),
        ("run.follow", "follow=mlflow,tensorboard,mlflow", ["mlflow", "tensorboard"]),
        ("run.follow", "follow=mlflow,", ["mlflow"]),
        ("train.optimizer_arguments", "", {}),
        ("train.optimizer_arguments", "optimizer=sgd momentum=0.9 nesterov=true clip_norm=1 learning_rate=0.5",
         {"momentum": ("momentum", 0.9), "nesterov": ("nesterov", True), "clipnorm": ("clip_norm", 1.0)}),
        ("train.optimizer_arguments", "weight_decay=0.1 gradient_accumulation=3 global_clip_norm=2 clip_value=3",
         {"weight_decay": ("weight_decay", 0.1), "gradient_accumulation_steps": ("gradient_accumulation", 3),
          "global_clipnorm": ("global_clip_norm", 2.0), "clipvalue": ("clip_value", 3.0)}),
        ("bytes_to_device", "", False),
        ("bytes_to_device", "cast=device", True),
        ("bytes_to_device", "cast=device augment=light", True),
        ("bytes_to_device", "cast=device augment=blur", False),
        ("bytes_to_device", "cast=device model=transformer", False),
    ],
)  # fmt: skip
def test_a_value_that_follows_from_others(path: str, settings: str, expected: Any) -> None:
    assert value(path, *settings.split()) == expected


@pytest.mark.parametrize(
    ("setting", "is_taken"),
    [
        ("profile=1-1", True), ("profile=0-5", False), ("profile=5-4", False), ("profile=5", False),
        ("augment=flip,flip", False), ("augment=flip,sharpen", False), ("early_stop=a b", False),
        ("early_stop=loss:up", False), ("keep_best=" + "x" * 200, True), ("keep_best=" + "x" * 201, False),
        ("url=ftp://a", False), ("url=$PLACE", True), ("url=http://a", True), ("url=https://a", True), ("url=a", False),
        ("notify.command=", True), ("xla_flags=--xla_a=1 --xla_b=2", True), ("xla_flags=--a=1", False),
        ("xla_flags=xla_a", False), ("xla_flags=--xla_a-b", False), ("xla_flags=--xla_a=1,x --xla_A", False),
        ("visible=true", False), ("visible=[true]", False), ("visible=-1", False), ("visible=1024", False),
        ("visible=0,1023,MIG-a/1-b", True), ("visible=GPU-a b", False), ("devices=-1", False), ("devices=GPU-a", False),
        ("devices=1023", True), ("prefetch=true", False), ("prefetch=false", True), ("shuffle=on", False),
        ('cache="a\\tb"', False), ('cache="a\\nb"', False), ('cache="a\\u001fb"', False), ('cache="a b"', True),
        ("data=npz:", False), ("data=digits:x", False), ("data=other", False),
        ("entry=train.py", False), ("entry=train.py:1a", False), ("entry=a.b:c", True), ("entry=./a b/c.py:d", True),
        ("visible=free:0", False), ("visible=free:999", True), ("visible=free:1000", False),
        ("visible=fits:1@24GB", True),
        ("visible=free:1@24GB@T4", True), ("visible=free:1@T4@24GB", False), ("visible=free:1@24gb", False),
        ("visible=free:1@24 GB", False), ("visible=free:1@99999GB", False), ("visible=free:1@-a", False),
    ],
)  # fmt: skip
def test_a_value_beyond_its_form_is_refused(setting: str, is_taken: bool) -> None:
    with nullcontext() if is_taken else pytest.raises(PresetError, match="does not fit: "):
        presets.defaults([setting])


# ---- a choice of GPUs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "choice", "kind"),
    [
        ("free:1", GpuChoice(1), "a GPU"),
        ("free:2", GpuChoice(2), "2 GPUs"),
        ("fits:1", GpuChoice(1, True), "a GPU"),
        ("free:2@24GB", GpuChoice(2, False, 24 * GB), "2 GPUs with 24 GB"),
        ("fits:1@A100", GpuChoice(1, True, 0, "A100"), "a GPU of the kind A100"),
        ("free:3@40GB@A100-SXM 4", GpuChoice(3, False, 40 * GB, "A100-SXM 4"),
         "3 GPUs of the kind A100-SXM 4 with 40 GB"),
    ],
)  # fmt: skip
def test_a_choice_of_gpus_is_read_and_written_and_said(text: str, choice: GpuChoice, kind: str) -> None:
    assert gpu_choice.parse(text) == choice
    assert (str(choice), choice.kind) == (text, kind)


@pytest.mark.parametrize("text", ["all", "none", "free", "free:", "free:0", "fit:1", [0], None, "free:1 "])
def test_other_values_of_device_visible_are_no_choice(text: object) -> None:
    assert gpu_choice.parse(text) is None


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
        ("lr", ("train.learning_rate",)), (" --LR ", ("train.learning_rate",)), ("train.lr", ("train.learning_rate",)),
        ("num-workers", keys_of("num_workers")), ("out of memory", keys_of("oom")), ("batch_size", ()), ("", ()),
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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("args.lr", ("lr",)), ("workload.args.head.units", ("head", "units")), ("args", ()), ("workload.args", ()),
        ("args..a", ()), ("args.", ()), ("argsx.a", ()), ("train.args.a", ()),
    ],
)  # fmt: skip
def test_an_argument_of_own_code_is_named_below_args(text: str, names: tuple[str, ...]) -> None:
    assert argument_of(text) == names


def test_private_options_are_left_out_of_what_the_trainer_gets() -> None:
    given = options("notify.command=mail", "epochs=9")
    text = options_json.to_json(given)
    assert "notify" not in json.loads(text)
    read = options_json.from_json(text)
    assert (read.train, read.input, read.notify.command) == (given.train, given.input, None)
    assert [is_private(key) for key in ("notify.url", "run.notify", "train.epochs")] == [True, False, False]


# ---- a user's own code ----------------------------------------------------------------------------

SINGLE = "the PyDataset loads one batch at a time; give it workers if threads may load several at once"
FETCHES = "your Dataset has a prefetch of its own, which stays"
HOSTED = "text, ragged and sparse tensors cannot be copied to a GPU in advance"
NO_IMAGES = "x is not one batch of float32 images"
GIVEN = "your code hands over its validation data"
SPLIT = "only arrays are split"
CHOSEN = "your code has chosen the optimizer"
PLAIN: dict[str, Any] = {"own_optimizer": False, "images": True, "validation": False}
# condition -> the reasons for arrays, mapped, batched and pydataset
REASONS = {
    "applies": ("", "", "", ""),
    "replaced": ("", "", "", ""),
    "unread": (UNREAD,) * 4,
    "pipeline": ("", "", BATCHED, OWN_BATCHES),
    "order": ("", "", BATCHED, ""),
    "workers": ("", "", BATCHED, SINGLE),
    "prefetch": ("", "", "", ""),
    "device": ("", "", "", ""),
    "images": ("", "", BATCHED, OWN_BATCHES),
    "arrays": ("", SPLIT, SPLIT, SPLIT),
    "uncompiled": ("", "", "", ""),
}


@pytest.mark.parametrize("own", REASONS)
def test_why_an_option_does_not_apply_to_what_own_code_returns(own: str) -> None:
    for data, why in zip(("arrays", "mapped", "batched", "pydataset"), REASONS[own], strict=True):
        assert obstacle(own, Handed(data, **PLAIN)) == why, data  # type: ignore[arg-type]
        changes: tuple[tuple[dict[str, Any], str, str], ...] = (
            ({"workers": 2}, "workers", "" if data == "pydataset" else why),
            ({"prefetches": True}, "prefetch", FETCHES),
            ({"hosted": True}, "device", HOSTED),
            ({"images": False}, "images", NO_IMAGES if data in ("arrays", "mapped") else why),
            ({"validation": True}, "arrays", GIVEN),
            ({"own_optimizer": True}, "uncompiled", CHOSEN),
        )
        for change, concerned, reason in changes:
            handed = Handed(data, **PLAIN | change)  # type: ignore[arg-type]
            assert obstacle(own, handed) == (reason if own == concerned else why), (data, change)


@pytest.mark.parametrize(
    ("key", "why", "change"),
    [
        (
            "input.batch_size",
            BATCHED,
            "use context.global_batch_size in your code, or return single samples with `map`",
        ),
        ("input.batch_size", OWN_BATCHES, "use context.global_batch_size in your code"),
        ("input.cache", BATCHED, "return single samples with `map`"),
        ("input.cache", OWN_BATCHES, ""),
        ("input.batch_size", UNREAD, ""),
    ],
)
def test_what_to_change_in_own_code_so_that_an_option_applies(key: str, why: str, change: str) -> None:
    assert remedy(key, why) == change
