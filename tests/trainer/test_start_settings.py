"""What is set before TensorFlow starts: variables of the environment, XLA's cache, the log; and the models."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import keras
import pytest
from gputui.engine.files import places
from gputui.engine.interpreter import installed
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.trainer.common import versions
from gputui.engine.trainer.setup import (
    actual_settings,
    environment,
    gpu_identity,
    machine_query,
    models,
    optimizer,
    xla,
    xla_cache,
)
from gputui.engine.trainer.setup.environment import Prepared
from gputui.engine.trainer.setup.gpu_identity import Created, LibraryLog
from gputui.engine.trainer.setup.xla_cache import XlaCache
from keras import layers

from tests.support.environments import as_launched as as_launched
from tests.support.training import options

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # in Keras
GIB = 1024**3


# ---- variables ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "settings", "told"),
    [
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, ("memory_growth=false",),
         "TF_FORCE_GPU_ALLOW_GROWTH=true does nothing here: device.memory_growth is false"),
        ({"TF_PER_DEVICE_MEMORY_LIMIT_MB": "99"}, (),
         "TF_PER_DEVICE_MEMORY_LIMIT_MB=99 does nothing here: device.memory_limit_mb is not set"),
        ({"CUDA_DEVICE_ORDER": "X"}, (),
         "CUDA_DEVICE_ORDER=X does nothing here: device.visible counts GPUs in PCI order, as the driver does"),
        ({"TF_GPU_THREAD_MODE": "gpu_private"}, (),
         "TF_GPU_THREAD_MODE=gpu_private does nothing here: device.gpu_thread_mode is global"),
        ({"TF_NUM_INTEROP_THREADS": " 4 "}, ("inter_op_threads=3",),
         "TF_NUM_INTEROP_THREADS= 4  does nothing here: device.inter_op_threads is 3"),
        ({"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_auto_jit_x=0 --a"}, (),
         "--tf_xla_auto_jit=2 --tf_xla_auto_jit_x=0 in TF_XLA_FLAGS does nothing here: "
         "XLA compiles as compile.xla says"),
        ({"XLA_FLAGS": "--xla_a=1 --xla_b=2 --c"}, ("xla_flags=--xla_b=3 --xla_a=1",),
         "--xla_b=2 in XLA_FLAGS does nothing here: compile.xla_flags has the same flag"),
        ({"XLA_FLAGS": "flags.txt"}, ("xla_flags=--xla_b=3",),
         "compile.xla_flags does nothing here: XLA_FLAGS names a file, from which alone XLA reads"),
    ],
)  # fmt: skip
def test_a_variable_that_an_option_overrides_is_named_with_both_values(
    given: dict[str, str], settings: tuple[str, ...], told: str
) -> None:
    os.environ.update(given)
    found = environment.prepare(options("xla_cache=false", *settings))
    assert [text for _, text in found.overridden] == [told]


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"TF_NUM_INTEROP_THREADS": "0", "TF_NUM_INTRAOP_THREADS": "", "TF_PER_DEVICE_MEMORY_LIMIT_MB": "0"}, ()),
        ({"TF_XLA_FLAGS": "--tf_xla_auto_jit=0"}, ()),
        ({"TF_NUM_INTEROP_THREADS": " 3 "}, ("inter_op_threads=3",)),
        ({"TF_DETERMINISTIC_OPS": "0", "NVIDIA_TF32_OVERRIDE": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "1"}, ()),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "TF_GPU_THREAD_MODE": "global"}, ()),
        ({"XLA_FLAGS": "--xla_a=1"}, ("xla_flags=--xla_a=1",)),
    ],
)
def test_a_variable_that_says_what_the_options_say_is_not_told(
    given: dict[str, str], settings: tuple[str, ...]
) -> None:
    os.environ.update(given)
    assert environment.prepare(options("xla_cache=false", *settings)).overridden == ()


def test_kernels_are_kept_in_four_gib_unless_the_caller_says_otherwise_and_what_is_prepared_is_told() -> None:
    found = environment.prepare(options("xla_cache=false"))
    assert os.environ["CUDA_CACHE_MAXSIZE"] == str(4 * GIB)
    assert found.actual() == {
        "environment": {}, "numa": found.numa, "xla_cache": "compile.xla_cache is false",
    }  # fmt: skip
    os.environ["CUDA_CACHE_MAXSIZE"] = "5"
    found = environment.prepare(options("xla_cache=false"))
    assert os.environ["CUDA_CACHE_MAXSIZE"] == "5"
    assert found.environment == {"CUDA_CACHE_MAXSIZE": "5"}
    assert Prepared({"A": "b"}, (), "on CPUs 1", XlaCache(Path("/x"))).actual() == {
        "environment": {"A": "b"}, "numa": "on CPUs 1", "xla_cache": "/x",
    }  # fmt: skip


def test_what_is_overridden_is_warned_of_once_for_each_option_and_only_where_it_concerns_the_training() -> None:
    said: list[tuple[str, ...]] = []
    report: Any = SimpleNamespace(warn=lambda *words: said.append(words))
    overridden = (
        ("train.deterministic", "A does nothing"), ("device.allocator", "B does nothing"),
        ("train.deterministic", "C does nothing"),
    )  # fmt: skip
    given = {"TF_ENABLE_ONEDNN_OPTS": "0", "NCCL_P2P_DISABLE": "1"}
    made = Prepared(given, overridden, "", XlaCache(reason="the disk is full", warns=True))
    why = {
        key: ("environment", text, f"unset the variable, or set {key}", key)
        for key, text in (
            ("train.deterministic", "A does nothing; C does nothing"), ("device.allocator", "B does nothing"),
        )
    }  # fmt: skip
    key = "compile.xla_cache"
    cache = ("environment", f"{key} does nothing here: the disk is full", f"set {key}=false", key)
    of_gpus = [why["train.deterministic"], why["device.allocator"], cache]
    for kind, devices, expected, harmful in (
        ("GPU", 2, of_gpus, ["NCCL_P2P_DISABLE"]), ("GPU", 1, of_gpus, []),
        ("CPU", 1, [why["train.deterministic"], cache], ["TF_ENABLE_ONEDNN_OPTS"]),
    ):  # fmt: skip
        said.clear()
        made.warn(report, kind, devices)
        assert said[: len(expected)] == expected, (kind, devices)
        assert [(words[0], words[3]) for words in said[len(expected) :]] == [("environment", name) for name in harmful]
    said.clear()
    environment.NOTHING.warn(report, "GPU", 1)
    assert said == []


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        ("", ["--b"], "--b"), ("--a  --c", ["--b", "--d"], "--a --c --b --d"), ("--a", [], "--a"),
        ("x.txt", ["--b"], None),
    ],
)  # fmt: skip
def test_flags_are_added_after_those_that_are_set(before: str, added: list[str], after: str | None) -> None:
    os.environ["XLA_FLAGS"] = before
    assert xla_cache.add("XLA_FLAGS", added) is (after is not None)
    assert os.environ["XLA_FLAGS"] == (before if after is None else after)
    os.environ["XLA_FLAGS"] = "--a --b=1 --b=2"
    assert xla_cache.drop("XLA_FLAGS", lambda flag: flag.startswith("--b")) == ["--b=1", "--b=2"]
    assert os.environ["XLA_FLAGS"] == "--a"
    assert xla_cache.drop("XLA_FLAGS", lambda flag: True) == ["--a"]
    assert "XLA_FLAGS" not in os.environ


def test_whether_xla_compiles_a_users_model_is_decided_by_the_option_else_by_the_model() -> None:
    for settings, compiled, expected in (
        (("xla=true",), False, (True, "compile.xla is true")),
        (("xla=false",), True, (False, "compile.xla is false")),
        ((), False, (False, "jit_compile=False of your compiled model is Keras' choice: no GPU trains")),
        ((), True, (True, "your code has compiled the model with jit_compile=True")),
        (("deterministic=true",), False,
         (False, "jit_compile=False of your compiled model is Keras' choice: train.deterministic is true: "
                 "Keras then compiles nothing")),
    ):  # fmt: skip
        model: Any = SimpleNamespace(jit_compile=compiled)
        found = xla.of_compiled(options(*settings), model)
        assert (found.compiles, found.reason) == expected


# ---- XLA's cache -------------------------------------------------------------------------------


def machine(*names: str | None, missing: str = "") -> Machine:
    gpus = tuple(Gpu(index, f"GPU-{index}", name, (9, 0), GIB) for index, name in enumerate(names))
    return Machine(gpus, "", 1, 1, missing=missing)


@pytest.mark.parametrize(
    ("settings", "box", "reason"),
    [
        (("xla_cache=false",), machine(), "compile.xla_cache is false"),
        (("xla=false",), machine("H100"), "compile.xla is false"),
        ((), machine(missing="no NVML"), "the GPU's name is not known without NVML"),
        ((), machine(), "compile.xla is auto, which compiles nothing on a CPU or under a strategy"),
        (("strategy.kind=mirrored",), machine("H100"),
         "compile.xla is auto, which compiles nothing on a CPU or under a strategy"),
        (("visible=none",), machine("H100"),
         "compile.xla is auto, which compiles nothing on a CPU or under a strategy"),
        (("visible=none", "xla=true"), machine(missing="no NVML"), ""),
        (("xla=true", "strategy.kind=mirrored"), machine("H100"), ""),
        (("entry=/x/train.py:build",), machine(), ""),
        ((), machine("H100"), ""),
    ],
)  # fmt: skip
def test_why_nothing_that_xla_compiles_is_kept(
    settings: tuple[str, ...], box: Machine, reason: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_query, "read", lambda: box)
    found = xla_cache.keep(options(*settings))
    assert (found.reason, found.folder is None, found.warns) == (reason, bool(reason), False)
    if not reason:
        assert found.folder is not None
        assert sorted(path.name for path in found.folder.iterdir()) == ["autotuning", "executables"]
        assert not list(found.folder.glob("*/*"))


def test_the_folder_is_of_the_chips_and_their_libraries(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "tensorflow_version", lambda: "2.21.0")
    monkeypatch.setattr(installed, "cudnn_version", lambda: (9, 8))

    def name(*names: str | None) -> str:
        monkeypatch.setattr(machine_query, "read", lambda: machine(*names))
        folder = xla_cache.keep(options("xla=true")).folder
        assert folder is not None
        return folder.parent.name

    assert name("NVIDIA H100 80GB", "A/100", "NVIDIA H100 80GB") == "tensorflow-2.21.0-A-100-NVIDIA-H100-80GB-cuDNN-9.8"
    assert len(name("x" * 300)) == 150
    monkeypatch.setattr(installed, "cudnn_version", lambda: None)
    assert name("B") == "tensorflow-2.21.0-B-cuDNN-of-the-system"
    info = home / "cpuinfo"
    monkeypatch.setattr(xla_cache, "_CPU_INFO", info)
    monkeypatch.setattr(xla_cache.platform, "machine", lambda: "riscv")  # type: ignore[attr-defined]
    assert name() == "tensorflow-2.21.0-riscv"
    found = set()
    for flags in ("flags : sse avx", "flags : sse", "Features : neon"):
        info.write_text(f"processor : 0\nmodel name : A chip\n{flags}\n")
        found.add(name())
    assert len(found) == 3
    assert all(each.startswith("tensorflow-2.21.0-A-chip-") for each in found)


# ---- the log and the identity of GPUs ----------------------------------------------------------


def test_only_what_a_file_has_got_since_then_is_read_of_the_log(tmp_path: Path) -> None:
    kept = os.dup(2)
    try:
        with (tmp_path / "log").open("wb") as stream:
            os.dup2(stream.fileno(), 2)
            os.write(2, b"before\n")
            log = LibraryLog()
            os.write(2, b"\xffafter\n" + b"x" * (1 << 20))
            text = log.text()
        reader, writer = os.pipe()
        os.dup2(writer, 2)
        into_a_pipe = LibraryLog()
        os.write(2, b"lost")
        assert (into_a_pipe.text(), into_a_pipe.created()) == ("", {})
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    for descriptor in (reader, writer):
        os.close(descriptor)
    assert text.startswith("\ufffdafter\nxxx")
    assert len(text.encode("utf-8", "replace")) == (1 << 20) + 2, "at most 1 MiB"


def test_the_memory_of_a_gpu_is_that_of_its_devices_whose_limit_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    box = replace(machine("A"), gpus=(replace(machine("A").gpus[0], pci_bus_id="0000:01:00.0"),))
    monkeypatch.setattr(gpu_identity, "driver_memory_total_bytes", lambda ordinal: 5 * GIB)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    names = [type("Device", (), {"name": f"/device:GPU:{number}"}) for number in range(2)]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: names)
    created = {f"GPU:{number}": Created(0, "0000:01:00.0") for number in range(2)}
    for limits, expected in (({"/device:GPU:0": 3}, 3), ({"/device:GPU:0": 3, "/device:GPU:1": 0}, 3), ({}, None),
                             ({"/device:GPU:1": 0}, 0)):  # fmt: skip
        monkeypatch.setattr(gpu_identity, "memory_limits", lambda limits=limits: limits)
        (found,), _ = gpu_identity.identify(["/device:GPU:0"], box, created)
        assert (found.memory_limit_bytes, found.memory_total_bytes) == (expected, GIB)
    (found,), _ = gpu_identity.identify(["/device:GPU:0"], Machine((), "", 1, 1), created)
    assert found.memory_total_bytes == 5 * GIB


def test_files_of_autograph_go_into_the_folder_for_them_while_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = versions.autograph_loader
    monkeypatch.setattr(loader, "tempfile", tempfile)
    actual_settings.write_into_run_folder()
    assert loader.tempfile is tempfile, "there is no such folder"
    scratch, other = tmp_path / "scratch", tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    monkeypatch.setenv(places.SCRATCH_VARIABLE, str(scratch))
    actual_settings.write_into_run_folder()

    def folder(**more: Any) -> str:
        with loader.tempfile.NamedTemporaryFile(mode="w", suffix=".py", **more) as file:
            assert file.name.endswith(".py")
            return Path(file.name).parent.name

    assert folder() == "other"
    scratch.mkdir()
    assert (folder(), folder(dir=str(other))) == ("scratch", "other")
    assert loader.tempfile.gettempdir() == str(other), "all else is as before"


def test_functions_of_gputui_are_not_converted_and_those_of_others_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    config = versions.autograph_config
    monkeypatch.setattr(config, "CONVERSION_RULES", (config.Convert("gputui"), config.DoNotConvert("keras")))
    actual_settings.exclude_ours()

    def action(name: str) -> str:
        module = ModuleType(name)
        found = (rule.get_action(module) for rule in config.CONVERSION_RULES)
        return str(next(each.name for each in found if each is not config.Action.NONE)) if name else ""

    for name in ("gputui.engine.trainer.data.batching", "gputui", "keras.src"):
        assert action(name) == "DO_NOT_CONVERT", name
    with pytest.raises(StopIteration):
        action("gputui_of_theirs")


# ---- models and their optimizers ---------------------------------------------------------------


@pytest.mark.parametrize(("width", "heads", "size"), [(0.5, 4, 32), (8.0, 8, 512)])
def test_a_wide_transformer_has_heads_of_64_channels_and_a_narrow_one_has_four(
    width: float, heads: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        keras.initializers.VarianceScaling, "__call__", lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype)
    )
    built = models.build(options("model=transformer", f"width={width}", "blocks=1"), (2, 2, 1), 5)
    attention = [layer for layer in built.layers if isinstance(layer, layers.MultiHeadAttention)]
    assert [(each.num_heads, each.key_dim) for each in attention] == [(heads, size // heads)]
    tokens = built.get_layer("tokens")
    assert (tokens.input_dim, tokens.output_dim, built.get_layer("logits").units) == (256, size, 5)


def test_a_saved_model_has_no_optimizer_and_keeps_its_name(tmp_path: Path) -> None:
    built = models.build(options("model=mlp", "width=0.05"), (4,), 3)
    built.compile(optimizer.build(options("schedule=cosine"), 10, 5), "mse")
    models.save(built, tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert (again.name, again.compiled, getattr(again, "optimizer", None)) == ("mlp", False, None)


def test_a_schedule_has_all_that_the_options_say_of_it() -> None:
    given = ("schedule=step", "learning_rate=0.5", "warmup_steps=3", "hold_steps=4", "decay_steps=5", "decay_rate=0.25")
    made = optimizer.build(options(*given), 100, 10)._learning_rate.get_config()
    assert made == {
        "kind": "step", "learning_rate": 0.5, "warmup_steps": 3, "decay_steps": 5, "decay_rate": 0.25, "hold_steps": 4,
    }  # fmt: skip
    for settings, follows in (((), False), (("warmup_steps=1",), True), (("schedule=cosine",), True),
                              (("schedule=reduce_on_plateau",), False)):  # fmt: skip
        assert optimizer.scheduled(options(*settings).train) is follows, settings
    rate = optimizer.build(options("learning_rate=0.123456789"), 100, 10)
    assert optimizer.highest_rate(rate) == 0.1234568
    nothing: Any = object()
    assert optimizer.highest_rate(nothing) is None
