"""What the form holds, without a screen: texts and values, errors, marks, what would be lost, the command line."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.options import OPTIONS
from gputui.tui.form.hints import proposed
from gputui.tui.form.history import History, Moment
from gputui.tui.form.search import around, marked, search, suggestion
from gputui.tui.form.state import INFO, FormState, kind, to_text, to_value, value_of

QUICKSTART = presets.SHIPPED / "quickstart.yaml"


@pytest.fixture
def state() -> FormState:
    return FormState.open(QUICKSTART)


def test_every_default_survives_its_field() -> None:
    lost = {info.key: to_value(info, to_text(info.default)) for info in OPTIONS
            if to_value(info, to_text(info.default)) != info.default}  # fmt: skip
    assert lost == {}


def test_kinds_come_from_the_types() -> None:
    found = {key: kind(info) for key, info in INFO.items()}
    assert found["precision.tf32"] == "bool"
    assert found["workload.model"] == found["compile.xla"] == "choice"
    for key in ("input.batch_size", "input.prefetch", "device.visible", "run.checkpoint", "workload.data"):
        assert found[key] == "text"


def test_a_changed_value_is_marked_and_undone(state: FormState) -> None:
    assert not state.is_default("train.epochs")
    assert not state.modified
    state.set("train.epochs", "9")
    assert state.unsaved() == ["train.epochs"]
    assert state.preset.options.train.epochs == 9
    state.set("train.epochs", state.text_of_file("train.epochs"))
    assert not state.modified
    state.reset("train.epochs")
    assert state.is_default("train.epochs")
    assert state.unsaved() == ["train.epochs"]


def test_a_changed_value_no_longer_comes_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train:\n  epochs: 3\n  seed: 5\n")
    state = FormState.open(file)
    assert {"train.epochs", "train.seed"} <= state.preset.origins.keys()
    state.set("train.epochs", "9")
    assert state.preset.origins.keys() & {"train.epochs", "train.seed"} == {"train.seed"}
    state.set("train.epochs", "3")
    assert "train.epochs" in state.preset.origins


def test_other_spelling_of_the_same_value_is_no_change(state: FormState) -> None:
    state.set("train.learning_rate", "2e-3")
    state.set("input.shuffle", " 2000 ")
    assert not state.modified


def test_a_wrong_field_keeps_the_others(state: FormState) -> None:
    state.set("input.batch_size", "many")
    state.set("train.epochs", "9")
    assert list(state.errors) == ["input.batch_size"]
    assert "a whole number from 1" in state.errors["input.batch_size"]
    assert state.preset.options.input.batch_size == 32
    assert state.preset.options.train.epochs == 9
    state.set("input.batch_size", "64")
    assert not state.errors


def test_the_form_says_what_a_file_would_be_told(state: FormState, tmp_path: Path) -> None:
    state.set("input.batch_size", "0")
    file = tmp_path / "same.yaml"
    file.write_text("input: {batch_size: 0}\n")
    with pytest.raises(presets.PresetError) as told:
        presets.resolve(str(file))
    assert state.errors["input.batch_size"] == told.value.problems[0].message


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("train.seed", "", None),
        ("device.visible", "0,1", [0, 1]),
        ("device.visible", "[0, 1]", [0, 1]),
        ("workload.shape", "[8, 8]", [8, 8]),
        ("workload.tfrecord_input", "123", "123"),
        ("input.cache", "off", "off"),
        ("input.prefetch", "off", "off"),
        ("input.prefetch", "4", 4),
        ("workload.data", "npz: /tmp/a b.npz", "npz:/tmp/a b.npz"),
    ],
)
def test_texts_mean_what_they_say(state: FormState, key: str, text: str, value: object) -> None:
    state.set(key, text)
    assert not state.errors
    group, name = key.split(".")
    assert getattr(getattr(state.preset.options, group), name) == value


def test_what_is_kept_is_not_at_risk(state: FormState) -> None:
    state.set("train.epochs", "9")
    assert state.at_risk
    state.keep()
    assert state.modified
    assert not state.at_risk
    state.describe("another")
    assert state.at_risk


def test_the_command_gives_the_same_options(state: FormState) -> None:
    state.set("train.epochs", "9")
    state.set("train.seed", "")
    state.set("workload.shape", "[8, 8, 1]")
    state.set("workload.data", "npz:/tmp/it's here.npz")
    words = shlex.split(state.command().replace("\\\n", " "))
    assert words[:3] == ["gputui", "--preset", "quickstart"]
    settings = [word for before, word in itertools.pairwise(words) if before == "--set"]
    assert presets.resolve("quickstart", settings).options == state.preset.options


def test_the_yaml_gives_the_same_options(state: FormState, tmp_path: Path) -> None:
    state.set("workload.tfrecord_input", "yes")
    file = tmp_path / "all.yaml"
    file.write_text(state.preset.to_yaml())
    assert presets.resolve(str(file)).options == state.preset.options


def test_a_runs_record_keeps_the_presets_name() -> None:
    run = runs.create("quickstart", presets.resolve("quickstart").to_yaml())
    state = FormState.open(run.file("preset.yaml"))
    assert state.of_a_run
    assert state.name == "quickstart"
    assert state.command().startswith(f"gputui --preset run:{run.id}")


def test_search_finds_names_before_help_and_help_before_calls() -> None:
    def found(words: str) -> list[str]:
        return [hit.info.key for hit in search(words)]

    assert found("jit_compile") == ["compile.xla"]
    assert found("input batch_size samples") == ["input.batch_size", "input.drop_remainder"]
    assert len(found("")) == len(OPTIONS)
    assert found("no such option") == []
    assert found("b")[0] == "input.batch_size"
    assert found("xla")[:3] == ["compile.xla", "compile.xla_flags", "compile.xla_cache"]
    assert found("memory")[:4] == [
        "device.memory_growth", "device.memory_limit_mb", "input.batch_size", "precision.policy",
    ]  # fmt: skip
    places = [hit.elsewhere.place if hit.elsewhere else "name" for hit in search("cache")]
    assert places == sorted(places, key=("name", "also", "takes", "help", "calls").index)
    assert {"name", "help", "calls"} <= set(places)


def test_words_that_people_type_lead_to_the_option() -> None:
    meant = {
        "amp": "precision.policy", "mixed": "precision.policy", "fp16": "precision.policy", "lr": "train.learning_rate",
        "gpu": "device.visible", "gpus": "device.visible", "oom": "run.on_oom", "batch": "input.batch_size",
        "jit": "compile.xla", "workers": "input.parallel_calls", "threads": "device.inter_op_threads",
        "ddp": "strategy.kind", "adamw": "train.optimizer", "--batch-size": "input.batch_size",
    }  # fmt: skip
    assert {word: search(word)[0].info.key for word in meant} == meant
    assert suggestion("bach_size") == "batch_size"
    assert suggestion("zzzz") == ""


def test_a_long_text_is_cut_to_what_was_searched() -> None:
    text = "samples in one step, on each replica; the global batch is this times the replicas"
    assert around(text, ("global",), 200) == text
    for width in (12, 20, 30, 60):
        for word in ("samples", "global", "replicas"):
            part = around(text, (word,), width)
            assert word in part, (word, width)
            assert len(part) <= width, (word, width)
    assert [text[begin:end] for begin, end in marked(text, ("replica",))] == ["replica"] * 2


def test_a_hint_proposes_its_first_choice_with_all_its_settings() -> None:
    for hint, changes in (
        ("try input.batch_size=256, precision.policy=mixed_bfloat16 or a smaller workload.width",
         {"input.batch_size": 256}),
        ("set train.optimizer=sgd and train.momentum=0.9, or train.nesterov=false",
         {"train.optimizer": "sgd", "train.momentum": 0.9}),
        ("install it with pip install 'tensorflow[and-cuda]', or set compile.xla=false", {"compile.xla": False}),
        ("lower train.learning_rate, set train.global_clip_norm=1, or look for NaN", {"train.global_clip_norm": 1}),
        ("raise run.max_minutes", {}), ("see os.environ=x and my.key=3", {}), ("", {}),
    ):  # fmt: skip
        assert proposed(hint) == changes, hint


def test_undo_and_redo_cover_the_whole_form(state: FormState) -> None:
    history, first = History(), Moment.of(state)

    def act(what: str, values: dict[str, object], edit: object = None) -> None:
        before = Moment.of(state)
        state.change(values)
        history.record(before, state, what, edit)

    for typed in ("1", "12", "128"):
        act("batch", {"input.batch_size": typed}, edit="one")
    act("nothing", {"input.batch_size": 128})
    act("a remedy", {"input.cache": "memory", "compile.xla": True, "no.option": 3})
    assert [done.what for done in history.done] == ["batch", "a remedy"]
    assert state.preset.options.compile.xla is True
    last = Moment.of(state)
    for _ in range(2):
        undone = history.undo(state)
        assert undone is not None
        state.put(undone.before.texts, undone.before.description)
    assert Moment.of(state) == first
    assert history.undo(state) is None
    for _ in range(2):
        again = history.redo(state)
        assert again is not None
        state.put(again.before.texts, again.before.description)
    assert Moment.of(state) == last
    assert history.redo(state) is None
    undone = history.undo(state)
    assert undone is not None
    state.put(undone.before.texts, undone.before.description)
    assert len(history.undone) == 1
    act("another", {"train.epochs": 7})
    assert history.redo(state) is None, "what was undone before another act cannot be done again"
    before = Moment.of(state)
    state.put(before.texts, "words of its own")
    history.record(before, state, "the description")
    described = history.undo(state)
    assert described is not None
    assert (described.what, described.before.description) == ("the description", before.description)
    state.put(before.texts, before.description)
    act("back", {"train.epochs": int(first.texts["train.epochs"])}, edit="two")
    for typed in ("9", first.texts["train.epochs"]):
        act("typed and taken back", {"train.epochs": typed}, edit="three")
    assert history.done[-1].what == "back"


def test_a_switch_with_a_third_word_is_chosen_from_its_words() -> None:
    info = INFO["device.memory_growth"]
    assert kind(info) == "choice"
    assert info.fixed_values == ("auto", "true", "false")
    state = FormState.open(QUICKSTART)
    for word, value in (("auto", "auto"), ("true", True), ("false", False)):
        state.set(info.key, word)
        assert value_of(state.preset.options, info) == value
