"""What XLA has compiled is kept for the next run: in which folder, when it is trusted, and that it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from gputui.engine.telemetry import limits
from gputui.engine.trainer.data.finishing import within_limits
from gputui.engine.trainer.setup import xla_cache
from gputui.engine.trainer.setup.xla_cache import XlaCache

from tests.support.front_door import events, gputui
from tests.support.machines import put
from tests.support.training import options

CONTAINER = {"sys/fs/cgroup/cpu.max": "100000 100000", "sys/fs/cgroup/memory.max": "4000000000"}


@pytest.fixture(autouse=True)
def no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")


def kept(*settings: str, flags: str = "", tf_flags: str = "") -> XlaCache:
    os.environ["XLA_FLAGS"], os.environ["TF_XLA_FLAGS"] = flags, tf_flags
    return xla_cache.keep(options("xla=true", *settings))


def test_each_tensorflow_chip_and_set_of_flags_has_a_folder_of_its_own(home: Path) -> None:
    plain = kept()
    assert plain.folder is not None
    assert plain.folder.parents[1] == home / "cache" / "xla"
    assert plain.folder.parent.name.startswith(f"tensorflow-{tf.__version__}-")
    assert os.environ["TF_XLA_FLAGS"] == f"--tf_xla_persistent_cache_directory={plain.folder}/executables"
    assert os.environ["XLA_FLAGS"] == "", "autotuning is for GPUs"
    assert kept().folder == plain.folder
    others = [kept(flags="--xla_a=1"), kept(tf_flags="--tf_xla_b=1"), kept("precision.tf32=false")]
    assert len({plain.folder, *(other.folder for other in others)}) == 4
    assert os.environ["TF_XLA_FLAGS"].startswith("--tf_xla_persistent")
    kept(tf_flags="--tf_xla_persistent_cache_directory=/mine")
    assert os.environ["TF_XLA_FLAGS"] == "--tf_xla_persistent_cache_directory=/mine"
    for setting in ("compile.xla_cache=false", "compile.xla=false"):
        reason = setting.replace("=", " is ")
        os.environ["TF_XLA_FLAGS"] = ""
        off = xla_cache.keep(options(setting))
        assert (off.folder, os.environ["TF_XLA_FLAGS"]) == (None, "")
        assert reason in off.reason
        assert not off.warns


def test_what_is_kept_is_trusted_only_after_a_first_step(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = "import os, sys; from pathlib import Path; from gputui.engine.trainer.setup.xla_cache import XlaCache\n" \
             "cache = XlaCache(Path(sys.argv[1]))\n" \
             "with cache.guarded(): STOPPED; os._exit(9)"  # fmt: skip
    cache = kept()
    assert cache.folder is not None
    entry = cache.folder / "executables" / "entry.pb"
    with cache.guarded():
        assert kept().folder == cache.folder, "another training in its first step is no sign of damage"
        entry.touch()
        cache.first_step_done()
    assert kept().folder == cache.folder

    for stopped, left in (("cache.leave()", True), ("pass", False)):
        program = killed.replace("STOPPED", stopped)
        assert subprocess.run([sys.executable, "-c", program, str(cache.folder)], check=False).returncode == 9
        assert kept().folder == cache.folder
        assert entry.exists() == left
    assert not entry.exists(), "one that ended before its first step leaves nothing to be trusted"

    (cache.folder / "first-step-done").unlink()
    broken = kept()
    with pytest.raises(tf.errors.InternalError), broken.guarded():
        raise tf.errors.InternalError(None, None, "cannot load")
    assert broken._lock is not None
    broken._lock.release()  # as the end of its process does
    refused = kept()
    assert refused.folder is None
    assert refused.warns
    assert f"rm -r {cache.folder}" in refused.reason
    for mark in cache.folder.glob("first-step-of-*"):
        mark.unlink()
    for fault in (tf.errors.ResourceExhaustedError(None, None, "too much"), ValueError("theirs")):
        with pytest.raises(type(fault)), kept().guarded():
            raise fault
        assert kept().folder == cache.folder, f"{fault!r} says nothing of the cache"

    monkeypatch.setattr(xla_cache, "LEAST_FREE_BYTES", 1 << 60)
    assert "1 GiB free" in kept().reason
    (home / "cache" / "xla").rename(home / "cache" / "moved")
    (home / "cache" / "xla").touch()
    assert "cannot be written" in kept().reason


def test_on_a_gpu_compiled_programs_are_kept_where_they_are_wanted_or_known_to_load(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xla_cache, "_chip", lambda _: ("NVIDIA H100", True))
    first = kept()
    assert first.folder is not None
    assert "NVIDIA-H100-cuDNN" in first.folder.parent.name
    assert os.environ["XLA_FLAGS"] == f"--xla_gpu_per_fusion_autotune_cache_dir={first.folder}/autotuning"
    assert os.environ["TF_XLA_FLAGS"] == ""
    for entries in (1, 1, 2):  # the second training loads what the first has compiled
        cache = kept("xla_cache=true")
        assert os.environ["TF_XLA_FLAGS"] == f"--tf_xla_persistent_cache_directory={first.folder}/executables"
        assert kept().executables == (entries == 2)
        with cache.guarded():
            (first.folder / "executables" / f"{entries}.pb").touch()
            cache.first_step_done()
    assert kept().executables
    assert kept(flags="--xla_a=1").executables, "with other flags it is the same chip"


@pytest.mark.usefixtures("cpus")
def test_tf_data_plans_with_what_the_container_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = tf.data.Dataset.range(3)
    plain = within_limits(dataset).options().autotune
    monkeypatch.setattr(limits, "ROOT", tmp_path)
    put(tmp_path, CONTAINER)
    limited = within_limits(dataset).options().autotune
    if not limits.cpus_limited():
        pytest.skip("this machine has one CPU")
    assert (plain.cpu_budget, plain.ram_budget) == (None, None)
    assert (limited.cpu_budget, limited.ram_budget) == (1, 2_000_000_000)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_second_run_takes_what_the_first_has_compiled_and_both_keep_to_the_containers_cpus(
    tmp_path: Path, home: Path
) -> None:
    put(tmp_path / "root", CONTAINER)
    given = {"GPUTUI_ROOT": str(tmp_path / "root"), "NCCL_DEBUG": "INFO", "TF_NUM_INTRAOP_THREADS": "7"}
    settings = ("model=mlp", "width=0.05", "xla=true", "drop_remainder=true", "validation_split=0", "steps_per_epoch=3")
    words = [word for setting in (*settings, "epochs=1", "seed=1") for word in ("--set", setting)]
    losses, files = [], []
    for _ in range(2):
        done = gputui("--preset", "quickstart", "--json", *words, env=os.environ | given)
        assert done.returncode == 0, done.stderr
        told = events(done.stdout)
        started = next(event for event in told if event["type"] == "started")
        actual = started["actual"]
        assert (actual["inter_op_threads"], actual["intra_op_threads"], started["cpus"]) == (1, 1, 1)
        assert actual["environment"]["NCCL_DEBUG"] == "INFO"
        assert "TF_NUM_INTRAOP_THREADS" not in actual["environment"]
        warned = [event["message"] for event in told if event["type"] == "warning"]
        assert warned == ["TF_NUM_INTRAOP_THREADS=7 does nothing here: device.intra_op_threads is auto"]
        losses.append(next(event for event in told if event["type"] == "epoch")["metrics"]["loss"])
        kept_here = Path(actual["xla_cache"])
        assert (kept_here / "first-step-done").exists()
        files.append({path: path.stat().st_mtime_ns for path in (kept_here / "executables").iterdir()})
        assert (kept_here.parent / "executables-load").exists() == (len(files) == 2)
    assert losses[0] == losses[1]
    assert files[0]
    assert files[0] == files[1]
