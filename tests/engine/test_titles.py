"""A run is named by its preset and by what was changed of it."""

from __future__ import annotations

from pathlib import Path

from gputui.engine import presets, runs
from gputui.engine.compare.baseline import LineUp
from gputui.engine.compare.comparison import compare
from gputui.engine.process import launch
from gputui.engine.runs import Run, title
from gputui.engine.runs.titles import Title, leave_out, recorded, title_of


def started(name: str, *settings: str) -> Run:
    """The folder of a run as the launcher makes it."""
    preset = presets.resolve(name, settings)
    return runs.create(preset.name, launch.settle(preset, Path.cwd()).to_yaml(), launch.origin_of(preset))


def test_a_run_is_named_by_what_was_changed_of_its_preset(home: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("extends: quickstart\ncompile: {xla: true}\ninput: {batch_size: 32}\n")
    plain, changed = started(str(own)), started(str(own), "batch_size=256", "xla=false", "tf32=true")
    assert title(plain) == "mine"
    assert title(changed) == "mine: no xla batch_size=256", "what the preset says anyway is no change"
    assert title(started("quickstart", "xla=true", "data=tfrecord:/data/x/train-*.tfrecord", "max_minutes=5")) == (
        "quickstart: xla data=tfrecord:train-*.tfrecord max_minutes=5"
    )
    again = started(str(changed.file("preset.yaml")), "epochs=7", "batch_size=32")
    assert title(again) == "mine: no xla epochs=7", "the changes of a run that is run again add up"
    own.write_text("broken: [")
    own.rename(tmp_path / "gone.yaml")
    assert title(changed) == "mine: no xla batch_size=256", "whatever becomes of the preset"
    found = compare(LineUp((plain, changed)))
    assert found.as_dict()["titles"] == ["mine", "mine: no xla batch_size=256"]


def test_what_did_nothing_is_not_in_the_title_until_it_applies(home: Path) -> None:
    run = started("quickstart", "batch_size=256", "xla=true")
    leave_out(run, {"input.batch_size": "your code has batched the data", "input.cache": "the same"})
    assert title(run) == "quickstart: xla"
    again = started(str(run.file("preset.yaml")), "epochs=7")
    assert title(again) == "quickstart: xla batch_size=256 epochs=7", "nothing is known of it before it has begun"
    leave_out(run, {})
    assert title(run) == "quickstart: xla batch_size=256", "the user's code has been changed before it was resumed"


def test_a_run_without_a_record_has_the_name_of_its_preset(home: Path) -> None:
    run = runs.create("Quick start", presets.resolve("quickstart").to_yaml())
    assert title(run) == "quick-start"
    for broken in ("{", '{"preset": 7, "changes": [1]}', '{"changes": {"input.batch_size": 3}}'):
        run.file("origin.json").write_text(broken)
        assert title(run).startswith("quick-start")
    run.file("origin.json").write_text('{"preset": "a\\u001b[2Jb"}')
    assert "\x1b" not in title_of(run).preset


def test_a_long_title_is_cut_at_whole_changes() -> None:
    long = Title("fast", ("batch_size=256", "xla", "no shuffle", "epochs=3"))
    assert long.whole == long.within(80) == "fast: batch_size=256 xla no shuffle epochs=3"
    assert long.within(35) == "fast: batch_size=256 xla +2 more"
    assert long.within(28) == "fast: batch_size=256 +3 more"
    assert long.within(25) == "fast: batch_siz.. +3 more"
    assert long.within(10) == "fast: 4 changes"
    origin = {"preset": "own", "changes": {"workload.args": {"to": {"side": "right/left"}}}}
    assert recorded(origin, "").whole == 'own: args={"side":"right/left"}'
    assert Title("fast").within(2) == "fast"


def test_a_value_is_one_short_word_of_a_title() -> None:
    for key, value, words in (
        ("train.seed", None, "no seed"), ("train.seed", 0, "seed=0"), ("compile.xla", "auto", "xla=auto"),
        ("train.learning_rate", 2.0, "learning_rate=2"), ("train.learning_rate", 2.5, "learning_rate=2.5"),
        ("workload.shape", [8, 8, 1], "shape=[8,8,1]"), ("workload.data", "npz:/data/a b.npz", "data=npz:a_b.npz"),
        ("run.python", "/home/ann/envs/vision/bin/python3.11", "python=vision"),
        ("workload.entry", "x" * 32, f"entry={'x' * 32}"), ("workload.entry", "x" * 33, f"entry={'x' * 30}.."),
    ):  # fmt: skip
        assert recorded({"preset": "own", "changes": {key: {"to": value}}}, "").whole == f"own: {words}"
