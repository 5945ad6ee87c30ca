"""Exported scripts: they name their options, run without gputui, and train to the same losses."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.doors.engine import Form, Options, Preset, export_folder, own_code, plan, presets, to_script
from tests.doors.tui import tui_cli as cli
from tests.support.cases import all_hold
from tests.support.combinations import some_of
from tests.support.exporting import form_of, trained_by_both
from tests.support.forking import Forks
from tests.support.front_door import happened
from tests.support.training import options

# What makes a shipped preset small enough for two CPU cores; those that are not named are so already.
TINY_IMAGES = ("shape=[8, 8, 3]", "batch_size=4")
SMALLER = {
    "fast": ("model=mlp", "width=0.1", "steps_per_execution=4"),
    "quickstart": ("width=0.25",),
    "safe-memory": ("width=0.25",),
    "input-heavy": ("shape=[24, 24, 3]",),
    "multi-gpu": ("model=mlp", "width=0.1"),
    "xla-bf16": ("model=mlp", "width=0.1", "samples=40", *TINY_IMAGES),
    "resnet50-224": ("model=separable_cnn", "width=0.05", "samples=64", "classes=10", *TINY_IMAGES),
    "transformer-100m": ("width=0.25", "blocks=1", "shape=[16]", "batch_size=4", "samples=64"),
}


# ---- the models and data of gputui ---------------------------------------------------------------


MODELS = ("mlp", "cnn", "separable_cnn", "resnet50", "transformer")
USUAL = ("quickstart",)  # of the shipped presets; the others are trained by `make nightly`
OTHERS = sorted({path.stem for path in presets.SHIPPED.glob("*.yaml")} - {"debug", *USUAL})


def test_text_of_a_preset_stays_text() -> None:
    hostile = '"""\nimport os; os.abort()\n"""\\'
    options = presets.assemble('a"""b\\', {"workload.data": 'npz:/tmp/"x"\\y.npz'}, hostile)
    tree = compile(to_script(options), "train.py", "exec")
    assert "abort" not in tree.co_names


@pytest.mark.slow
@pytest.mark.parametrize("name", [*USUAL, *(pytest.param(name, marks=pytest.mark.nightly) for name in OTHERS)])
def test_a_shipped_preset_trains_and_its_script_to_the_same_losses(name: str, tmp_path: Path, forks: Forks) -> None:
    """With its own options, XLA among them, at a size for two CPU cores; two of them with their validation, too.

    The options of the preset debug are in others, too; test_run_life.py trains it.
    """
    settings = ["epochs=2", "steps_per_epoch=4", *SMALLER.get(name, ())]
    if name == "multi-gpu":
        settings += ["logical_devices=2", "learning_rate_scaling=sqrt", "warmup_steps=2"]
    if name == "fast":
        settings += ["augment=light", "cast=device"]
    if name not in ("quickstart", "xla-bf16"):
        settings.append("validation_split=0")
    preset = presets.resolve(name, [*settings, "seed=5"])
    if preset.options.compile.xla is not True:  # Keras compiles nothing with XLA where operations must be deterministic
        preset = presets.resolve(name, [*settings, "seed=5", "deterministic=true"])
    run, ours, theirs = trained_by_both(forks, preset, tmp_path)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert len(ours) == 2
    assert all(0 < loss < 10 for loss in ours)
    assert run.result is not None
    assert (run.result["outcome"], run.result["steps"]) == ("ok", 8)
    (started,) = happened(run, "started")
    assert started["actual"]["jit_compile"] == (preset.options.compile.xla is True)
    if preset.options.compile.xla is True:
        assert "XLA True\n" in (tmp_path / "exported.out").read_text()


@pytest.mark.slow
@pytest.mark.nightly
def test_the_script_augments_holds_validates_and_optimizes_as_gputui_does(tmp_path: Path, forks: Forks) -> None:
    """One run for the options that the shipped presets leave alone."""
    x, y = np.random.default_rng(1).integers(0, 256, (60, 6, 6, 1), "uint8"), np.arange(60) % 3
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:20] // 2, y_test=y[:20])
    settings = ["model=mlp", "width=0.1", "normalization=layer", f"data=npz:{tmp_path}/a.npz", "epochs=2",
                "validation=test", "batch_size=10", "optimizer=sgd", "momentum=0.9", "nesterov=true",
                "weight_decay=0.01", "schedule=exponential", "hold_steps=4", "warmup_steps=2",
                "gradient_accumulation=4", "augment=heavy", "micro_batches=3", "recompute=true",
                "deterministic=true"]  # fmt: skip
    _, ours, theirs = trained_by_both(forks, presets.defaults([*settings, "seed=5"]), tmp_path)
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.slow
@pytest.mark.nightly
def test_batches_that_replicas_share_unevenly_train_to_the_same_losses(tmp_path: Path, forks: Forks) -> None:
    """The first batch, the last one and those of the validation, for which too few samples may be held out."""
    settings = ["model=mlp", "width=0.1", "data=synthetic", "shape=[4]", "classes=3", "samples=35",
                f"validation_split={1 / 35}", "epochs=2", "logical_devices=2",
                "strategy.kind=mirrored", "batch_size=10", "deterministic=true"]  # fmt: skip
    _, ours, theirs = trained_by_both(forks, presets.defaults([*settings, "seed=5"]), tmp_path)
    assert len(ours) == 2
    assert ours == pytest.approx(theirs, rel=1e-6)


# ---- code of the user's --------------------------------------------------------------------------


HEAD = """
import keras, numpy as np, tensorflow as tf, beside

rng = np.random.default_rng(0)
x = rng.normal(size=(120, 4)).astype("float32")
y = x.sum(axis=1) + beside.SHIFT
samples = tf.data.Dataset.from_tensor_slices((x, y))

def model():
    layers = [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    return keras.Sequential(layers)

def compiled():
    made = model()
    made.compile("adam", "mse")
    return made

class Pages(keras.utils.PyDataset):
    def __init__(self, size): super().__init__(); self.size = size
    def __len__(self): return -(-len(x) // self.size)
    def __getitem__(self, i): return x[i * self.size : (i + 1) * self.size], y[i * self.size : (i + 1) * self.size]

def build(context):
"""
FORMS = {
    "arrays": """
        some = (x[:110].astype("float64"), y[:110])
        return {"model": model(), "train": some, "validation": (x[:20], y[:20]), "loss": "mse", "metrics": ["mae"]}""",
    "split": 'return {"model": compiled(), "train": (x, y)}',
    "mapped": """
        return {
            "model": model(), "loss": "mse", "train": samples, "validation": samples.take(30),
            "map": lambda x, y: (2 * x, 2 * y), "augment": lambda x, y: (x + context.args["by"], y),
            "callbacks": keras.callbacks.EarlyStopping("loss", patience=9),
        }""",
    "batched": """
        some = samples.filter(lambda x, y: True).batch(context.global_batch_size)
        return {"model": compiled(), "train": some, "samples": 120, "validation": samples.batch(10)}""",
    "weighted": """
        return {
            "model": model(), "loss": "mse", "train": (x, y), "sample_weight": abs(x[:, 0]), "initial_epoch": 1,
            "validation": samples.repeat().batch(10), "validation_steps": 2, "validation_freq": 2,
        }""",
    "counted": """
        some = samples.filter(lambda x, y: x[0] > 0)
        classes = lambda x, y: (x, tf.cast(y > 0, tf.int32))
        return {"model": compiled(), "train": some.batch(20).map(classes), "class_weight": {0: 2.0, 1: 0.5}}""",
    "iterated": """
        def batches():
            order = np.random.default_rng(3).permutation(115)
            for at in range(0, 115, 20):
                yield [x[order[at : at + 20]], y[order[at : at + 20]]]
        def forever():
            while True:
                yield from batches()
        return {"model": compiled(), "train": batches, "validation": forever(), "validation_steps": 2}""",
    "late": """
        made = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        made.compile("adam", "mse")
        return {"model": made, "train": samples.batch(20)}""",
    "images": """
        pictures = rng.random((60, 6, 6, 1)).astype("float32")
        made = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])
        some = (pictures[:20], pictures[:20].sum(axis=(1, 2, 3)))
        return {"model": made, "train": (pictures, pictures.sum(axis=(1, 2, 3))), "validation": some, "loss": "mse"}""",
    "pages": "return compiled(), Pages(context.global_batch_size - 1), Pages(11)",  # odd sizes for two replicas
}
USUAL_FORMS = ("pages",)  # `make nightly` trains the others, whose text tests/contract/test_scripts.py has
SETTINGS = {
    "arrays": ["schedule=cosine", "warmup_steps=3", "steps_per_execution=3", "clip_norm=1", "optimizer=sgd"],
    "split": ["shuffle=1000"],
    "mapped": ["steps_per_epoch=4", "cache=memory", "args={by: 0.5}"],
    "late": ["checkpoint=epoch"],
    "images": ["augment=light", "shuffle=9"],
    "pages": ["strategy.kind=mirrored", "logical_devices=2", "batch_size=10"],
    "batched": ["prefetch=off", "parallel_calls=off", "stop_on_nan=false"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine"
    path.mkdir()
    monkeypatch.chdir(path)
    (path / "beside.py").write_text("SHIFT = 0.5\n")
    return path


OF_ARRAYS = Form("arrays", "arrays", is_split=True, given=frozenset({"loss"}), images=True)


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command exports without calling build."""
    monkeypatch.setattr(own_code, "asked", lambda preset: OF_ARRAYS)


def write(folder: Path, form: str) -> None:
    (folder / "train.py").write_text(HEAD + textwrap.indent(textwrap.dedent(FORMS[form]), "    "))


@pytest.mark.usefixtures("nothing_left_running")
@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [pytest.param(name, marks=() if name in USUAL_FORMS else pytest.mark.nightly) for name in FORMS]
)
def test_the_script_trains_to_the_losses_of_gputui(form: str, folder: Path, forks: Forks) -> None:
    write(folder, form)
    # Their file by its path, or as a module.
    entry = "entry=train:build" if form == "pages" else "entry=train.py:build"
    epochs = 3 if form == "weighted" else 2
    settings = ["deterministic=true", "shuffle=off", f"epochs={epochs}", "seed=5", "batch_size=20", entry]
    preset, code = presets.defaults([*settings, *SETTINGS.get(form, [])]), ""
    if form == "arrays":  # from a folder that was exported and moved
        preset, folder = exported_and_moved(preset, folder, form_of(preset, forks, folder.parent))
        code = (folder / "plain.py").read_text()
    _, ours, theirs = trained_by_both(forks, preset, folder, code)
    assert len(ours) == 2
    assert all(map(math.isfinite, ours))
    assert ours == pytest.approx(theirs, rel=1e-6)
    if not code:  # of what this data needs, not of all that data may need
        assert len((folder / "exported.py").read_text().splitlines()) < 360


@pytest.mark.usefixtures("nothing_left_running")
@pytest.mark.slow
def test_the_script_ends_early_and_keeps_the_best_model_as_gputui_does(folder: Path, forks: Forks) -> None:
    write(folder, "arrays")
    rules = ["early_stop=val_loss", "early_stop_patience=2", "early_stop_restore=true", "keep_best=val_loss",
             "schedule=reduce_on_plateau", "plateau_patience=1", "decay_rate=0.5", "save_model=true"]  # fmt: skip
    settings = ["deterministic=true", "shuffle=off", "epochs=30", "seed=5", "batch_size=20", "entry=train.py:build"]
    preset = presets.defaults([*settings, *rules, "optimizer=sgd", "learning_rate=0.1"])
    run, ours, theirs = trained_by_both(forks, preset, folder)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert len(ours) < 30, "both have ended early"
    assert run.result is not None
    (best, *_) = run.result["best"]
    for file, theirs_too in ((best["files"][0]["file"], "best.keras"), ("model.keras", "model.keras")):
        paths = (run.file(file), folder / theirs_too)
        pair = (keras.models.load_model(path, compile=False).get_weights() for path in paths)
        assert all(np.allclose(mine, his, rtol=1e-5) for mine, his in zip(*pair, strict=True)), file


def exported_and_moved(preset: Preset, folder: Path, form: Form | None) -> tuple[Preset, Path]:
    """The preset of the exported folder, somewhere else, and that place; the code is no longer where it was."""
    export_folder.export(preset, folder.parent / "exported", form)
    moved = folder.parent / "an other's [machine]" / "moved"
    moved.parent.mkdir()
    (folder.parent / "exported").rename(moved)
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return presets.resolve(str(moved / "default.yaml")), moved


@pytest.mark.usefixtures("nothing_left_running", "unasked")
def test_a_folder_has_all_that_the_entry_imports_and_names_no_place_of_this_machine(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, "arrays")
    package = folder / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("from . import two\nimport yaml, not_installed\n")
    (package / "two.py").write_text("def later():\n    from beside import SHIFT\n")
    (package / "three.py").write_text("")
    (folder / "unused.py").write_text("")
    (folder / "train.py").write_text("import pkg.one\n" + (folder / "train.py").read_text())
    (folder / "night.yaml").write_text("workload: {entry: 'train.py:build'}\ninput: {cache: kept}\n")
    target = tmp_path / "given away"
    assert cli.run(["export", "--preset", "night.yaml", "--set", "python=/usr/bin/python3", "-o", f"{target}/"]) == 0
    assert "README.md says how" in capsys.readouterr().out
    made = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert made == {
        "README.md", "requirements.txt", "night.yaml", "plain.py", "train.py", "beside.py",
        "pkg/__init__.py", "pkg/one.py", "pkg/two.py",
    }  # fmt: skip
    assert not [name for name in made if str(tmp_path) in (target / name).read_text()]
    assert "python" not in (target / "night.yaml").read_text()
    readme, needed = (target / "README.md").read_text(), (target / "requirements.txt").read_text()
    assert "gputui --preset night.yaml" in readme
    assert "Files that the code reads, such as data, are not in this folder" in readme
    assert "python plain.py" in readme
    assert {"tensorflow", "keras", "gputui"} <= {line.partition("==")[0] for line in needed.splitlines()}
    assert "# Your code also imports not_installed, numpy, yaml: add the packages.\n" in needed
    compile((target / "plain.py").read_text(), "plain.py", "exec")
    again = presets.resolve(str(target / "night.yaml")).options
    assert (again.workload.entry, again.input.cache) == (f"{target}/train.py:build", f"{target}/cache")
    assert cli.run(["export", "--preset", "night.yaml", "-o", f"{target}/"]) == 2
    assert "is not overwritten" in capsys.readouterr().err
    (folder / "plain.py").write_text("")
    (folder / "train.py").write_text("import plain\n" + (folder / "train.py").read_text())
    assert cli.run(["export", "--preset", "night.yaml", "-o", "again/"]) == 2
    assert "rename it" in capsys.readouterr().err
    assert not [path.name for path in folder.iterdir() if "again" in path.name or "export" in path.name]


@pytest.mark.usefixtures("nothing_left_running")
def test_data_goes_with_the_folder_if_it_is_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.npz").write_bytes(b"x" * 1000)
    (tmp_path / "b-1.rec").write_bytes(b"y")
    for number, (data, file) in enumerate(
        (("digits", "digits.npz"), (f"npz:{tmp_path}/a.npz", "a.npz"), (f"tfrecord:{tmp_path}/b-*.rec", "b-1.rec"))
    ):
        target = tmp_path / f"out-{number}"
        assert cli.run(["export", "--preset", "quickstart", "--set", f"data={data}", "-o", f"{target}/"]) == 0
        assert (target / "data" / file).is_file()
        assert str(tmp_path) not in (target / "plain.py").read_text() + (target / "quickstart.yaml").read_text()
        assert capsys.readouterr().err == ""
    missing = tmp_path / "elsewhere" / "big.npz"
    assert cli.run(["export", "--preset", "quickstart", "--set", f"data=npz:{missing}", "-o", f"{tmp_path}/big/"]) == 0
    assert "put it at" in capsys.readouterr().err
    assert "Put the data at `data/big.npz`" in (tmp_path / "big" / "README.md").read_text()
    assert str(missing) not in (tmp_path / "big" / "plain.py").read_text()


# ---- gputui export ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_left_running")
def test_export_writes_a_script_and_never_over_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "counted")
    replicas = "strategy: {kind: mirrored}\ndevice: {logical_devices: 2}"
    (folder / "preset.yaml").write_text(f"workload: {{entry: 'train.py:build'}}\n{replicas}\n")
    assert cli.run(["export", "--preset", "preset.yaml", "-o", "out.py"]) == 0
    assert "fit notices the end of train by a step without a batch" in capsys.readouterr().err  # the run's warning
    text = (folder / "out.py").read_text()
    compile(text, "out.py", "exec")
    before = (folder / "train.py").read_text()
    for file in ("train.py", "out.py"):
        capsys.readouterr()
        assert cli.run(["export", "--preset", "preset.yaml", "--set", "epochs=9", "-o", file]) == 2
        told = capsys.readouterr()
        assert told.err == f"{file} exists, and is not overwritten; name another file, or remove it first\n"
        assert told.out == ""
    assert (folder / "train.py").read_text() == before
    assert (folder / "out.py").read_text() == text


# ---- the same steps over the same batches --------------------------------------------------------


SIZES: dict[str, tuple[Any, ...]] = {
    "samples": (2, 17, 61), "validation_split": (0.0, 0.1, 0.5), "batch_size": (1, 10),
    "drop_remainder": ("false", "true"), "steps_per_epoch": ("null", 3), "steps_per_execution": (1, 4),
    "replicas": (1, 2, 4),
}  # fmt: skip
SYNTHETIC = ("model=mlp", "data=synthetic", "shape=[1]", "classes=9", "epochs=2", "schedule=step")
DIGITS = ("model=mlp", "data=digits", "logical_devices=2", "strategy.kind=mirrored", "batch_size=808", "epochs=2",
          "schedule=cosine", "warmup_steps=1")  # fmt: skip


Case = dict[str, Any]


def wanted(case: Case) -> Options:
    kind = "single" if case["replicas"] == 1 else "mirrored"
    settings = [f"{key}={value}" for key, value in case.items() if key != "replicas"]
    return options(*SYNTHETIC, *settings, f"strategy.kind={kind}")


def begun(wanted: Options) -> tuple[dict[str, Any], dict[str, str]]:
    """The constants that the script of these options has defined at its start, and its sections."""
    code = to_script(presets.Preset("grid", wanted, ""))
    functions, body = code.split('if __name__ == "__main__":\n')
    parts = re.split(r"^# ---- (\w+)[^\n]*$", functions + textwrap.dedent(body), flags=re.M)
    names: dict[str, Any] = {}
    exec(compile(parts[0], "constants", "exec"), names)
    return names, dict(zip(parts[1::2], parts[2::2], strict=True))


def ran_until_training(wanted: Options, replicas: int) -> dict[str, Any]:
    """The names that the script has defined before it builds its model."""
    names, sections = begun(wanted)
    training = re.split(r"^(?:with strategy|model = build)", sections["training"], flags=re.M)[0]
    names |= {"replicas": replicas, "global_batch": names["BATCH_SIZE"] * replicas}
    for part in (sections["data"], training):
        exec(compile(part, "script", "exec"), names)
    return names


def labels(batches: Any, count: int) -> list[list[int]]:
    return [y.tolist() for _, y in batches.take(count).as_numpy_iterator()]


def compared(wanted: Options, replicas: int) -> str:
    """In what the script differs from the trainer, or nothing."""
    from tests.doors.trainer import DataError, pipeline

    script = ran_until_training(wanted, replicas)
    try:
        ours = pipeline.build(wanted, replicas)
    except DataError:
        return "" if script["per_pass"] == 0 else "the trainer refuses it"
    per_epoch = plan.steps_per_epoch(wanted.train, ours.batches_per_pass)
    steps = (per_epoch, per_epoch * wanted.train.epochs)
    if (script["steps_per_epoch"], script["steps"]) != steps:
        return f"steps {script['steps_per_epoch'], script['steps']} instead of {steps}"
    if script["decay"] != plan.decay_steps(wanted.train, steps[1], per_epoch):
        return f"the rate falls after {script['decay']} steps"
    together = plan.steps_together(per_epoch, wanted.compile.steps_per_execution) if replicas == 1 else 1
    if script.get("together", 1) != together:
        return f"executions of {script.get('together', 1)} steps instead of {together} in epochs of {per_epoch}"
    return differing_batches(script, ours)


def differing_batches(script: dict[str, Any], ours: Any) -> str:
    more = ours.batches_per_pass + 2
    if labels(script["train"], more) != labels(ours.train.global_batches(0), more):
        return "other batches"
    validated = [] if script["validation"] is None else labels(script["validation"], 99)
    if validated != (labels(ours.held_out.global_batches(0), ours.validation_batches) if ours.held_out else []):
        return "other validation batches"
    return ""


def grid() -> list[Case]:
    """Cases in which any two sizes meet, of those that train and of those that are refused as nothing is left."""
    every = [dict(zip(SIZES, values, strict=True)) for values in itertools.product(*SIZES.values())]
    kinds = ([tuple(case.values()) for case in every if fills_a_batch(case) == fills] for fills in (True, False))
    return [dict(zip(SIZES, case, strict=True)) for cases in kinds for case in some_of(2, cases)]


def fills_a_batch(case: Case) -> bool:
    samples = plan.trained_samples(case["samples"], case["validation_split"])
    drop, replicas = case["drop_remainder"] == "true", case["replicas"]
    return plan.batches_per_pass(samples, case["batch_size"] * replicas, replicas, drop) > 0


@pytest.mark.usefixtures("cpus")
@pytest.mark.nightly
def test_the_script_runs_the_steps_of_the_trainer_over_a_grid_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps and batches wherever any two sizes meet."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the script sets it
    found = {str(case): compared(wanted(case), case["replicas"]) for case in grid()}
    found[str(DIGITS)] = compared(options(*DIGITS), 2)
    assert {case: why for case, why in found.items() if why} == {}


@pytest.mark.usefixtures("cpus")
def test_the_script_builds_the_models_of_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer by layer, with all their settings: so the deepest one, too, trains as those whose losses are compared.

    The transformer, whose section is not complete by itself, is compared by its losses.
    """
    import keras

    from tests.doors.trainer import models

    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the script sets it
    with all_hold() as cases:
        for name in sorted({*MODELS} - {"transformer"}):
            with cases.case(name):
                wanted = options(f"model={name}", "width=0.05", "data=digits")
                names, sections = begun(wanted)
                names |= {"shape": (8, 8, 1), "classes": 10}
                exec(compile(sections["model"], "model", "exec"), names)
                built = []
                for build in (names["build"], lambda: models.build(wanted, (8, 8, 1), 10)):  # noqa: B023
                    keras.utils.clear_session()  # layers are numbered from one again
                    built.append(build().get_config())
                assert built[0] == built[1]
                assert len(built[0]["layers"]) > 3
