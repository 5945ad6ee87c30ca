"""Presets: how their values come together, and how every fault in one is told."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.files import places
from gputui.engine.options import OPTIONS
from gputui.engine.presets import PresetError
from gputui.tui import cli

from tests.support.broken_presets import Broken, all_broken
from tests.support.cases import all_hold

BROKEN = all_broken()


def problem(place: Path | str, *settings: str) -> str:
    """The one line that tells what is wrong with a preset."""
    with pytest.raises(PresetError) as raised:
        presets.resolve(str(place), settings)
    return str(raised.value).splitlines()[0]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# ---- what a preset means ----------------------------------------------------------------------


def test_defaults_lose_to_extends_loses_to_the_file_loses_to_set(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "train: {epochs: 3, learning_rate: 0.5, warmup_steps: 9}\n")
    path = write(tmp_path / "mine.yaml", "extends: base.yaml\ntrain: {epochs: 4, learning_rate: 0.25}\n")
    train = presets.resolve(str(path), ["train.epochs=5"]).options.train
    assert (train.epochs, train.learning_rate, train.warmup_steps, train.optimizer) == (5, 0.25, 9, "adam")


def test_a_setting_changes_one_value_of_the_arguments_of_own_code(tmp_path: Path) -> None:
    text = "workload: {entry: 'a.py:build', args: {rate: 0.1, head: {units: 3, bias: false}}}\n"
    path = str(write(tmp_path / "mine.yaml", text))
    for settings, args in (
        (["workload.args.rate=0.2"], {"rate": 0.2, "head": {"units": 3, "bias": False}}),
        (["args.head.units=4", "args.new=[1]"], {"rate": 0.1, "head": {"units": 4, "bias": False}, "new": [1]}),
        (["args.rate=0.2", "workload.args={a: 1}"], {"a": 1, "rate": 0.2}),
    ):
        assert presets.resolve(path, settings).options.workload.args == args
    assert problem(path, "args.=3").endswith("unknown option, did you mean args?")
    assert "workload.args: " in problem(path, "args.rate=2001-01-01")
    assert presets.resolve("quickstart", ["args.a.b=1"]).options.workload.args == {"a": {"b": 1}}


def test_a_value_within_an_argument_that_is_no_mapping_replaces_it() -> None:
    for before in ("5", "[1, 2]", "text", "null"):
        preset = presets.defaults([f"args={{a: {before}, b: 3}}", "args.a.c.d=1"])
        assert preset.options.workload.args == {"a": {"c": {"d": 1}}, "b": 3}, before


def test_a_long_setting_is_named_by_its_beginning_and_a_run_is_no_base(home: Path, tmp_path: Path) -> None:
    assert presets.defaults().name == "default"
    (home / "runs" / "20260921-100000-cnn").mkdir(parents=True)
    child = write(tmp_path / "child.yaml", "extends: run:20260921-100000-cnn\n")
    assert problem(child).startswith(f"{child}:1: extends: 'run:20260921-100000-cnn': no preset of this name (known: ")
    fits = "does not fit: give a whole number from 1 to 1,000,000"
    assert problem("quickstart", "epochs=" + "9" * 99) == (
        f"--set epochs={'9' * 53}...: train.epochs: {'9' * 40}... {fits}"
    )
    no_value = "give KEY=VALUE, such as input.batch_size=256"
    for given, shown in (("x" * 60, "x" * 60), ("x" * 61, "x" * 60 + "...")):
        assert problem("quickstart", given) == f"--set {shown}: {no_value}"


def test_own_code_takes_the_place_of_a_bases_model_and_data(tmp_path: Path) -> None:
    base, child = tmp_path / "base.yaml", tmp_path / "child.yaml"
    base.write_text("workload: {model: mlp, data: synthetic, samples: 80}\ntrain: {epochs: 9}\n")
    child.write_text("extends: base.yaml\nworkload: {entry: 'train.py:build'}\n")
    unchanged = presets.defaults().options.workload
    for preset in (presets.resolve(str(child)), presets.resolve(str(base), ["entry=train.py:build"])):
        workload = preset.options.workload
        assert (workload.model, workload.data, workload.samples) == (unchanged.model, unchanged.data, None)
        assert preset.options.train.epochs == 9
        assert set(preset.origins) == {"workload.entry", "train.epochs"}
    child.write_text("extends: base.yaml\nworkload: {entry: 'train.py:build', samples: 7}\n")
    assert presets.resolve(str(child)).options.workload.samples == 7, "what the file itself says is refused later"
    for preset in (presets.resolve(str(base), ["entry=null"]), presets.resolve(str(child), ["entry=null"])):
        assert preset.options.workload.entry is None
    assert presets.resolve(str(base), ["entry=null"]).options.workload.model == "mlp"
    base.write_text("workload: {entry: null, model: mlp}\n")
    child.write_text("extends: base.yaml\nworkload: {entry: null}\n")
    assert [presets.resolve(str(path)).options.workload.model for path in (base, child)] == ["mlp", "mlp"]


def test_a_typed_path_takes_the_place_of_one_that_counts_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, file = tmp_path / "here", tmp_path / "there" / "a.yaml"
    for folder in (here, file.parent):
        folder.mkdir()
    file.write_text("workload: {data: 'npz:a.npz'}\ninput: {cache: kept}\n")
    monkeypatch.chdir(here)
    options = presets.resolve(str(file), ["data=npz:b.npz"]).options
    assert (options.workload.data, options.input.cache) == (f"npz:{here}/b.npz", f"{file.parent}/kept")


def test_all_problems_are_named_in_the_order_of_their_lines(tmp_path: Path) -> None:
    base, child = tmp_path / "a.yaml", tmp_path / "b.yaml"
    base.write_text("train: {epochs: many}\n")
    child.write_text("extends: a.yaml\ntrain:\n  seed: x\n  sed: 1\ninput:\n  cache: 3\n  shufle: 1\n")
    with pytest.raises(PresetError) as fault:
        presets.resolve(str(child))
    found = [(Path(problem.place).name, problem.line, problem.key) for problem in fault.value.problems]
    assert found == [
        ("a.yaml", 1, "train.epochs"), ("b.yaml", 3, "train.seed"), ("b.yaml", 4, "train.sed"),
        ("b.yaml", 6, "input.cache"), ("b.yaml", 7, "input.shufle"),
    ]  # fmt: skip


def test_extends_finds_a_file_beside_the_preset_and_a_shipped_preset_by_name(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "base.yaml", "extends: quickstart\ntrain: {epochs: 3}\n")
    path = write(tmp_path / "mine.yaml", "extends: deep/base.yaml\n")
    options = presets.resolve(str(path)).options
    assert options.train.epochs == 3
    assert options.input == presets.resolve("quickstart").options.input


def test_a_users_preset_is_found_by_name(tmp_path: Path) -> None:
    users = tmp_path / "config" / "gputui" / "presets"
    write(users / "mine.yml", "train: {epochs: 98}\n")
    assert presets.resolve("mine").options.train.epochs == 98
    write(users / "mine.yaml", "train: {epochs: 99}\n")
    assert presets.resolve("mine").options.train.epochs == 99
    assert [path.name for path in places.presets_in(users)] == ["mine.yaml"]


def test_a_file_of_the_same_name_in_the_current_folder_is_told_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    users = write(tmp_path / "config" / "gputui" / "presets" / "night.yaml", "train: {epochs: 99}\n")
    assert cli.run(["--preset", "night", "--dry-run"]) == 0
    assert capsys.readouterr().err == ""
    write(tmp_path / "night.yaml", "description: of this folder\ntrain: {epochs: 3}\n")
    write(tmp_path / "quickstart.yaml", "services: {a: 1}\n")  # no preset
    assert cli.run(["--preset", "night", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert said.err == f"night is {users}; the file in this folder is another preset: give ./night.yaml for it\n"
    assert "epochs: 99" in said.out
    for given in ("./night.yaml", "quickstart", str(users)):
        assert cli.run(["--preset", given, "--dry-run"]) == 0
        assert capsys.readouterr().err == ""
    assert cli.run(["presets", "list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["./night.yaml", "in", "this", "folder", "of", "this", "folder"] in rows
    assert ["night", "yours"] in rows


def test_a_run_is_named_by_its_id_and_its_options_are_taken(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.create("my-own", presets.resolve("quickstart", ["epochs=7"]).to_yaml())
    for given in (f"run:{run.id}", "run:my-own"):
        found = presets.resolve(given, ["batch_size=9"])
        assert (found.name, found.options.train.epochs, found.options.input.batch_size) == ("my-own", 7, 9)
    for given, why in (("run:nobody", "there is no such run"), ("run:", "there is no such run")):
        assert cli.run(["--preset", given, "--dry-run"]) == 2
        assert why in capsys.readouterr().err
    for command in (["--preset", "run:latest", "--dry-run"], ["presets", "show", "run:latest"]):
        assert cli.run(command) == 0
        assert "epochs: 7" in capsys.readouterr().out
    assert cli.run(["presets", "check", "run:latest"]) == 0
    assert capsys.readouterr().out == f"run:{run.id}: good\n"
    runs.create("watched", "schema_version: 1\ntrain: {epochs: 3}\n")  # as Monitor writes it
    for command in (["--preset", "run:watched", "--dry-run"], ["export", "--preset", "run:watched"]):
        assert cli.run(command) == 2, "no other model is trained in its name"
        assert "'run:watched': is a fit of your own script, which gputui cannot start" in capsys.readouterr().err
    runs.create("my-own", presets.resolve("quickstart").to_yaml())
    assert cli.run(["--preset", "run:my-own", "--dry-run"]) == 2
    assert "2 runs have that in their ids" in capsys.readouterr().err


def test_a_preset_is_called_as_its_file_or_as_its_folder_where_the_file_is_preset_yaml(tmp_path: Path) -> None:
    users = tmp_path / "config" / "gputui" / "presets"
    for file, name in ((tmp_path / "vision" / "preset.yaml", "vision"), (tmp_path / "vision" / "fast.yaml", "fast"),
                       (users / "preset.yaml", "preset")):  # fmt: skip
        assert presets.resolve(str(write(file, "train: {epochs: 2}\n"))).name == name


def test_a_run_of_a_run_has_the_presets_name_without_the_time_of_the_run(home: Path) -> None:
    for folder, name in ((home / "runs" / "20260102-030405-vision", "vision"), (home / "20260102-030405-vision", None)):
        path = write(folder / "preset.yaml", "train: {epochs: 2}\n")
        assert presets.resolve(str(path)).name == (name or folder.name)


def test_origins_tell_where_a_value_came_from(tmp_path: Path) -> None:
    base = write(tmp_path / "base.yaml", "train:\n  epochs: 3\n  seed: 1\n")
    path = write(tmp_path / "mine.yaml", "extends: base.yaml\ninput:\n\n  shuffle: off\n")
    origins = presets.resolve(str(path), ["seed=2"]).origins
    assert origins["train.epochs"] == (str(base), 2)
    assert origins["input.shuffle"] == (str(path), 4)
    assert origins["train.seed"][0] == "--set seed=2"
    assert "train.optimizer" not in origins


def test_the_description_is_that_of_the_file(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "description: the base\n")
    assert presets.resolve(str(write(tmp_path / "a.yaml", "extends: base.yaml\n"))).description == "the base"
    own = write(tmp_path / "b.yaml", "extends: base.yaml\ndescription: my own\n")
    assert presets.resolve(str(own)).description == "my own"


def test_a_resolved_preset_written_out_resolves_to_the_same(tmp_path: Path) -> None:
    settings = ["prefetch=off", "shuffle=off", "data=npz:a b.npz", "visible=0,1", "learning_rate=1e-5", "profile=3-4"]
    first = presets.resolve("quickstart", settings)
    text = first.to_yaml()
    assert {"input:", "  batch_size: 32", "  shape: [32, 32, 3]", "  args: {}"} < set(text.splitlines())
    again = presets.resolve(str(write(tmp_path / "out.yaml", text)))
    assert again.options == first.options
    assert again.description == first.description


def test_an_empty_group_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", "train:\ninput: {}\n")
    assert presets.resolve(str(path)).changed() == {}


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("batch_size=256", "input.batch_size", 256),
        ("input.batch_size= 256 ", "input.batch_size", 256),
        ("learning_rate=1e-3", "train.learning_rate", 0.001),
        ("cache=off", "input.cache", "off"),
        ("prefetch=off", "input.prefetch", "off"),
        ("profile=off", "run.profile", "off"),
        ("hang_seconds=off", "run.hang_seconds", "off"),
        ("xla=on", "compile.xla", True),
        ("xla=no", "compile.xla", False),
        ("seed=null", "train.seed", None),
        ("seed=", "train.seed", None),
        ("shape=[8, 8, 1]", "workload.shape", [8, 8, 1]),
        ("visible=0,1", "device.visible", [0, 1]),
        ("visible=1", "device.visible", [1]),
        ("visible=GPU-7,MIG-8", "device.visible", ["GPU-7", "MIG-8"]),
        ("visible= 1 , GPU-7 ", "device.visible", [1, "GPU-7"]),
        ("devices=2, 0", "strategy.devices", [2, 0]),
        ("augment= blur , flip", "input.augment", ["blur", "flip"]),
        ("follow=mlflow , tensorboard", "run.follow", ["mlflow", "tensorboard"]),
        ("args=", "workload.args", {}),
        ("data=npz: /a.npz", "workload.data", "npz:/a.npz"),
        ("data={npz: /a.npz}", "workload.data", "npz:/a.npz"),
        ("data=npz : /a:b.npz ", "workload.data", "npz:/a:b.npz"),
        ("data=npz:/a/b=c.npz", "workload.data", "npz:/a/b=c.npz"),
    ],
)
def test_a_setting_is_read_like_yaml(setting: str, key: str, value: object) -> None:
    assert presets.defaults([setting]).changed().get(key, _default(key)) == value


def _default(key: str) -> object:
    return next(info.default for info in OPTIONS if info.key == key)


def test_the_last_of_two_settings_wins() -> None:
    assert presets.defaults(["epochs=3", "train.epochs=4"]).options.train.epochs == 4


@pytest.mark.parametrize(
    ("version", "shown"),
    [("true", "true"), ("2", "2"), ("'1'", "'1'"), ("[1]", "[1]"), ("~", "null"), ("2026-11-27", "2026-11-27")],
)
def test_a_version_that_is_not_read_is_named(version: str, shown: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", f"train: {{epochs: 2}}\nschema_version: {version}\n")
    assert problem(path) == f"{path}:2: schema_version: this gputui reads version 1, not {shown}"


# ---- what is said when it is wrong ------------------------------------------------------------


def test_an_unknown_option_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", "\ninput:\n  batchsize: 3\n")
    assert problem(path) == f"{path}:3: input.batchsize: unknown option, did you mean input.batch_size?"


def test_an_option_without_its_group_is_named_with_the_group(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", "batch_size: 3\n")
    assert problem(path) == f"{path}:1: batch_size: unknown key, did you mean input.batch_size?"


def test_a_wrong_value_is_shown_with_what_fits(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml", "input:\n  batch_size: many\n")
    told = problem(path)
    assert told.startswith(f"{path}:2: input.batch_size: 'many' does not fit: give a whole number from 1")


def test_a_fault_in_the_extended_file_names_that_file(tmp_path: Path) -> None:
    base = write(tmp_path / "base.yaml", "train:\n  epochs: none\n")
    path = write(tmp_path / "mine.yaml", "extends: base.yaml\n")
    assert problem(path).startswith(f"{base}:2: train.epochs: ")


def test_a_value_of_the_base_is_not_at_fault_when_the_file_mends_it(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "train: {epochs: none}\n")
    path = write(tmp_path / "mine.yaml", "extends: base.yaml\ntrain: {epochs: 3}\n")
    assert presets.resolve(str(path)).options.train.epochs == 3


def test_extends_that_leads_nowhere_names_the_extending_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # of a path that is long the message would lose its middle
    path = write(Path("mine.yaml"), "description: x\nextends: quikstart\n")
    told = problem(path)
    assert told.startswith(f"{path}:2: extends: ")
    assert "did you mean quickstart?" in told


def test_extends_in_a_circle_is_told_with_the_way(tmp_path: Path) -> None:
    a = write(tmp_path / "a.yaml", "extends: b.yaml\n")
    write(tmp_path / "b.yaml", "extends: c.yaml\n")
    write(tmp_path / "c.yaml", "extends: a.yaml\n")
    told = problem(a)
    assert told.startswith(f"{a}:1: extends: ")
    assert "a.yaml -> b.yaml -> c.yaml" in told


def test_extends_of_itself_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "extends: ./a.yaml\n")
    assert ":1: extends: extends itself" in problem(path)


def test_a_preset_of_the_user_extends_the_shipped_one_of_its_name(home: Path) -> None:
    shipped = presets.resolve("quickstart").options.train
    write(presets.user_folder() / "quickstart.yaml", "extends: quickstart\ntrain: {epochs: 3}\n")
    assert presets.resolve("quickstart").options.train == replace(shipped, epochs=3)
    write(presets.user_folder() / "mine.yaml", "extends: mine\n")
    assert "extends itself" in problem("mine")


def test_a_very_long_chain_of_extends_is_refused(tmp_path: Path) -> None:
    for number in range(400):
        write(tmp_path / f"p{number}.yaml", f"extends: p{number + 1}.yaml\n")
    assert ":1: extends: " in problem(tmp_path / "p0.yaml")


@pytest.mark.parametrize(("files", "fits"), [(21, True), (22, False)])
def test_twenty_presets_can_be_extended_in_a_row(tmp_path: Path, files: int, fits: bool) -> None:
    write(tmp_path / f"p{files - 1}.yaml", "train: {epochs: 7}\n")
    for number in range(files - 1):
        write(tmp_path / f"p{number}.yaml", f"extends: p{number + 1}.yaml\n")
    if fits:
        assert presets.resolve(str(tmp_path / "p0.yaml")).options.train.epochs == 7
    else:
        assert "more than 20 presets extend one another" in problem(tmp_path / "p0.yaml")


@pytest.mark.parametrize("base", ['""', "3", "[a]"])
def test_a_base_that_is_no_name_is_told(tmp_path: Path, base: str) -> None:
    said = problem(write(tmp_path / "a.yaml", f"train: {{epochs: 2}}\nextends: {base}\n"))
    assert said.endswith("a.yaml:2: extends: give the name or path of another preset")


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("epochs", "give KEY=VALUE"),
        ("epoch=3", "did you mean epochs?"),
        ("=3", "unknown option"),
        ("epochs=many", "train.epochs: 'many' does not fit: give a whole number"),
        ("train.epochs=[1]", "train.epochs=[1]: [1] does not fit"),
        ("epochs=*a", "train.epochs: '*a' does not fit"),
        ("epochs=" + "9" * 5000, "train.epochs: "),
        ("input=3", "unknown option"),
    ],
)
def test_a_wrong_setting_is_told_as_what_was_given(setting: str, part: str) -> None:
    told = problem("quickstart", setting)
    assert told.startswith("--set " + setting[:20])
    assert part in told
    assert len(told) < 400


def test_a_value_given_to_a_group_is_told_the_option(tmp_path: Path) -> None:
    for text, meant in (("precision: mixed_bfloat16", "values, such as precision: {policy: mixed_bfloat16}"),
                        ("input: auto", "values, such as input: {parallel_calls: auto}"), ("input: ring", "to values"),
                        ("device: auto", "values, such as device: {memory_growth: auto}"),
                        ("train: 3", "must be a mapping of options to values")):  # fmt: skip
        assert problem(write(tmp_path / "x.yaml", text)).endswith(meant)


def test_a_missing_preset_is_told_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--preset", "quickstar"]) == 2
    assert "did you mean quickstart?" in capsys.readouterr().err


def test_python_code_is_told_to_need_a_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "my train.py", "x = {1: 2}\n")
    monkeypatch.chdir(tmp_path)
    for code, *words in (("my train.py",), ("./my train.py", "--preset")):
        words.append(code)
        assert cli.run(words) == 2
        told = capsys.readouterr().err
        line = 'workload: {entry: "my train.py:build"}'
        assert told.startswith(f"{code}: Python code: write {line} into a preset.yaml next to it")


NO_FILES = ["no.yaml", "no/such/folder/x.yaml", "a" * 5000 + ".yaml", "", ".", "a\nb.yaml", "\x1b[2J"]


@pytest.mark.parametrize("name", NO_FILES, ids=range(len(NO_FILES)))
def test_a_missing_file_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--preset", name]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "\x1b" not in told


def test_a_folder_is_told_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--preset", f"{tmp_path}/"]) == 2
    assert "is a folder" in capsys.readouterr().err


def test_there_are_over_200_broken_presets() -> None:
    assert len({broken.content for broken in BROKEN}) >= 200


def test_a_broken_preset_is_told_in_a_line_for_each_of_its_faults_with_its_place(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], snapshot: Any
) -> None:
    lines = []
    home.write_text("a file: nothing can be launched below it")
    monkeypatch.chdir(tmp_path)
    with all_hold() as cases:
        for broken in BROKEN:
            with cases.case(broken.name):
                Path("broken.yaml").write_bytes(broken.content)
                code = cli.run(["--preset", "broken.yaml"])
                told = capsys.readouterr()
                _is_well_told(broken, code, told.out, told.err)
                lines += [] if "." in broken.name else [f"{broken.name}: {told.err}"]
    assert "".join(lines) == snapshot


def _is_well_told(broken: Broken, code: int, out: str, err: str) -> None:
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    faults = [line for line in err.splitlines() if line.startswith(("broken.yaml:", "and "))]
    assert 1 <= err.count("\n") <= max(2, len(faults)) <= 6, err
    assert err.startswith(f"broken.yaml:{max(1, broken.line)}: {broken.key}"), err
    assert all(c.isprintable() or c == "\n" for c in err)
    assert len(err) < 700


# All of BROKEN are told by the same code above.
FROM_A_SHELL = ("empty", "elf", "tab", "bomb", "deep-list", "run-list", "input.shuffle-huge", "input.shuffle-misspelt")


def test_the_command_tells_a_broken_preset_likewise(tmp_path: Path, home: Path) -> None:
    home.write_text("a file: nothing can be launched below it")
    by_name = {broken.name: broken for broken in BROKEN}
    command = [str(Path(sys.executable).with_name("gputui")), "--preset", "broken.yaml"]
    with all_hold() as cases:
        for name in FROM_A_SHELL:
            with cases.case(name):
                (tmp_path / "broken.yaml").write_bytes(by_name[name].content)
                done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
                _is_well_told(by_name[name], done.returncode, done.stdout, done.stderr)
