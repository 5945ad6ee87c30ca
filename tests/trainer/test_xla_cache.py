"""What XLA has compiled is kept for the next run: in which folder, when it is trusted, and that it is used."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from gputui.engine import presets
from gputui.engine.telemetry import resource_limits
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.data.finishing import within_limits
from gputui.engine.trainer.setup import xla_cache
from gputui.engine.trainer.setup.xla_cache import XlaCache

from tests.support.forking import Forks, trainer_of
from tests.support.front_door import happened
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


KILLED = """import os, sys
from pathlib import Path
from gputui.engine.trainer.setup.xla_cache import XlaCache
cache = XlaCache(Path(sys.argv[1]), executables=sys.argv[2] == "True")
with cache.guarded():
    if sys.argv[3] == "stopped":
        cache.leave()
    os._exit(9)
"""


def killed_in_first_step(folder: Path, executables: bool = True, how: str = "killed") -> None:
    words = [sys.executable, "-c", KILLED, str(folder), str(executables), how]
    assert subprocess.run(words, check=False).returncode == 9


def marks(folder: Path) -> list[Path]:
    return list(folder.glob("first-step-of-*"))


def test_after_a_death_in_the_first_step_the_folder_is_emptied_and_only_the_third_in_a_row_refuses_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = kept()
    assert cache.folder is not None
    entry = cache.folder / "executables" / "entry.pb"
    for executables, how in ((True, "stopped"), (False, "killed")):
        entry.touch()
        killed_in_first_step(cache.folder, executables, how)
        assert kept().folder == cache.folder
        assert entry.exists(), "a stop says nothing of the cache, nor a training that keeps no programs"
    killed_in_first_step(cache.folder)
    with cache.guarded():
        without = kept()
        assert without.folder is None
        assert "another run is in its first step" in without.reason
        assert entry.exists(), "nothing is removed while another training may load it"
        cache.leave()
    for _ in range(2):
        assert kept().folder == cache.folder
        assert not entry.exists()
        killed_in_first_step(cache.folder)
    refused = kept()
    assert (refused.folder, refused.warns) == (None, True)
    assert f"3 runs in a row failed before the first step; to try again: rm -r {cache.folder}" in refused.reason
    for mark in marks(cache.folder):
        os.utime(mark, (0, 0))
    assert kept().folder == cache.folder, "it is tried again after a day"
    with cache.guarded():
        cache.first_step_done()
    killed_in_first_step(cache.folder)
    assert kept().folder == cache.folder, "a first step ends the row"

    monkeypatch.setattr(xla_cache, "LEAST_FREE_BYTES", 1 << 60)
    assert "1 GiB free" in kept().reason
    (home / "cache" / "xla").rename(home / "cache" / "moved")
    (home / "cache" / "xla").touch()
    assert "cannot be written" in kept().reason


def test_only_errors_that_a_damaged_program_causes_are_held_against_the_cache(home: Path) -> None:
    """The messages are those of TensorFlow 2.21 on files that were emptied, cut off, and overwritten."""
    errors, place = tf.errors, " [[{{node PartitionedCall}}]] [[IteratorGetNext/_2]]"
    told = errors.InternalError(None, None, "cannot load")
    own = ValueError("train.py, line 3")
    own.__cause__ = told
    cases: tuple[tuple[Exception, bool], ...] = (
        (told, True),
        (own, True),
        (TrainerError("input", "Keras ended an epoch before its first step"), True),
        (TrainerError("data", "label 12 is out of range"), False),
        (errors.InvalidArgumentError(None, None, f"Serialized cache key does not match.{place}"), True),
        (errors.OutOfRangeError(None, None, f"Read less bytes than requested{place}"), True),
        (errors.DataLossError(None, None, f"Can't parse a.pb as binary proto{place}"), True),
        (errors.DataLossError(None, None, "truncated record at 0 [[{{node IteratorGetNext}}]]"), False),
        (errors.NotFoundError(None, None, "with iterator: Iterator::Root::Map: /no/such; No such file"), False),
        (errors.InvalidArgumentError(None, None, "label 12 is out of range"), False),
        (errors.ResourceExhaustedError(None, None, "too much"), False),
        (ValueError("theirs"), False),
    )
    for fault, blamed in cases:
        cache = kept()
        assert cache.folder is not None
        with pytest.raises(type(fault)), cache.guarded():
            raise fault
        assert bool(marks(cache.folder)) == blamed, repr(fault)
        cache.leave()


def test_marks_of_other_machines_are_ignored_and_removed_after_a_day(home: Path) -> None:
    cache = kept()
    assert cache.folder is not None
    entry, foreign = cache.folder / "executables" / "entry.pb", cache.folder / "first-step-of-otherboot-12-345"
    for path in (entry, foreign):
        path.touch()
    assert kept().folder == cache.folder
    assert entry.exists()
    assert foreign.exists()
    os.utime(foreign, (0, 0))
    assert kept().folder == cache.folder
    assert entry.exists()
    assert not foreign.exists()


def test_beside_a_file_of_flags_nothing_is_kept(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(tmp_path / "flags")
    off = kept(tf_flags=file)
    assert (off.folder, os.environ["TF_XLA_FLAGS"]) == (None, file)
    assert "TF_XLA_FLAGS names a file" in str(off)
    monkeypatch.setattr(xla_cache, "_chip", lambda _: ("NVIDIA H100", True))
    off = kept("xla_cache=true", flags=file)
    assert (off.folder, os.environ["XLA_FLAGS"], os.environ["TF_XLA_FLAGS"]) == (None, file, "")
    assert str(off).startswith("XLA_FLAGS names a file")
    assert off.warns


def test_on_a_gpu_compiled_programs_are_kept_where_they_are_wanted_or_known_to_load(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xla_cache, "_chip", lambda _: ("NVIDIA H100", True))
    first = kept()
    assert first.folder is not None
    assert "NVIDIA-H100-cuDNN" in first.folder.parent.name
    assert os.environ["XLA_FLAGS"] == f"--xla_gpu_per_fusion_autotune_cache_dir={first.folder}/autotuning"
    assert os.environ["TF_XLA_FLAGS"] == ""
    for _ in range(2):  # nothing was compiled, and nothing loaded
        without = kept("xla_cache=true")
        with without.guarded():
            without.first_step_done()
        assert not kept().executables
    # The third training loads all that the first two have compiled.
    for entries, loads in ((1, False), (2, False), (2, False), (3, True)):
        cache = kept("xla_cache=true")
        assert os.environ["TF_XLA_FLAGS"] == f"--tf_xla_persistent_cache_directory={first.folder}/executables"
        assert kept().executables == loads
        with cache.guarded():
            (first.folder / "executables" / f"{entries}.pb").touch()
            cache.first_step_done()
    assert kept().executables
    assert kept(flags="--xla_a=1").executables, "with other flags it is the same chip"
    killed_in_first_step(first.folder)
    assert kept("xla_cache=true").folder == first.folder
    assert not kept().executables, "that kept programs can be loaded is to be shown again"


@pytest.mark.usefixtures("cpus")
def test_tf_data_plans_with_what_the_container_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = tf.data.Dataset.range(3)
    plain = within_limits(dataset).options().autotune
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path)
    put(tmp_path, CONTAINER)
    limited = within_limits(dataset).options().autotune
    if not resource_limits.cpus_limited():
        pytest.skip("this machine has one CPU")
    assert (plain.cpu_budget, plain.ram_budget) == (None, None)
    assert (limited.cpu_budget, limited.ram_budget) == (1, 2_000_000_000)
    asked = tf.data.Options()
    asked.autotune.ram_budget = 64_000_000
    given = within_limits(dataset.with_options(asked)).options().autotune
    assert (given.cpu_budget, given.ram_budget) == (1, 64_000_000), "what was asked for stays"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_second_run_takes_what_the_first_has_compiled_and_both_keep_to_the_containers_cpus(
    tmp_path: Path, home: Path, forks: Forks
) -> None:
    put(tmp_path / "root", CONTAINER)
    given = {"GPUTUI_ROOT": str(tmp_path / "root"), "GPUTUI_HOME": str(home), "NCCL_DEBUG": "INFO",
             "TF_NUM_INTRAOP_THREADS": "7", "XLA_FLAGS": "", "TF_XLA_FLAGS": ""}  # fmt: skip
    settings = ("model=mlp", "width=0.05", "xla=true", "drop_remainder=true", "validation_split=0", "steps_per_epoch=3")
    losses, files = [], []
    for _ in range(2):
        run, program = trainer_of(presets.resolve("quickstart", [*settings, "epochs=1", "seed=1"]))
        forks.run(dataclasses.replace(program, environment=program.environment | given))
        told = happened(run, "started", "warning", "epoch")
        started = next(event for event in told if event["type"] == "started")
        actual = started["actual"]
        assert (actual["inter_op_threads"], actual["intra_op_threads"], started["cpus"]) == (1, 1, 1)
        assert actual["environment"]["NCCL_DEBUG"] == "INFO"
        assert "TF_NUM_INTRAOP_THREADS" not in actual["environment"]
        warned = [event["message"] for event in told if event["type"] == "warning"]
        assert warned == ["TF_NUM_INTRAOP_THREADS=7 does nothing here: device.intra_op_threads is auto"]
        losses.append(next(event for event in told if event["type"] == "epoch")["metrics"]["loss"])
        kept_here = Path(actual["xla_cache"])
        assert marks(kept_here) == []
        files.append({path: path.stat().st_mtime_ns for path in (kept_here / "executables").iterdir()})
        assert (kept_here.parent / "executables-load").exists() == (len(files) == 2)
    assert losses[0] == losses[1]
    assert files[0]
    assert files[0] == files[1]
