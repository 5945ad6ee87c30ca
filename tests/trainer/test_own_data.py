"""A user's own data through workload.entry: what Keras' fit would train on, and the same when resumed."""

from __future__ import annotations

import builtins
import json
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.runs import title
from gputui.engine.trainer.common.stopping import StopRequested
from gputui.engine.trainer.own.user_code import UserCode
from gputui.engine.trainer.own.user_pipeline import user_functions

from tests.support.own import Write
from tests.support.training import Training
from tests.trainer.test_own_code import SHORT, not_applied, refused, source


@pytest.fixture(autouse=True)
def notes() -> Iterator[list[Any]]:
    """What a user's code notes down, as `builtins.notes`."""
    builtins.notes = []  # type: ignore[attr-defined]
    yield builtins.notes  # type: ignore[attr-defined]
    del builtins.notes  # type: ignore[attr-defined]


def with_class(members: str, returned: str = "model(), Data()", count: int = 5) -> str:
    """A program whose PyDataset `Data` has these members beside its length."""
    return source(
        "import builtins\nclass Data(keras.utils.PyDataset):\n"
        f"    def __len__(self): return {count}\n"
        + textwrap.indent(textwrap.dedent(members).strip(), "    ")
        + f"\nreturn {returned}"
    )


def first_values(training: Training, batches: int, first_step: int = 0) -> list[int]:
    """The first number of each batch."""
    return [int(batch[0].numpy().flat[0]) for batch in training.loop.built.pipeline.stream(first_step).take(batches)]


def test_what_an_editor_keeps_beside_the_code_is_not_read(own: Write, tmp_path: Path) -> None:
    (tmp_path / ".#train.py").symlink_to("somebody@host.1234:5")
    (tmp_path / "backups.py").mkdir()
    assert len(first_values(own(source("return model(), (x, y)"), *SHORT), 2)) == 2


# ---- a PyDataset: one at a time -----------------------------------------------------------------

BUSY = """
def __getitem__(self, index):
    import time
    builtins.notes.append(1)
    time.sleep(0.01)
    at_once = sum(builtins.notes)
    builtins.notes.append(-1)
    return np.full((10, 4), at_once, "float32"), y[:10]
"""


@pytest.mark.parametrize(
    ("data", "calls", "most"),
    [
        ("Data()", "auto", 1),
        ("Data()", "8", 1),
        ("Data(workers=4)", "auto", 4),
        ("Data(workers=4)", "2", 2),
        ("Data(workers=4)", "off", 1),
        ("Data(workers=4, use_multiprocessing=True)", "auto", 1),
    ],
)
def test_batches_of_a_pydataset_are_loaded_at_once_only_as_far_as_it_says_it_can(
    data: str, calls: str, most: int, own: Write
) -> None:
    text = with_class(BUSY, f"model(), {data}", count=20)
    found = first_values(own(text, *SHORT, f"parallel_calls={calls}", "private_threads=8"), 40)
    assert 1 <= max(found) <= most
    assert (max(found) > 1) == (most > 1)


def test_a_pydataset_that_reads_a_file_gets_what_it_reads(own: Write) -> None:
    members = """
def __init__(self):
    super().__init__()
    np.repeat(np.arange(40, dtype="float32"), 10_000).tofile("records.bin")
    self.file = open("records.bin", "rb", buffering=0)
def __getitem__(self, index):
    self.file.seek(index * 40_000)
    found = np.frombuffer(self.file.read(40_000), "float32")
    builtins.notes.append(len(found) == 10_000 and bool((found == index).all()))
    return found[:40].reshape(10, 4) / 40, y[:10]
"""
    own(with_class(members, count=40), "epochs=3", "validation_split=0").train()
    assert len(builtins.notes) >= 120  # type: ignore[attr-defined]
    assert all(builtins.notes)  # type: ignore[attr-defined]


def test_it_is_told_where_parallel_calls_and_processes_do_nothing(own: Write) -> None:
    plain = "def __getitem__(self, index): return x[:10], y[:10]"
    told = not_applied(own(with_class(plain), *SHORT, "parallel_calls=8"))
    assert list(told) == ["input.parallel_calls"]
    assert "one batch at a time" in told["input.parallel_calls"]
    assert not_applied(own(with_class(plain, "model(), Data(workers=2)"), *SHORT, "parallel_calls=8")) == {}
    training = own(with_class(plain, "model(), Data(workers=2, use_multiprocessing=True)"), *SHORT).announce()
    assert [event["kind"] for event in training.events("warning")] == ["use_multiprocessing"]


# ---- a PyDataset: its passes --------------------------------------------------------------------

PASSES = """
begun = ended = 0
def __getitem__(self, index):
    value = index + 10 * self.ended
    builtins.notes.append(value)
    return np.full((10, 4), value / 100, "float32"), y[:10]
def on_epoch_begin(self):
    builtins.notes.append("begin")
    self.begun += 1
def on_epoch_end(self):
    builtins.notes.append("end")
    self.ended += 1
"""


def test_a_pydataset_is_told_of_the_begin_and_end_of_each_pass(own: Write, notes: list[Any]) -> None:
    own(with_class(PASSES), "epochs=2", "validation_split=0", "shuffle=off", "prefetch=off").train()
    assert notes == [0, 1, "end", "begin", 10, 11, 12, 13, 14, "end", "begin", 20, 21, 22, 23, 24, "end"]


def test_a_pydatasets_batches_are_shuffled_anew_in_each_pass(own: Write) -> None:
    members = "def __getitem__(self, index): return np.full((10, 4), index, 'float32'), y[:10]"
    found = first_values(own(with_class(members, count=9), *SHORT, "across_epochs=true"), 18)
    assert sorted(found[:9]) == sorted(found[9:]) == list(range(9))
    assert found[:9] != list(range(9)) != found[9:] != found[:9]


@pytest.mark.parametrize("steps", [None, 3])
def test_a_resumed_pydataset_gives_the_very_batches_of_the_whole_run(
    steps: int | None, own: Write, notes: list[Any]
) -> None:
    """Resumed in the middle of an epoch, which is a fit of its own, where an epoch is a pass or less."""
    epoch = ["epochs=5"] if steps is None else [f"steps_per_epoch={steps}", "epochs=4"]
    program = with_class(PASSES, count=5 if steps is None else 12)
    common = ("validation_split=0", "run.checkpoint=8", "run.keep=9", "shuffle=40", *epoch)
    whole = own(program, *common, "prefetch=off").train()
    expected = [note for note in notes[2:] if isinstance(note, int)]
    for prefetch, exact in (("off", True), ("auto", False)):
        resumed = own(program, *common, f"prefetch={prefetch}")
        shutil.copytree(whole.run.path / "checkpoints", resumed.run.path / "checkpoints", dirs_exist_ok=True)
        notes.clear()
        resumed.loop.run(8)
        if exact:
            assert [note for note in notes if isinstance(note, int)] == expected[8:]
        for ours, theirs in zip(resumed.loop.built.model.weights, whole.loop.built.model.weights, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_a_stop_leaves_no_lock_of_a_cache_in_a_file(own: Write, tmp_path: Path, monkeypatch: Any) -> None:
    made = "tf.data.Dataset.from_tensor_slices((x, y)).cache('cached').batch(10)"
    training = own(source(f"return model(), {made}"), *SHORT)
    execute = training.loop._execute

    def stopped(iterator: Any) -> Any:
        if training.loop.step:
            assert [*tmp_path.glob("cached*.lockfile")]
            training.loop.built.stop.request("stopped")
        return execute(iterator)

    monkeypatch.setattr(training.loop.built.model, "train_function", stopped)
    with pytest.raises(StopRequested):
        training.loop.run(None)
    training.loop.leave()
    assert not [*tmp_path.glob("cached*")]


PADDED = """
def __getitem__(self, index):
    length = 5 if index < 2 else 5 + 3 * index
    return (rng.integers(0, 50, size=(10, length)).astype("int32"),
            rng.normal(size=(10, length if SEQUENCE else 1)).astype("float32"))
"""


@pytest.mark.parametrize("sequence", [False, True])
def test_batches_of_a_pydataset_may_be_padded_to_lengths_of_their_own(sequence: bool, own: Write) -> None:
    pooled = "" if sequence else "keras.layers.GlobalAveragePooling1D(),"
    made = (
        f"keras.Sequential([keras.Input((None,), dtype='int32'), keras.layers.Embedding(50, 4), {pooled} "
        "keras.layers.Dense(1)])"
    )
    text = with_class(PADDED.replace("SEQUENCE", str(sequence)), "{'model': made, 'train': Data(), 'loss': 'mse'}")
    text = text.replace("    return {'model'", f"    made = {made}\n    return {{'model'")
    training = own(text, *SHORT).train()
    assert np.isfinite(training.losses()[0])
    x, y = training.loop.built.pipeline.stream().element_spec
    assert (x.shape.as_list(), y.shape.as_list()) == ([None, None], [None, None if sequence else 1])


def test_a_pydataset_may_hand_over_dicts_and_batches_whose_first_two_differ(own: Write) -> None:
    members = "def __getitem__(self, index): return {'a': x[:10, :index + 2]}"
    spec = own(with_class(members, "summing(), Data()").replace("def build", SUMMING + "\ndef build"), *SHORT)
    assert spec.train().loop.built.pipeline.stream().element_spec["a"].shape.as_list() == [None, None]


SUMMING = """
def summing():
    class Summing(keras.Model):
        def __init__(self):
            super().__init__()
            self.scale = self.add_weight(shape=())
        def call(self, data):
            flat = data["a"] if isinstance(data, dict) else data
            return self.scale * keras.ops.sum(flat, axis=1)
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            assert y is None
            return keras.ops.mean((y_pred - 1.0) ** 2)
    made = Summing()
    made.compile("sgd")
    return made
"""


# ---- arrays -------------------------------------------------------------------------------------


def test_all_of_sorted_arrays_are_shuffled_anew_in_each_pass(own: Write) -> None:
    body = (
        "classes = np.repeat(np.arange(10), 1000).astype('float32')[:, None]\n"
        "return model(), (np.repeat(classes, 4, axis=1), classes), (x, y)"
    )
    for settings in ((), ("cache=memory",), ("shuffle=5",)):
        pipe = own(source(body), "epochs=1", "batch_size=50", *settings).loop.built.pipeline
        passes = np.concatenate([batch[1].numpy().ravel() for batch in pipe.stream().take(400)])
        assert len(set(passes[:100])) == 10
        for one in (passes[:10000], passes[10000:]):
            np.testing.assert_array_equal(np.sort(one), np.repeat(np.arange(10), 1000))
        assert (passes[:10000] != passes[10000:]).any()
    pipe = own(source(body), "epochs=1", "batch_size=50", "shuffle=off").loop.built.pipeline
    assert {value for batch in pipe.stream().take(20) for value in batch[1].numpy().ravel()} == {0.0}


def test_samples_without_an_end_that_read_a_variable_are_warned_of(own: Write) -> None:
    body = (
        "level = tf.Variable(1.0)\n"
        "data = tf.data.Dataset.from_tensor_slices((x, y)).repeat()\n"
        "return {'model': model(), 'train': data, 'validation': (x, y), 'map': lambda a, b: (a * level, b)}"
    )
    (event,) = own(source(body), "epochs=1", "steps_per_epoch=2").events("warning")
    assert event["message"] == (
        "train has no end: what a callback sets reaches its samples some steps later than in Keras' fit: "
        "a function of the Dataset reads a variable"
    )


@pytest.mark.parametrize(("optimizer", "end", "is_told"), [
    ("adam", "", True), ("adam", ".apply(tf.data.experimental.assert_cardinality(20))", False), ("sgd", "", False),
])  # fmt: skip
def test_a_length_that_fit_does_not_know_is_told_if_its_last_step_changes_something(
    optimizer: str, end: str, is_told: bool, own: Write
) -> None:
    body = (
        "made = keras.Sequential([keras.layers.Dense(1)])\n"
        f"made.compile({optimizer!r}, 'mse')\n"
        f"data = tf.data.Dataset.from_tensor_slices((x, y)).batch(10).filter(lambda a, b: True){end}\n"
        "return {'model': made, 'train': data.take(20)}"
    )
    training = own(source(body), "epochs=1", "xla=false").announce()
    told = [event for event in training.events("warning") if event["kind"] == "unknown_length"]
    assert len(told) == is_told


def test_the_wait_for_the_first_batch_of_an_epoch_is_told_once(own: Write) -> None:
    body = (
        "def data():\n    import time\n    time.sleep(0.6)\n    for i in range(5):\n        yield x, y\n"
        "return {'model': model(), 'train': data}"
    )
    (event,) = own(source(body), "epochs=3").train().events("warning")
    assert re.fullmatch(
        r"an epoch waits (0\.[4-9]|[1-9]\.\d) s for its first batch, \d\d % of the time of its steps: its batches "
        "are made only when it begins, because Python code makes the batches",
        event["message"],
    )
    assert own(source(body), "epochs=3", "across_epochs=true").train().events("warning") == []


@pytest.mark.parametrize("extra", ["", "'map': lambda a, b: (a * 2, b)", "'augment': lambda a, b: (a + 1, b)"])
@pytest.mark.parametrize("drop", ["true", "false"])
def test_shuffled_arrays_go_on_with_the_very_sample_they_stopped_at(extra: str, drop: str, own: Write) -> None:
    body = f"numbers = np.arange(97.0)[:, None]\nreturn {{'model': model(), 'train': (x[:97], numbers), {extra}}}"
    pipe = own(source(body), *SHORT, f"drop_remainder={drop}").loop.built.pipeline
    a_pass = 9 if drop == "true" else 10
    whole = [batch[1].numpy().ravel() for batch in pipe.stream().take(2 * a_pass)]
    first = np.concatenate(whole[:a_pass])
    assert len(set(first)) == len(first) == (90 if drop == "true" else 97)
    for at in (3, a_pass, a_pass + 4):
        for ours, expected in zip(pipe.stream(at).take(5), whole[at:], strict=False):
            np.testing.assert_array_equal(ours[1].numpy().ravel(), expected)


@pytest.mark.parametrize("extra", ["", "'map': lambda a, b: (a * 2, b)"])
def test_the_stages_of_shuffled_arrays_have_their_names(extra: str, own: Write) -> None:
    from gputui.engine.trainer.data.stages import StageMeter

    body = f"return {{'model': model(), 'train': (x, y), {extra}}}"
    pipe = own(source(body), *SHORT, "parallel_calls=off", "prefetch=1").loop.built.pipeline
    iterator = iter(pipe.stream())
    for _ in range(45):  # to within a pass, which alone has nodes
        next(iterator)
    meter = StageMeter(pipe.stages(), 1)
    meter.read(iterator)
    names = [stage.name for stage in meter.take()[0]]
    assert names == ["read", "shuffle", *(["load"] if extra else []), "batch", "pass", "prefetch"]


@pytest.mark.parametrize("train", ["x", "{'a': x}", "(x,)", "[x, None]", "tf.constant(x)"])
@pytest.mark.parametrize("settings", [(), ("validation_split=0.2",), ("strategy.kind=mirrored", "shuffle=off")])
def test_inputs_alone_are_taken_as_fit_takes_them(train: str, settings: tuple[str, ...], own: Write) -> None:
    text = source(f"return summing(), {train}").replace("def build", SUMMING + "\ndef build")
    training = own(text, "epochs=1", "batch_size=10", "validation_split=0", *settings).train()
    assert np.isfinite(training.losses()[0])
    spec = training.loop.built.pipeline.stream().element_spec
    assert list(spec) == ["a"] if isinstance(spec, dict) else spec.shape.as_list() == [None, 4]


def test_images_alone_are_augmented(own: Write) -> None:
    body = "images = rng.uniform(size=(40, 8, 8, 3)).astype('float32')\nreturn summing(), images, images[:20]"
    text = source(body).replace("def build", SUMMING + "\ndef build")
    plain, light = (
        next(iter(own(text, *SHORT, f"augment={way}").loop.built.pipeline.stream())).numpy() for way in ("off", "light")
    )
    assert plain.shape == light.shape == (10, 8, 8, 3)
    assert (plain != light).any()


def test_targets_that_are_returned_as_validation_are_refused(own: Write) -> None:
    fault = refused(own, "return model(), {'a': x}, y")
    assert "targets must be returned with their inputs" in fault.message


# ---- data sets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("drop", "batches"), [("True", 3), ("False", 4)])
def test_batches_of_one_size_by_their_type_leave_out_the_rest(drop: str, batches: int, own: Write) -> None:
    body = f"""
data = dataset().filter(lambda a, b: True).batch(32, drop_remainder={drop})
return {{"model": model(), "train": data, "samples": 100, "validation": data, "validation_samples": 100}}
"""
    loop = own(source(body), *SHORT).loop
    assert (loop.steps_per_epoch, loop.built.pipeline.validation_batches) == (batches, batches)


def test_validation_data_without_a_batch_are_refused(own: Write) -> None:
    assert "validation has no batch" in refused(own, "return model(), (x, y), dataset().take(0).batch(5, True)").message


@pytest.mark.parametrize(("shape", "given"), [("(28, 28, 1)", "(28, 28)"), ("(1,)", "()"), ("(28, 28)", "(28, 28, 1)")])
@pytest.mark.parametrize("way", ["batched", "mapped"])
def test_an_axis_of_one_at_the_end_is_adjusted_as_keras_does_it(shape: str, given: str, way: str, own: Write) -> None:
    body = f"""
made = keras.Sequential([keras.Input({shape}), keras.layers.Flatten(), keras.layers.Dense(1)])
made.compile("sgd", "mse")
data = tf.data.Dataset.from_tensor_slices((rng.normal(size=(100, *{given})).astype("float32"), y))
return {{"model": made, "train": data, "map": None}} if {way == "mapped"} else (made, data.batch(10))
"""
    assert np.isfinite(own(source(body), *SHORT).train().losses()[0])


def test_images_that_are_not_batched_are_still_told(own: Write) -> None:
    body = """
made = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])
made.compile("sgd", "mse")
return made, tf.data.Dataset.from_tensor_slices((np.zeros((100, 28, 28, 1), "float32"), y))
"""
    assert "the model takes batches of (28, 28, 1)" in refused(own, body).message


OWN_PREFETCH = "dataset().batch(10).prefetch(tf.data.AUTOTUNE).repeat(2)"


@pytest.mark.parametrize(
    ("train", "prefetch", "told"),
    [(OWN_PREFETCH, "off", True), (OWN_PREFETCH, "2", False), ("dataset().batch(10)", "off", False)],
)
def test_a_prefetch_of_their_own_is_told_where_none_is_wanted(
    train: str, prefetch: str, told: bool, own: Write
) -> None:
    found = not_applied(own(source(f"return model(), {train}"), *SHORT, f"prefetch={prefetch}"))
    assert ("input.prefetch" in found) is told


def test_a_data_sets_own_order_stays_free(own: Write) -> None:
    body = "o = tf.data.Options()\no.deterministic = False\nreturn model(), dataset().batch(10).with_options(o)"
    assert own(source(body), *SHORT).loop.built.pipeline.stream().options().deterministic is False
    plain = own(source("return model(), dataset().batch(10)"), *SHORT).loop.built.pipeline
    assert plain.stream().options().deterministic is True


PIPELINE = """
import time
import keras, numpy as np, tensorflow as tf
def numbers():
    for i in range(4000):
        yield np.float32(i)
def load(value):
    time.sleep(0.0005)
    return value[None]
def scaled(x):
    return x / 4000, x / 4000
def build(context):
    made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    data = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.float32))
    data = data.map(lambda x: tf.ensure_shape(tf.numpy_function(load, [x], tf.float32), (1,))).map(scaled)
    return {"model": made, "train": data.batch(8).repeat(), "samples": 4000}
"""


def test_the_stages_of_a_users_pipeline_are_named_by_their_functions(own: Write) -> None:
    training = own(PIPELINE, "epochs=1", "steps_per_epoch=400")
    built = training.loop.built
    assert built.own is not None
    assert built.own.stage_functions() == {
        "Generator": ["numbers (train.py:4)"],
        "Map": ["<lambda> (train.py:16)", "scaled (train.py:10)"],
    }
    training.train()
    names = [stage["name"] for stage in training.events("input_stages")[-1]["stages"]]
    assert {"Generator of numbers (train.py:4)", "Map of <lambda> (train.py:16)"} <= set(names), names


def test_a_data_set_whose_functions_cannot_be_read_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> list[Any]:
        raise NotImplementedError

    data = tf.data.Dataset.range(5).map(lambda x: x)
    monkeypatch.setattr(type(data), "_inputs", fail)
    assert user_functions(data, cast(UserCode, None)) == {}


def test_a_batch_size_that_their_code_ignores_is_not_in_the_title_and_the_warning_names_the_remedy(own: Write) -> None:
    batched = "{'model': model(False), 'loss': 'mse', 'train': dataset().batch(7)}"
    training = own(source(f"return {batched}"), *SHORT, "batch_size=20", "cache=memory", "validation_split=0.3")
    changes = {"input.batch_size": {"from": 64, "to": 20}, "train.seed": {"from": None, "to": 7}}
    training.run.file("origin.json").write_text(json.dumps({"preset": "mine", "changes": changes}))
    assert "input.batch_size" in not_applied(training)
    assert title(training.run) == "mine: seed=7"
    hints = {event["option"]: event["hint"] for event in training.events("warning") if event["kind"] == "not_applied"}
    remedy = "use context.global_batch_size in your code, or return single samples with `map`"
    assert hints["input.batch_size"] == remedy
    assert hints["input.cache"] == "return single samples with `map`"
    assert hints["train.validation_split"] == ""
