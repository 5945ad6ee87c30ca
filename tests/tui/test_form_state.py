"""What the form holds, without a screen: texts and values, errors, marks, what would be lost, the command line."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.options import OPTIONS
from gputui.engine.presets import saving
from gputui.engine.trials import STAGES
from gputui.tui.form.form_state import (
    INFO,
    FormState,
    History,
    Moment,
    kind,
    proposed,
    to_text,
    to_value,
    value_of,
)
from gputui.tui.form.option_search import around, search, suggestion
from gputui.tui.form.search_limits import LimitTexts, WrongLimit
from gputui.tui.word_search import marked

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


def test_an_emptied_field_and_the_folder_of_own_code_stand_in_the_command(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("train: {seed: 5}\nworkload: {entry: 'train.py:build'}\n")
    state = FormState.open(tmp_path / "mine.yaml")
    state.set("train.seed", "")
    state.set("workload.entry", "other.py:build")
    assert shlex.split(state.command().replace("\\\n", " "))[2:] == [
        str(tmp_path / "mine.yaml"), "--set", "workload.entry=other.py:build", "--set", "train.seed=null",
        "--set", f"workload.folder={tmp_path}",
    ]  # fmt: skip
    shipped = FormState.first()
    shipped.set("workload.entry", "mine.text:build")
    assert shipped.command() == "gputui --preset quickstart \\\n  --set workload.entry=mine.text:build", (
        "it has no folder"
    )


def test_a_saved_form_notices_a_change_of_its_new_file(state: FormState, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    state.set("train.epochs", "9")
    saving.save_as(state.preset, path)
    state.saved_as(path)
    assert (state.path, state.opened_text, state.modified) == (path, path.read_text(), False)


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
        return [hit.item.key for hit in search(words)]

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
    assert {word: search(word)[0].item.key for word in meant} == meant
    assert suggestion("bach_size") == "batch_size"
    assert suggestion("zzzz") == ""


def test_a_better_match_comes_before_that_of_a_group_of_this_name() -> None:
    policy, tf32 = search("precision")
    assert (policy.item.key, tf32.item.key) == ("precision.policy", "precision.tf32")
    assert policy.rank < tf32.rank, "precision is another name of the policy"
    assert policy.elsewhere is None, "the row shows the whole key, which has the word"
    keys = [hit.item.key for hit in search("device")]
    assert keys.index("device.logical_devices") < keys.index("device.visible"), "its own name has the word, too"


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


def test_a_search_tells_of_each_option_how_well_its_worst_word_fits() -> None:
    def found(words: str) -> list[tuple[str, str, str]]:
        hits = [(hit.item.key, hit.elsewhere) for hit in search(words)]
        return [(key, other.place if other else "", other.text[:12] if other else "") for key, other in hits]

    assert found("LR")[:3] == [
        ("train.learning_rate", "also", "lr"), ("train.learning_rate_scaling", "also", "lr_scaling"),
        ("train.schedule", "also", "lr_schedule"),
    ]  # fmt: skip
    assert ("strategy.kind", "takes", "mirrored") in found("Mirrored")
    assert ("strategy.devices", "calls", "tf.distribut") in found("mirrored"), (
        "a word within another begins with a capital"
    )
    assert [key for key, *_ in found("atch")][:3] == ["input.batch_size", "input.one_batch", "train.micro_batches"]
    assert found("input")[0][0] == "workload.tfrecord_input", "its own name has the word"
    assert ("input.batch_size", "", "") in found("input"), "its group has it"
    together = next(hit for hit in search("strategy mirrored") if hit.item.key == "strategy.kind")
    assert together.rank == max(one.rank for one in together.matches) > min(one.rank for one in together.matches)
    assert together.elsewhere == max(together.matches, key=lambda one: one.rank)
    assert (suggestion(" Bach Size "), suggestion("learning rat")) == ("batch_size", "learning_rate")
    assert suggestion("lr_schedul") == "lr_schedule", "another name of an option"
    assert [list(marked(text, ("batch",))) for text in ("The Batch rebatch", "rebatch")] == [[(4, 9)], [(2, 7)]]
    assert around("one two three four five six seven eight", ("six",), 20) == "…four five six seve…"
    assert around("one two three four", ("one",), 12) == "one two thr…"
    assert around("one two three four", ("four",), 10) == "…four"
    assert around("abcdefghijklmnop qrs", ("qrs",), 8) == "…qrs"
    assert around("one two three four", ("three",), 13) == "…two three f…", "the word is whole"
    assert around("one two", ("zzz",), 7) == "one two"


def test_values_are_written_as_yaml_reads_them() -> None:
    for value, text in (
        (None, ""), (True, "true"), (False, "false"), (3, "3"), (0.5, "0.5"), (1e-7, "1.0e-07"), ([1, 2.5], "[1, 2.5]"),
        ([True], "[true]"), ({}, "{}"), ({"a": 1}, "{a: 1}"), (["a", None], "[a, null]"), ("x: y", "x: y"),
    ):  # fmt: skip
        assert to_text(value) == text
    words = [f"name-{number}" for number in range(40)]
    assert to_text(words) == f"[{', '.join(words)}]", "a field has one line"
    assert to_value(INFO["workload.data"], " digits ") == "digits"
    assert to_value(INFO["train.epochs"], " 3 ") == 3


def test_a_form_knows_whose_file_it_has(home: Path, tmp_path: Path) -> None:
    mine, folder = tmp_path / "preset.yaml", home / "proofs" / "20260921-100000-x"
    folder.mkdir(parents=True)
    run = runs.create("quickstart", presets.resolve("quickstart").to_yaml())
    improved, other = folder / "improved.yaml", folder / "preset.yaml"
    for path in (mine, improved, other, run.file("improved.yaml")):
        path.write_text("train: {epochs: 3}\n")
    link = tmp_path / "link"
    link.symlink_to(home)
    for path, record, name in (
        (QUICKSTART, "", "quickstart"), (mine, "", tmp_path.name), (other, "", folder.name),
        (run.file("preset.yaml"), "of a run", "quickstart"),
        (improved, "of a proof", "x"), (run.file("improved.yaml"), "", "improved"),
        (link / "proofs" / folder.name / "improved.yaml", "of a proof", "x"),
    ):  # fmt: skip
        state = FormState.open(path)
        assert (state.record, state.of_a_run, state.name) == (record, bool(record), name), path
        assert state.shipped is (path == QUICKSTART)
        assert state.preset.file == path
    assert FormState.open(improved).command() == f"gputui --preset {improved}"
    assert FormState.open(QUICKSTART).command() == "gputui --preset quickstart"
    named = tmp_path / "quickstart.yaml"
    named.write_text("train: {epochs: 3}\n")
    assert FormState.open(named).command() == f"gputui --preset {named}", "the name means another file"
    unsaved = FormState(None, presets.defaults([]))
    assert (unsaved.record, unsaved.shipped) == ("", False)
    assert unsaved.command() == f"gputui --preset {unsaved.name}"


def test_what_a_form_has_changed_and_what_it_would_lose(state: FormState, tmp_path: Path) -> None:
    assert not state.at_risk
    state.set("train.epochs", "wrong")
    assert (state.is_default("train.epochs"), state.is_unsaved("train.epochs")) == (False, True)
    state.reset("train.epochs")
    usual = state.changed()
    assert usual[0] == "train.epochs", "what differs from the file comes first"
    assert "input.batch_size" in usual
    assert len(set(usual)) == len(usual)
    assert set(usual) - {"train.epochs"} == {key for key in INFO if not state.is_default(key)}
    state.set("input.batch_size", "7")
    assert state.changed() == [
        "input.batch_size",
        "train.epochs",
        *(key for key in usual[1:] if key != "input.batch_size"),
    ]
    state.set("input.batch_size", state.text_of_file("input.batch_size"))
    state.set("train.seed", "7")
    options = state.preset.options
    state.set("train.seed", "8")
    assert state.differing(options) == {"train.seed": 7}
    state.become(options)
    assert (state.texts["train.seed"], state.differing(options)) == ("7", {})
    state.describe("mine")
    state.saved_as(_written(state, tmp_path / "saved.yaml"))
    assert (state.modified, state.at_risk, state.unsaved(), state.name) == (False, False, [], "saved")
    assert (state.preset.name, state.preset.file) == ("saved", tmp_path / "saved.yaml"), "a run of it is named so"
    state.describe("other")
    assert (state.modified, state.at_risk) == (True, True)
    state.describe("mine")
    assert (state.modified, state.at_risk) == (False, False)


def test_a_form_whose_file_was_written_elsewhere_is_compared_with_it_and_would_lose_what_differs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("description: one\ntrain: {epochs: 3}\n")
    state = FormState.open(path)
    state.set("train.epochs", "9")
    state.describe("two")
    path.write_text("description: two\ntrain: {epochs: 9}\n")
    state.compare_with_file()
    assert (state.modified, state.at_risk, state.text_of_file("train.epochs")) == (False, False, "9")
    path.write_text("description: one\ntrain: {epochs: 3}\n")  # as taking a save back does
    state.compare_with_file()
    assert (state.unsaved(), state.modified, state.at_risk) == (["train.epochs"], True, True)
    assert (state.texts["train.epochs"], state.description, state.opened_text) == ("9", "two", path.read_text())
    state.set("train.epochs", "3")
    assert state.at_risk, "its description"
    state.describe("one")
    assert not state.at_risk
    path.write_text("train: [")
    state.compare_with_file()
    assert (state.opened.description, state.modified) == ("one", False), "it cannot be read"


def test_values_that_a_run_has_kept_are_at_risk_only_if_they_differ_from_the_file(state: FormState) -> None:
    state.set("train.epochs", "9")
    state.keep()
    assert (state.modified, state.at_risk) == (True, False), "a run has them"
    state.set("train.epochs", "8")
    assert state.at_risk
    state.set("train.epochs", state.text_of_file("train.epochs"))
    assert (state.modified, state.at_risk) == (False, False), "the file has them"


def test_a_preset_that_was_made_without_its_file_is_that_of_the_path() -> None:
    made = FormState(QUICKSTART, presets.defaults([]))
    assert (made.preset.file, made.opened.file) == (QUICKSTART, QUICKSTART), "to which its paths are relative"
    assert FormState(None, presets.defaults([])).preset.file is None
    made.set("train.epochs", "9")
    assert (made.preset.file, made.preset.options.train.epochs) == (QUICKSTART, 9)


def _written(state: FormState, path: Path) -> Path:
    path.write_text(state.preset.to_yaml())
    return path


def test_options_that_a_users_code_decides_are_named(state: FormState) -> None:
    assert (state.own("workload.model"), state.decides("workload.model")) == ("", "")
    folder = Path(__file__).parents[1] / "support" / "programs"
    state.put({"workload.entry": "entry.text:build", "workload.folder": f" {folder} ", "train.seed": " "})
    words = {key: (state.own(key), state.decides(key)) for key in INFO}
    assert words["run.checkpoint"][1] == ""
    assert {decides for _, decides in words.values()} == {"", "your code", "or your code"}
    assert all(not decides for own, decides in words.values() if own.startswith("always"))
    assert all(INFO[key].about.own in ("replaced", "unread") for key, (_, by) in words.items() if by == "your code")
    given = shlex.split(state.command().replace("\\\n", " "))
    assert f"workload.folder={folder}" in given
    assert "workload.entry=entry.text:build" in given


def test_the_limits_of_a_search_are_numbers_or_none() -> None:
    texts = LimitTexts()
    found = texts.limits()
    assert (found.minutes, found.memory_bytes, found.largest_batch, found.warmup_steps) == (10.0, None, None, None)
    assert (found.precisions, found.avoid_precisions, found.only) == (None, [], list(STAGES))
    texts = LimitTexts(minutes=" 2.5 ", memory_gb="1.5", largest_batch="1", warmup_steps="0", leave="a, b c")
    found = texts.limits()
    assert (found.minutes, found.memory_bytes, found.largest_batch, found.warmup_steps, found.leave) == (
        2.5, 1_500_000_000, 1, 0, ["a", "b", "c"],
    )  # fmt: skip
    assert LimitTexts(minutes="0.5").limits().minutes == 0.5
    for field, text in (
        ("minutes", ""), ("minutes", "0"), ("minutes", "1e9"), ("minutes", "nan"), ("minutes", "x"),
        ("memory_gb", "-1"), ("largest_batch", "0"), ("largest_batch", "1.5"), ("largest_batch", "٣"),
        ("warmup_steps", "-1"),
    ):  # fmt: skip
        with pytest.raises(WrongLimit) as fault:
            LimitTexts(**{field: text}).limits()  # type: ignore[arg-type]
        assert fault.value.name == field
        assert not text or repr(text) in str(fault.value)


def test_the_oldest_acts_are_forgotten(state: FormState) -> None:
    history, before = History(), Moment.of(state)
    for number in range(205):
        state.texts["train.epochs"] = str(100 + number)
        history.record(before, state, str(number))
        before = Moment.of(state)
    assert [history.done[0].what, len(history.done)] == ["5", 200]
    other = FormState.open(QUICKSTART)
    assert Moment.of(state).differs(other)
    assert Moment.of(other).keys(state) == ["train.epochs"]
    same = Moment.of(FormState.open(QUICKSTART))
    assert same.differs(other), "another preset was opened, with the same texts"
