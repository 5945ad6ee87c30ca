"""The process before it trains: variables, XLA's cache and choice, and versions."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import keras
import pytest

from tests.doors.engine import VISIBLE as VARIABLE
from tests.doors.engine import environment_variables
from tests.doors.trainer import Prepared, TrainerError, XlaCache, actual_settings, environment, model_facts, versions
from tests.support.fakegpu import FakeGpu
from tests.support.training import options


@pytest.fixture(autouse=True)
def as_launched() -> Iterator[None]:
    """Nothing of the environment of the tests, and none of what is set here stays."""
    before = dict(os.environ)
    for name in before:
        if name.startswith((*environment_variables.PREFIXES, "SLURM_", "GPU_")):
            del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # in Keras


def prepared(given: dict[str, str], *settings: str) -> Prepared:
    for name in [name for name in os.environ if name.startswith((*environment_variables.PREFIXES, "GPU_DEVICE"))]:
        del os.environ[name]
    os.environ.update(given)
    return environment.prepare(options("compile.xla_cache=false", *settings))


def test_the_classes_of_a_training_are_those_of_its_loss() -> None:
    one_of_five, yes_or_no = "sparse_categorical_crossentropy", "binary_crossentropy"
    for loss, units, classes in ((one_of_five, 5, 5), (yes_or_no, 1, 2), (yes_or_no, 5, None)):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units)])
        model.compile("sgd", loss)
        assert model_facts.loss_of(model) == {"loss": loss, "classes": classes}


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


GIB = 1024**3


# ---- variables ---------------------------------------------------------------------------------


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


# ---- the log and the identity of GPUs ----------------------------------------------------------


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


@pytest.fixture
def no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")


def kept(*settings: str, flags: str = "", tf_flags: str = "") -> XlaCache:
    os.environ["XLA_FLAGS"], os.environ["TF_XLA_FLAGS"] = flags, tf_flags
    return environment.xla_cache(options("xla=true", *settings))


KILLED = """import os, sys
from pathlib import Path
from gputui.engine.trainer.setup.environment import XlaCache
cache = XlaCache(Path(sys.argv[1]), executables=sys.argv[2] == "True")
with cache.guarded():
    if sys.argv[3] == "stopped":
        cache.leave()
    os._exit(9)
"""


def killed_in_first_step(folder: Path, executables: bool = True, how: str = "killed") -> None:
    words = [sys.executable, "-c", KILLED, str(folder), str(executables), how]
    assert subprocess.run(words, check=False).returncode == 9


@pytest.mark.usefixtures("no_flags")
def test_after_a_death_in_the_first_step_the_folder_is_emptied(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert kept().folder == cache.folder
    assert not entry.exists()
    assert not list(cache.folder.glob("first-step-of-*"))

    monkeypatch.setattr(environment, "LEAST_FREE_BYTES", 1 << 60)
    assert "1 GiB free" in kept().reason
    (home / "cache" / "xla").rename(home / "cache" / "moved")
    (home / "cache" / "xla").touch()
    assert "cannot be written" in kept().reason


@pytest.mark.usefixtures("no_flags")
def test_on_a_gpu_compiled_programs_are_kept_where_they_are_wanted_or_known_to_load(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_chip", lambda _: ("NVIDIA H100", True))
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


ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys
from pathlib import Path
import keras
import tensorflow as tf
from gputui.engine.interpreter import compatibility
from gputui.engine.trainer.setup import compiling, devices
from tests.support.training import built, options

TINY = ("model=mlp", "width=0.05", "batch_size=32", "epochs=1", "steps_per_epoch=2", "validation_split=0")
found = devices.configure(options(*TINY, "strategy.kind=mirrored"))

def started(*settings):
    training = built(Path(sys.argv[1]) / "-".join(settings), found, options(*TINY, *settings)).announce()
    actual = training.events("started")[0]["actual"]
    return actual["jit_compile"], actual["xla_reason"]

class Fixed(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.supports_jit = False
    def call(self, x):
        return x

model = lambda *layers: keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
alone = lambda *settings: vars(compiling.xla_of(options(*settings), model())).values()
theirs = model()
theirs.compile()
against, under = model(), model()
against.compile(jit_compile=False)
under.compile(jit_compile=False)
told = {
    "single": started("train.seed=1"),
    "false": started("compile.xla=false"),
    "mirrored": started("strategy.kind=mirrored"),
    "deterministic": [*alone("deterministic=true")],
    "layer": [*vars(compiling.xla_of(options(), model(Fixed()))).values()],
    "theirs": [*vars(compiling.xla_of_compiled(options(), theirs)).values()],
    "theirs against Keras": [*vars(compiling.xla_of_compiled(options(), against)).values()],
    "Keras under a strategy": [*vars(compiling.xla_of_compiled(options("strategy.kind=mirrored"), under)).values()],
}
compatibility.BLACKWELL_CAPABILITY = (1, 0)
told["chip"] = [*alone()]
told["their chip"] = [*vars(compiling.xla_of_compiled(options(), theirs)).values()]
told["true on the chip"] = [*alone("xla=true")]
told["not compiled on the chip"] = [*vars(compiling.xla_of_compiled(options(), against)).values()]
print(json.dumps(told))
"""


def test_auto_compiles_where_keras_does_but_not_where_xla_would_abort(fakegpu: FakeGpu, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "runs")],
        env=os.environ | fakegpu.environment(tmp_path / "gpus", 2),
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {
        "single": [True, "one GPU, without a strategy"],
        "false": [False, "compile.xla is false"],
        "mirrored": [False, "strategy.kind is mirrored: under a strategy Keras compiles nothing"],
        "deterministic": [False, "train.deterministic is true: Keras then compiles nothing"],
        "layer": [False, "XLA cannot compile Fixed"],
        "theirs": [True, "jit_compile=True of your compiled model is Keras' choice: one GPU, without a strategy"],
        "theirs against Keras": [False, "your code has compiled the model with jit_compile=False"],
        "Keras under a strategy": [
            False,
            "jit_compile=False of your compiled model is Keras' choice: strategy.kind is mirrored: under a "
            "strategy Keras compiles nothing",
        ],
        "chip": [False, "XLA of this TensorFlow crashes on compute capability 9.0"],
        "their chip": [False, "XLA of this TensorFlow crashes on compute capability 9.0"],
        "true on the chip": [True, "compile.xla is true"],
        "not compiled on the chip": [False, "your code has compiled the model with jit_compile=False"],
    }


def test_a_version_that_lacks_a_private_function_is_named_with_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from keras.src.losses import loss

    from tests.doors.trainer import TrainerError, versions

    with monkeypatch.context() as lacking:
        lacking.delattr(loss, "unscale_loss_for_distribution")
        with pytest.raises(TrainerError, match=r"TensorFlow 2\..* and Keras 3\..*unscale_loss_for_dis") as told:
            importlib.reload(versions)
    assert "install TensorFlow 2.21 and Keras 3.15" in told.value.hint
    importlib.reload(versions)
