"""The exported script of a user's own code: it runs their build without gputui, and trains to the same losses."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from gputui.engine import presets
from gputui.engine.export import export_folder, form
from gputui.engine.export.form import Form
from gputui.engine.export.script import to_script
from gputui.engine.options import OPTIONS
from gputui.engine.presets import Preset
from gputui.tui import cli

from tests.end_to_end.test_export import CHANGES, NEEDS, NOT_IN_A_SCRIPT, SPECIAL
from tests.support.cases import all_hold
from tests.support.exporting import changed_lines, closing_list, form_of, losses_of_command, named, trained_by_both
from tests.support.forking import Forks

pytestmark = pytest.mark.usefixtures("nothing_left_running")

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
    "images": """
        pictures = rng.random((60, 6, 6, 1)).astype("float32")
        made = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])
        some = (pictures[:20], pictures[:20].sum(axis=(1, 2, 3)))
        return {"model": made, "train": (pictures, pictures.sum(axis=(1, 2, 3))), "validation": some, "loss": "mse"}""",
    "pages": "return compiled(), Pages(context.global_batch_size - 1), Pages(11)",  # odd sizes for two replicas
}
SETTINGS = {
    "arrays": ["schedule=cosine", "warmup_steps=3", "steps_per_execution=3", "clip_norm=1", "optimizer=sgd"],
    "split": ["shuffle=1000"],
    "mapped": ["steps_per_epoch=4", "cache=memory", "args={by: 0.5}"],
    "images": ["augment=light", "shuffle=9"],
    "pages": ["strategy.kind=mirrored", "logical_devices=2", "batch_size=10"],
    "batched": ["prefetch=off", "parallel_calls=off", "stop_on_nan=false"],
}

OF_ARRAYS = Form("arrays", "arrays", is_split=True, given=frozenset({"loss"}), images=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine"
    path.mkdir()
    monkeypatch.chdir(path)
    (path / "beside.py").write_text("SHIFT = 0.5\n")
    return path


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command exports without calling build."""
    monkeypatch.setattr(form, "asked", lambda preset: OF_ARRAYS)


def write(folder: Path, form: str) -> None:
    (folder / "train.py").write_text(HEAD + textwrap.indent(textwrap.dedent(FORMS[form]), "    "))


def script(*settings: str, form: Form = OF_ARRAYS) -> str:
    return to_script(presets.defaults(["entry=train.py:build", *settings]), form=form)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
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


@pytest.mark.slow
def test_the_script_keeps_the_weights_of_a_model_that_keras_cannot_save(folder: Path, forks: Forks) -> None:
    model = """
    class Mine(keras.Model):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer
        def call(self, data):
            return self.layer(data)
        def get_config(self):
            raise NotImplementedError("no config")
    return {"model": Mine(model()), "train": (x, y), "validation": (x, y), "loss": "mse"}"""
    (folder / "train.py").write_text(HEAD + model)
    settings = ["deterministic=true", "shuffle=off", "epochs=2", "seed=5", "batch_size=20", "entry=train.py:build"]
    preset = presets.defaults([*settings, "keep_best=val_loss", "save_model=true", "checkpoint=off"])
    run, ours, theirs = trained_by_both(forks, preset, folder)
    assert len(ours) == 2
    assert ours == pytest.approx(theirs, rel=1e-6)
    for name in ("best.weights.h5", "model.weights.h5"):
        assert (folder / name).is_file(), name
    assert run.file("model.weights.h5").is_file()


def exported_and_moved(preset: Preset, folder: Path, form: Form | None) -> tuple[Preset, Path]:
    """The preset of the exported folder, somewhere else, and that place; the code is no longer where it was."""
    export_folder.export(preset, folder.parent / "exported", form)
    moved = folder.parent / "an other's [machine]" / "moved"
    moved.parent.mkdir()
    (folder.parent / "exported").rename(moved)
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return presets.resolve(str(moved / "default.yaml")), moved


@pytest.mark.usefixtures("unasked")
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


@pytest.mark.usefixtures("unasked")
def test_a_script_with_a_path_of_this_machine_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "arrays")
    (folder / "night.yaml").write_text("workload: {entry: 'train.py:build'}\n")
    assert cli.run(["export", "--preset", "night.yaml", "-o", "out.py"]) == 0
    told = capsys.readouterr().err
    assert f"names {folder} of this machine; -o FOLDER/ exports a folder" in told
    assert cli.run(["export", "--preset", "quickstart", "--set", "data=synthetic", "-o", "plain.py"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_export_warns_as_the_run_does_of_samples_that_are_read_ahead(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = """
        import keras
        import numpy as np
        import tensorflow as tf

        LEVEL = tf.Variable(1.0)


        def build(context):
            x = np.ones((20, 4), "float32")
            data = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).repeat()
            net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            net.compile("sgd", "mse")
            return {"model": net, "train": data, "map": lambda x, y: (x * LEVEL, y)}
        """
    (folder / "train.py").write_text(textwrap.dedent(body))
    (folder / "night.yaml").write_text("workload: {entry: 'train.py:build'}\ntrain: {steps_per_epoch: 2}\n")
    assert cli.run(["export", "--preset", "night.yaml", "-o", "out.py"]) == 0
    assert "a function of the Dataset reads a variable; return samples next to it" in capsys.readouterr().err


@pytest.mark.slow
def test_the_script_runs_from_anywhere_with_everything_switched(folder: Path, tmp_path: Path) -> None:
    write(folder, "arrays")
    settings = ["xla=true", "precision.policy=mixed_bfloat16", "cache=kept", "save_model=true", "checkpoint=epoch",
                "max_minutes=9", "augment=light", "deterministic_order=false", "batch_size=55", "epochs=2"]  # fmt: skip
    code = script(*settings)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    losses = losses_of_command(code, elsewhere)
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))
    assert (folder / "model.keras").is_file()
    assert list((folder / "kept").iterdir())


@pytest.mark.parametrize("entry", ["train.py:build", "pkg.train:build", '/a b/it\'s "mine".py:build'])
def test_scripts_compile_and_do_without_gputui(entry: str) -> None:
    for settings in ([], [f"{key}={text}" for key, text in own_changes().items()]):
        code = script(f"entry={entry}", *settings)
        tree = ast.parse(code)
        imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not [node for node in imported if "gputui" in ast.unparse(node)]
        assert "\n\n\n\n" not in code
    if entry.startswith("/"):
        strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert {'/a b/it\'s "mine".py', "/a b", 'it\'s "mine"'} <= strings


UNREAD = {info.key for info in OPTIONS if info.about.own == "unread"}  # what only data that gputui reads can take

NOISY = """
import keras, tensorflow as tf
class Mine(keras.Model):
    def train_step(self, data):
        return {"loss": tf.reduce_mean(data[0] + tf.random.normal((4,)) + tf.random.uniform((4,), seed=3))}
    def call(self, x):
        return x + keras.random.normal((4,)) + tf.random.Generator.from_seed(1).normal((4,))
def build(context):
    at_once = tf.random.stateless_normal((3,), (1, 2))
    return Mine(), (at_once, at_once)
"""


def test_draws_that_differ_in_keras_own_fit_are_named_in_the_script(folder: Path) -> None:
    write(folder, "arrays")
    assert "Losses differ" not in script()
    (folder / "train.py").write_text(NOISY)
    code = script()
    assert "# Losses differ from gputui's" in code
    assert [line.strip() for line in code.splitlines() if line.startswith("    #   ")] == [
        "#   tf.random.normal in train_step (train.py:5)"
    ]
    compile(code, "exported.py", "exec")


def own_changes() -> dict[str, str]:
    """What can be changed beside an entry."""
    replaced = {info.key for info in OPTIONS if info.about.own == "replaced"}
    return {key: text for key, text in CHANGES.items() if key not in replaced}


def test_every_changed_option_is_named_at_a_line_or_left_out_with_a_reason() -> None:
    with all_hold() as cases:
        for key, text in own_changes().items():
            with cases.case(key):
                needs = () if key in UNREAD else NEEDS.get(key, ())  # data that gputui reads
                code = script("train.schedule=cosine", *needs, f"{key}={text}")
                left = {key} & (NOT_IN_A_SCRIPT | UNREAD)
                assert (key in named(code)) == (not left)
                assert set(closing_list(code)) == left


def test_the_lines_of_options_and_those_that_an_option_changes(folder: Path, snapshot: Any) -> None:
    write(folder, "arrays")
    base = script("train.schedule=cosine")
    changed = [line for line in base.splitlines() if re.search(r"# [a-z]+\.[a-z_]+", line)]
    for key, text in own_changes().items():
        changed += [f"{key}={text}", *changed_lines(base, script("train.schedule=cosine", f"{key}={text}"), key)]
    assert "\n".join(changed).replace(str(folder), "FOLDER") == snapshot


def test_what_their_code_reads_itself_is_left_out_for_that_reason() -> None:
    assert {"train.validation", "input.parallel_reads"} <= UNREAD
    for key in UNREAD:
        assert closing_list(script(f"{key}={(CHANGES | SPECIAL)[key]}")) == {key: "your code reads its data itself"}


def test_the_entry_its_arguments_and_its_folder_are_named(tmp_path: Path) -> None:
    code = script('args={units: [1, 0.5, null], name: "a\'b"}', f"workload.folder={tmp_path}")
    assert {"workload.entry", "workload.args", "workload.folder"} <= named(code)
    assert """args={"units": [1, 0.5, None], "name": "a'b"},  # workload.args""" in code
    assert f'os.chdir("{tmp_path}")' in code
    assert f'"{tmp_path}/train.py"' in code


def test_the_context_is_that_of_gputui() -> None:
    from gputui.engine.trainer.own.building import Context

    calls = [node for node in ast.walk(ast.parse(script())) if isinstance(node, ast.Call)]
    (made,) = [call for call in calls if ast.unparse(call.func) == "SimpleNamespace"]
    assert [keyword.arg for keyword in made.keywords] == [field.name for field in dataclasses.fields(Context)]


def test_fit_gets_what_the_code_returns_for_it() -> None:
    given = frozenset({"class_weight", "initial_epoch", "validation_freq", "validation_steps"})
    for kinds, expected in (
        (("pydataset", "batched"), given), (("arrays", "arrays"), {"initial_epoch", "validation_freq"}),
        (("batched", "pydataset"), given - {"class_weight"}),
    ):  # fmt: skip
        for some in (given, frozenset[str]()):
            tree = ast.parse(script(form=Form(*kinds, given=some)))
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            (fit,) = [call for call in calls if ast.unparse(call.func) == "model.fit"]
            words = {word.arg: ast.unparse(word.value) for word in fit.keywords if word.arg in given}
            assert words == {name: f"made['{name}']" for name in expected & some}


def test_weights_that_keras_cannot_save_have_no_checkpoints() -> None:
    (line,) = [line for line in script("checkpoint=3").splitlines() if "step.weights.h5" in line]
    for saves in (True, False):
        names = {"keras": keras, "model": 0, "train": 1, "saves_weights": lambda model, train, saves=saves: saves}
        assert len(eval(f"[{line}\n]", names)) == int(saves)


def test_what_keras_does_by_itself_with_a_pydataset_is_said() -> None:
    pages = Form("pydataset")
    assert "Of a keras.utils.PyDataset also not" in script(form=pages)
    assert "nor train.steps_per_epoch" in script("steps_per_epoch=5", form=pages)
    assert "Of a keras.utils.PyDataset" not in script()


# ---- gputui export ----------------------------------------------------------------------------------


def test_export_writes_a_script_and_never_over_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "arrays")
    (folder / "preset.yaml").write_text("workload: {entry: 'train.py:build'}\n")
    assert cli.run(["export", "--preset", "preset.yaml", "-o", "out.py"]) == 0
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


def test_code_that_cannot_run_is_not_exported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "preset.yaml").write_text("workload: {entry: 'train.py:build'}\n")
    assert cli.run(["export", "--preset", "preset.yaml", "-o", "out.py"]) == 2
    assert "train.py does not exist" in capsys.readouterr().err
    assert not (folder / "out.py").exists()
