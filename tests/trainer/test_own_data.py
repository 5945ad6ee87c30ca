"""A user's own data through workload.entry: what Keras' fit would train on, and the same when resumed."""

from __future__ import annotations

import builtins
import json
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.doors.engine import runs_title as title
from tests.doors.trainer import StopRequested
from tests.support.own import Write
from tests.trainer.test_own_code import SHORT, not_applied, source


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


@pytest.mark.parametrize("steps", [pytest.param(None, marks=pytest.mark.nightly), 3])
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
    for settings in (("cache=memory",), ("shuffle=5",)):
        pipe = own(source(body), "epochs=1", "batch_size=50", *settings).loop.built.pipeline
        passes = np.concatenate([batch[1].numpy().ravel() for batch in pipe.stream().take(400)])
        assert len(set(passes[:100])) == 10
        for one in (passes[:10000], passes[10000:]):
            np.testing.assert_array_equal(np.sort(one), np.repeat(np.arange(10), 1000))
        assert (passes[:10000] != passes[10000:]).any()
    pipe = own(source(body), "epochs=1", "batch_size=50", "shuffle=off").loop.built.pipeline
    assert {value for batch in pipe.stream().take(20) for value in batch[1].numpy().ravel()} == {0.0}


@pytest.mark.parametrize(
    ("end", "is_told"), [("", True), (".apply(tf.data.experimental.assert_cardinality(20))", False)]
)
def test_over_replicas_a_length_that_fit_does_not_know_is_told(end: str, is_told: bool, own: Write) -> None:
    body = (
        f"data = tf.data.Dataset.from_tensor_slices((x, y)).batch(10).filter(lambda a, b: True).take(20){end}\n"
        "return {'model': model(), 'train': data}"
    )
    training = own(source(body), "epochs=1", "xla=false", "strategy.kind=mirrored").announce()
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


@pytest.mark.parametrize(("extra", "drop"), [
    ("", "true"), ("'map': lambda a, b: (a * 2, b)", "false"), ("'augment': lambda a, b: (a + 1, b)", "false"),
])  # fmt: skip
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


@pytest.mark.parametrize(("train", "settings"), [
    ("{'a': x}", ()), ("(x,)", ("validation_split=0.2",)), ("[x, None]", ("strategy.kind=mirrored", "shuffle=off")),
])  # fmt: skip
def test_inputs_alone_are_taken_as_fit_takes_them(train: str, settings: tuple[str, ...], own: Write) -> None:
    text = source(f"return summing(), {train}").replace("def build", SUMMING + "\ndef build")
    training = own(text, "epochs=1", "batch_size=10", "validation_split=0", *settings).train()
    assert np.isfinite(training.losses()[0])
    spec = training.loop.built.pipeline.stream().element_spec
    inputs = spec["a"] if isinstance(spec, dict) else spec
    assert inputs.shape.as_list() == [10, 4], "as batches of 10 divide the data"


# ---- data sets ----------------------------------------------------------------------------------


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
