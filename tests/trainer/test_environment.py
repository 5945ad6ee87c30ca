"""The variables of the environment before TensorFlow starts: those with an option follow it, all others are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gputui.engine.job import environment_variables
from gputui.engine.job.visible_devices import VARIABLE
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.setup import environment
from gputui.engine.trainer.setup.environment import Prepared

from tests.support.environments import as_launched as as_launched
from tests.support.training import options


def prepared(given: dict[str, str], *settings: str) -> Prepared:
    for name in [name for name in os.environ if name.startswith((*environment_variables.PREFIXES, "GPU_DEVICE"))]:
        del os.environ[name]
    os.environ.update(given)
    return environment.prepare(options("compile.xla_cache=false", *settings))


def test_a_variable_with_an_option_follows_the_option_and_what_is_overridden_is_reported() -> None:
    cases: list[tuple[dict[str, str], tuple[str, ...], str, dict[str, str | None]]] = [
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, ("memory_growth=false",), "device.memory_growth", {}),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, (), "", {}),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "false"}, (), "device.memory_growth", {}),
        ({"TF_GPU_ALLOCATOR": "cuda_malloc_async"}, (), "device.allocator", {}),
        ({"TF_GPU_ALLOCATOR": "x"}, ("allocator=cuda_malloc_async",), "device.allocator",
         {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}),
        ({"NVIDIA_TF32_OVERRIDE": "0"}, (), "precision.tf32", {}),
        ({"NVIDIA_TF32_OVERRIDE": "0"}, ("tf32=false",), "", {}),
        ({"TF_GPU_THREAD_MODE": "gpu_private"}, (), "device.gpu_thread_mode", {"TF_GPU_THREAD_MODE": "global"}),
        ({"TF_GPU_THREAD_COUNT": "4"}, ("gpu_thread_mode=gpu_private", "gpu_thread_count=1"),
         "device.gpu_thread_count", {"TF_GPU_THREAD_MODE": "gpu_private", "TF_GPU_THREAD_COUNT": "1"}),
        ({"TF_DETERMINISTIC_OPS": "1"}, (), "train.deterministic", {}),
        ({"TF_CUDNN_DETERMINISTIC": "true"}, ("deterministic=true",), "", {}),
        ({"TF_NUM_INTRAOP_THREADS": "3"}, (), "device.intra_op_threads", {}),
        ({"TF_NUM_INTEROP_THREADS": "3"}, ("inter_op_threads=3",), "", {}),
        ({"TF_PER_DEVICE_MEMORY_LIMIT_MB": "99"}, (), "device.memory_limit_mb", {}),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, (), "device.visible", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ({"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --a=1"}, (), "compile.xla", {"TF_XLA_FLAGS": "--a=1"}),
        ({"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}, ("xla=true",), "", {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}),
        ({"XLA_FLAGS": "--xla_a=1 --xla_b=2"}, ("xla_flags=--xla_b=3 --xla_c",), "compile.xla_flags",
         {"XLA_FLAGS": "--xla_a=1 --xla_b=3 --xla_c"}),
        ({"XLA_FLAGS": "flags.txt"}, ("xla_flags=--xla_b=3",), "compile.xla_flags", {"XLA_FLAGS": "flags.txt"}),
        ({}, ("xla_flags=--xla_b=3",), "", {"XLA_FLAGS": "--xla_b=3"}),
    ]  # fmt: skip
    for given, settings, key, after in cases:
        found = prepared(given, *settings)
        case = f"{given} {settings}: {found}"
        assert [told for told, _ in found.overridden] == ([key] if key else []), case
        assert all(name in message for name in given for _, message in found.overridden), case
        assert {name: os.environ.get(name) for name in given} | after == dict.fromkeys(given) | after, case
        assert all(os.environ.get(name) == value for name, value in after.items()), case


def test_all_other_variables_are_reported_without_secrets() -> None:
    long = "--xla_dump_to=/" + "x" * 500
    given = {"NCCL_DEBUG": "INFO", "TF_VAR_db": "p", "NVIDIA_API_KEY": "nv-1", "TF_TOKEN_x": "t", "CUDA_HOME": "/cuda",
             "TF_GPU_ALLOCATOR": "x", "NCCL_CONF": "http://me:pw@host/", "XLA_FLAGS": long, VARIABLE: "0"}  # fmt: skip
    assert prepared(given, "visible=none").environment == {
        "CUDA_HOME": "/cuda", VARIABLE: "0", "NCCL_CONF": "http://...@host/", "NCCL_DEBUG": "INFO",
        "XLA_FLAGS": long[:200] + "...",
    }  # fmt: skip
    assert os.environ[VARIABLE] == "-1"


def test_what_makes_a_training_slow_is_reported_where_it_does() -> None:
    given = {"CUDA_LAUNCH_BLOCKING": "1", "NCCL_P2P_DISABLE": "1", "TF_CUDNN_USE_AUTOTUNE": "0", "NCCL_DEBUG": "INFO",
             "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_MODULE_LOADING": "EAGER", "TF_CPP_MAX_VLOG_LEVEL": "0"}  # fmt: skip
    one = ["CUDA_LAUNCH_BLOCKING", "TF_CUDNN_USE_AUTOTUNE", "CUDA_MODULE_LOADING"]
    for kind, devices, expected in (("GPU", 1, one), ("GPU", 2, [*one, "NCCL_P2P_DISABLE"]),
                                    ("CPU", 1, ["TF_ENABLE_ONEDNN_OPTS"])):  # fmt: skip
        assert [name for name, _, _ in environment_variables.harmful(given, kind, devices)] == expected, (kind, devices)
    assert environment_variables.harmful(dict.fromkeys(given, ""), "GPU", 2) == []


def test_a_list_of_gpus_never_leaves_what_the_launcher_has_given() -> None:
    cases = [
        ({VARIABLE: "4,5"}, "5", "5"),
        ({VARIABLE: "4,5"}, "0", None),
        ({VARIABLE: "4,5"}, "4,6", None),
        ({VARIABLE: ""}, "0", None),
        ({"GPU_DEVICE_ORDINAL": "2"}, "1", None),
        ({VARIABLE: "4,5"}, "all", "4,5"),
        ({}, "3", "3"),
    ]
    for given, visible, expected in cases:
        if expected is None:
            with pytest.raises(TrainerError, match=r"is not allocated to this job: this job is allocated"):
                prepared(given, f"visible={visible}")
        else:
            found = prepared(given, f"visible={visible}")
            assert os.environ[VARIABLE] == expected, (given, visible)
            assert found.environment.get(VARIABLE) == given.get(VARIABLE), "the launcher's value is kept as it was"


def test_kernels_for_new_chips_are_kept_where_the_drivers_own_folder_cannot_be_written(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    prepared({})
    assert "CUDA_CACHE_PATH" not in os.environ
    (tmp_path / ".nv").touch()
    prepared({})
    assert os.environ["CUDA_CACHE_PATH"] == str(home / "cache" / "cuda")
    prepared({"CUDA_CACHE_PATH": "/mine"})
    assert os.environ["CUDA_CACHE_PATH"] == "/mine"


def test_a_folder_can_be_written_if_the_first_that_exists_can(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert environment.writable(tmp_path)
    assert environment.writable(tmp_path / "a" / "b")
    assert not environment.writable(tmp_path / "file")
    assert not environment.writable(tmp_path / "file" / "a")
    assert not environment.writable(Path("/proc/sys/no such folder"))
