"""The pipeline of a user's own data, its sizes and warnings, without a training: what is read, split, limited, said."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.checkpoint import object_graph
from gputui.engine.trainer.checkpoint.object_graph import Draw
from gputui.engine.trainer.data.batches import Share
from gputui.engine.trainer.own import building, global_settings, unsaved_state, user_pipeline
from gputui.engine.trainer.own.fit_arguments import FitArguments
from gputui.engine.trainer.own.global_settings import GlobalSettings
from gputui.engine.trainer.own.returned import Returned
from gputui.engine.trainer.own.user_code import UserError
from gputui.engine.trainer.own.user_pipeline import OwnPipeline

from tests.support.training import options

X, Y = np.arange(40, dtype="float32").reshape(20, 2), np.arange(20)
SMALL = ("batch_size=4", "shuffle=off", "prefetch=off", "parallel_calls=off", "validation_split=0")


class Told:
    """Stands for the report of a run: phases and warnings."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, ...]] = []
        self.warnings: list[tuple[str, ...]] = []

    def phase(self, *words: str) -> None:
        self.phases.append(words)

    def warn(self, *words: str) -> None:
        self.warnings.append(words)


@pytest.fixture
def report() -> Any:
    return Told()


def opened(
    tmp_path: Path, report: Any, *settings: str, replicas: int = 1, share: Share | None = None, **given: Any
) -> OwnPipeline:
    returned = Returned(**{"model": keras.Sequential(), "train": (X, Y), **given})
    return user_pipeline.opened(options(*SMALL, *settings), replicas, returned, tmp_path / "train.py", report, share)


def labels(batches: tf.data.Dataset, most: int) -> list[list[int]]:
    return [y.tolist() for _, y in batches.take(most).as_numpy_iterator()]


def numbers(count: int = 20) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X[:count], Y[:count]))


# ---- sizes -------------------------------------------------------------------------------------


def test_arrays_are_split_and_the_sizes_are_those_of_the_parts(tmp_path: Path, report: Any) -> None:
    made = opened(tmp_path, report, "validation_split=0.25")
    assert (made.train_samples, made.validation_samples, made.global_batch_size) == (15, 5, 4)
    assert (made.batches_per_pass, made.validation_batches, made.smaller_last_batch) == (4, 2, True)
    trained, held_out = (sum(labels(data, count), []) for data, count in ((made.stream(), 4), (made.validation(), 2)))  # noqa: RUF017
    assert sorted(trained + held_out) == list(range(20))
    drawn = np.random.default_rng(7).permutation(20)
    assert (trained, held_out) == (drawn[:15].tolist(), drawn[15:].tolist()), "in the order of the seed"
    whole = opened(tmp_path, report, "validation_split=0.25", validation=(X[:3], Y[:3]))
    assert (whole.train_samples, whole.validation_samples, whole.validation_batches) == (20, 3, 1)
    none = opened(tmp_path, report, "validation_split=0.01")
    assert (none.train_samples, none.held_out, none.validation_batches, none.validation_samples) == (20, None, 0, 0)
    assert opened(tmp_path, report, "validation_split=0.25", train=numbers().batch(5)).held_out is None
    assert report.warnings == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, (20, 5)), ({"samples": 7}, (7, 2)), ({"samples": 99}, (20, 5))],
)
def test_no_more_samples_are_taken_than_are_given_or_there(
    given: dict[str, Any], expected: tuple[int, int], tmp_path: Path, report: Any
) -> None:
    made = opened(tmp_path, report, train=numbers(), mapped=True, **given)
    assert (made.train_samples, made.batches_per_pass) == expected
    read = labels(made.stream(), expected[1] + 1)
    assert sum(read[:-1], []) == list(range(expected[0]))  # noqa: RUF017
    assert read[-1] == [0, 1, 2, 3], "the next pass"


def test_the_samples_of_validation_are_those_that_are_given_for_it(tmp_path: Path, report: Any) -> None:
    for mapped in (True, False):
        data = numbers() if mapped else numbers().filter(lambda *_: True).batch(4)
        given: dict[str, Any] = {"samples": 7, "validation_samples": 9, "mapped": mapped}
        made = opened(tmp_path, report, train=data, validation=data, **given)
        assert (made.train_samples, made.validation_samples) == (7, 9)
        assert (made.batches_per_pass, made.validation_batches) == (2, 3)


def test_images_of_an_evaluation_are_not_augmented(tmp_path: Path, report: Any) -> None:
    images = np.random.default_rng(0).random((4, 8, 8, 3)).astype("float32")
    both = {"train": (images, Y[:4]), "validation": (images, Y[:4])}
    made = opened(tmp_path, report, "augment=light", **both)  # type: ignore[arg-type]
    trained, held_out = (next(iter(data))[0].numpy() for data in (made.stream(), made.validation()))
    assert not np.array_equal(trained, images)
    assert np.array_equal(held_out, images)


def test_an_evaluation_takes_the_same_batches_each_time(tmp_path: Path, report: Any) -> None:
    validation = numbers(10).batch(4)
    unknown = validation.filter(lambda *_: True)
    for data, steps, batches in ((validation, None, 3), (validation, 2, 2), (unknown, 2, 2), (unknown, 5, 3)):
        made = opened(tmp_path, report, validation=data, fit=FitArguments(validation_steps=steps))
        assert made.validation_batches == batches
        whole = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert labels(made.validation(), 2 * batches) == whole[:batches] * 2
    arrays = opened(
        tmp_path, report, "shuffle=9", "drop_remainder=true", "one_batch=true", "augment=light",
        validation=(X[:10], Y[:10]), augment=lambda x, y: (x, y + 100), map=lambda x, y: (x, y + 1), mapped=True,
        validation_map=lambda x, y: (x, y + 50),
    )  # fmt: skip
    assert labels(arrays.validation(), 4) == [[50, 51, 52, 53], [54, 55, 56, 57], [58, 59], [50, 51, 52, 53]]
    first, second = labels(arrays.stream(), 2)
    assert first == second, "one batch again and again"
    assert min(first) > 100


@pytest.mark.parametrize(
    ("given", "batches"),
    [({"samples": 18}, 5), ({"samples": None}, 5), ({"samples": 18, "train": "dropping"}, 4)],
)
def test_batches_of_unknown_number_follow_from_the_samples_or_are_counted(
    given: dict[str, Any], batches: int, tmp_path: Path, report: Any
) -> None:
    drops = given.get("train") == "dropping"
    data = numbers(18).filter(lambda *_: True).batch(4, drop_remainder=drops)
    made = opened(tmp_path, report, **given | {"train": data})
    assert (made.batches_per_pass, made.global_batch_size) == (batches, 4)
    assert report.phases == ([] if given["samples"] else [("building", "counting train"), ("building", "data")])


def test_the_steps_of_an_epoch_stand_for_batches_of_unknown_number(tmp_path: Path, report: Any) -> None:
    data = numbers(18).filter(lambda *_: True).batch(4).repeat()
    made = opened(tmp_path, report, "steps_per_epoch=9", train=data)
    assert (made.batches_per_pass, made.train_samples, report.phases) == (9, None, [])
    assert made.place(3) is None
    made.find_fault()
    made.go_to(None)
    made.close()


@pytest.mark.parametrize("iterates", [False, True])
def test_a_last_batch_of_fewer_samples_than_replicas_is_trained_and_evaluated(
    iterates: bool, tmp_path: Path, report: Any
) -> None:
    batched = numbers(9).batch(4)
    data = (lambda: batched.as_numpy_iterator()) if iterates else batched
    made = opened(tmp_path, report, replicas=2, train=data, validation=data)
    assert (made.batches_per_pass, made.validation_batches) == (3, 3)
    for batches in (made.stream(), made.validation()):
        assert labels(batches, 6) == [[0, 1], [2, 3], [4, 5], [6, 7], [], [8]]


class Indexed(keras.utils.PyDataset):  # type: ignore[misc]
    def __init__(self, optional: bool = False) -> None:
        super().__init__()
        self.optional = optional

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        return {"a": X[:4], "b": None} if self.optional else X[:4], Y[:4]


@pytest.mark.parametrize("kind", ["known", "unknown", "indexed"])
def test_data_that_end_within_an_epoch_are_refused_with_what_to_write(kind: str, tmp_path: Path, report: Any) -> None:
    """Keras' fit ends such an epoch early, and begins the next one with a new iterator."""
    known = numbers(18).batch(4)
    data: Any = {"known": known, "unknown": known.filter(lambda *_: True), "indexed": Indexed()}[kind]
    for steps in (2, 7):
        with pytest.raises(UserError, match="end an epoch early") as raised:
            opened(tmp_path, report, f"steps_per_epoch={steps}", "epochs=3", train=data)
        if isinstance(data, tf.data.Dataset):
            assert ".repeat()" in raised.value.hint
            assert opened(tmp_path, report, f"steps_per_epoch={steps}", "epochs=3", train=data.repeat())
    if kind != "unknown":
        assert opened(tmp_path, report, "steps_per_epoch=2", "epochs=2", train=data).batches_per_pass == 5
        assert opened(tmp_path, report, "steps_per_epoch=1", "epochs=9", train=data).batches_per_pass == 5


SPEC = tf.TensorSpec((None, 4, 2)), tf.TensorSpec((None,), tf.int64)


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (SPEC, 32), (SPEC[0], 32), (({"a": SPEC[0], "b": SPEC[1]}, SPEC[1]), 40),
        ((tf.TensorSpec((None, None)), SPEC[1]), None), ((tf.RaggedTensorSpec((None, None)), SPEC[1]), None),
        ((tf.TensorSpec(None), SPEC[1]), None),
    ],
)  # fmt: skip
def test_the_bytes_of_a_sample_are_those_of_its_inputs(spec: Any, size: int | None) -> None:
    train: Any = SimpleNamespace(spec=spec)
    assert OwnPipeline(options(), 1, train, None).sample_bytes == size


def test_a_worker_has_its_part_of_the_replicas_and_of_each_batch(tmp_path: Path, report: Any) -> None:
    share = Share(2, 1)
    whole = opened(tmp_path, report, replicas=4)
    assert (whole.replicas_here, whole.sharing) == (4, "")
    arrays = opened(tmp_path, report, replicas=2, share=share)
    batched = opened(tmp_path, report, replicas=2, share=share, train=numbers().batch(8))
    assert (arrays.replicas_here, batched.replicas_here) == (1, 1)
    assert arrays.sharing != batched.sharing
    assert labels(batched.stream(), 2) == [[4, 5, 6, 7], [12, 13, 14, 15]]


def test_data_that_are_iterated_over_in_both_roles_are_closed_and_their_faults_are_raised(
    tmp_path: Path, report: Any
) -> None:
    closed: list[str] = []

    class Rows:
        def __init__(self, role: str, fails: bool) -> None:
            self.role, self.left = role, iter([(X[:4], Y[:4])] * 2 + [(X[:4, :1], Y[:4])] * fails)

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return next(self.left)

        def close(self) -> None:
            closed.append(self.role)

    for fails in ("train", "validation"):
        given: dict[str, Any] = {
            role: lambda role=role, fails=fails: Rows(role, role == fails) for role in ("train", "validation")
        }
        made = opened(tmp_path, report, "steps_per_epoch=2", **given, fit=FitArguments(validation_steps=2))
        made.go_to(None)
        made.find_fault()
        both = {"train": made.train, "validation": made.held_out}
        assert labels(made.stream(), 1) == [[0, 1, 2, 3]]
        assert labels(made.validation(), 1) == [[0, 1, 2, 3]]
        with pytest.raises(ValueError, match=f"a batch of {fails} is"):
            list(itertools.islice(both[fails].positions.batches(0), 3))  # type: ignore[union-attr]
        assert refused(made.find_fault)[0].startswith(f"a batch of {fails} is (float32 (4, 1), int64 (4,)), and")
        closed.clear()
        made.close()
        assert closed == ["train", "validation"]


def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(UserError) as raised:
        call()
    return raised.value.message, raised.value.hint


BATCH_IT = "batch the Dataset by context.global_batch_size, or return a dict with map: None to have gputui batch it"


def test_data_that_make_no_batch_are_refused(tmp_path: Path, report: Any) -> None:
    def of(*settings: str, **given: Any) -> tuple[str, str]:
        return refused(lambda: opened(tmp_path, report, *settings, **given))

    assert of("batch_size=32", "drop_remainder=true", "validation_split=0") == (
        "20 samples do not fill one global batch of 32", "lower input.batch_size, or set input.drop_remainder=false",
    )  # fmt: skip
    for role in ("train", "validation"):
        assert of(**{role: tf.data.Dataset.range(5)}) == (
            f"the elements of {role} are single values, not batches",
            BATCH_IT,
        )
    for optional in (numbers().batch(4).map(lambda x, y: ((x, None), y)), Indexed(optional=True)):
        assert "contains None" in of(train=optional)[0]
    empty = numbers().filter(lambda *_: False).batch(4)
    assert of(train=empty, samples=3) == ("train has no batches", "check where it reads from")
    assert of(validation=numbers(3).batch(4, drop_remainder=True)) == (
        "validation has no batches", "check where it reads from, and its batch size",
    )  # fmt: skip
    for begins, epochs in ((3, 3), (4, 3)):
        assert of(f"epochs={epochs}", fit=FitArguments(initial_epoch=begins)) == (
            f"initial_epoch is {begins} and train.epochs {epochs}: nothing is left to train",
            "epochs are counted from the first one, as in fit: raise train.epochs",
        )
    opened(tmp_path, report, "epochs=3", fit=FitArguments(initial_epoch=2))


def test_without_a_way_to_evaluate_the_model_nothing_is_kept_back(tmp_path: Path, report: Any) -> None:
    class Mine(keras.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            return {}

    made = opened(tmp_path, report, "validation_split=0.5", model=Mine())
    assert (made.train_samples, made.held_out) == (20, None)
    assert report.warnings == [(
        "no_validation", "no validation: Mine has a train_step of its own, but neither a test_step nor a compiled loss",
        "give Mine a test_step, or set train.validation_split=0", "train.validation_split",
    )]  # fmt: skip
    assert opened(tmp_path, report, "validation_split=0.5", model=Mine(), loss="mse").validation_samples == 10


def test_weights_of_classes_are_part_of_the_batches(tmp_path: Path, report: Any) -> None:
    made = opened(tmp_path, report, fit=FitArguments(class_weight={1: 5.0}), validation=(X[:4], Y[:4]))
    ((_, y, weights),) = made.stream().take(1).as_numpy_iterator()
    assert (y.tolist(), weights.tolist()) == ([0, 1, 2, 3], [1.0, 5.0, 1.0, 1.0])
    assert len(made.spec) == 3
    assert len(made.validation().element_spec) == 2, "an evaluation has none"
    plain = opened(tmp_path, report)
    assert plain.spec is plain.train.spec


def test_a_cache_is_of_the_code_beside_it(tmp_path: Path, report: Any) -> None:
    def stamp() -> str:
        return str(opened(tmp_path, report).train.source.stamp)  # type: ignore[attr-defined]

    (tmp_path / "train.py").write_text("x = 1")
    (tmp_path / "note.txt").write_text("x")
    first = stamp()
    (tmp_path / "note.txt").write_text("y")
    (tmp_path / ".#train.py").symlink_to("me@host.123")  # with which an editor locks a file
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    assert stamp() == first
    (tmp_path / "beside.py").write_text("x = 2")
    second = stamp()
    (tmp_path / "train.py").write_text("x = 3")
    assert len({first, second, stamp()}) == 3
    assert first.endswith("train")


# ---- what the code is told ---------------------------------------------------------------------


@pytest.mark.parametrize(("calls", "expected"), [("off", None), ("auto", tf.data.AUTOTUNE), ("3", 3)])
def test_the_context_has_the_settings_that_code_may_follow(calls: str, expected: int | None) -> None:
    given = options(
        "batch_size=8", "epochs=5", "steps_per_epoch=9", "policy=mixed_bfloat16", f"parallel_calls={calls}",
        "args={a: [1]}", "entry=train.py:build",
    )  # fmt: skip
    context = building.context_of(given, 3)
    assert vars(context) == {
        "batch_size": 8, "global_batch_size": 24, "replicas": 3, "steps_per_epoch": 9, "epochs": 5, "seed": 7,
        "precision": "mixed_bfloat16", "map_parallel_calls": expected, "args": {"a": [1]},
    }  # fmt: skip
    assert context.args is not given.workload.args


# ---- what is said ------------------------------------------------------------------------------

ANEW = (
    "from a random state of TensorFlow that cannot be saved: it starts again, so that losses differ from those of a "
    "run that was not interrupted"
)
INSTEAD = (
    "draw with keras.random and a keras.random.SeedGenerator that the model keeps, or with a tf.random.Generator: "
    "their states are saved"
)


def test_draws_that_begin_again_are_named_by_their_innermost_line_at_most_four(
    report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Draw] = []
    monkeypatch.setattr(object_graph, "draws", lambda graph: found)
    code: Any = SimpleNamespace(owns_file=lambda file: file.startswith("/mine"), name_of=lambda file: file[6:])

    def said() -> list[Any]:
        report.warnings.clear()
        unsaved_state.warn_of_draws(None, code, keras.Sequential(), report)
        return list(report.warnings)

    assert said() == []
    lines = (("/mine/a.py", 1, "step"), ("/mine/b.py", 2, "draw"), ("/keras/x.py", 3, "call"))
    found += [Draw("tf.random.normal", lines)] * 2
    assert said() == [("random_anew", f"tf.random.normal in draw (b.py:2) draws {ANEW}", INSTEAD)]
    found += [Draw("tf.random.uniform", lines[2:]), Draw("x", lines[:1]), Draw("y", lines[:1])]
    two = "tf.random.normal in draw (b.py:2), tf.random.uniform in a step of Sequential"
    four = f"{two}, x in step (a.py:1), y in step (a.py:1)"
    assert said() == [("random_anew", f"{four} draw {ANEW}", INSTEAD)]
    found += [Draw("z", lines[:1]), Draw("w", lines[:1])]
    assert said() == [("random_anew", f"{four} and 2 more draw {ANEW}", INSTEAD)]


HELD: dict[str, int] = {}
COUNT = 0


class Keeps(keras.callbacks.Callback):  # type: ignore[misc]
    """Line 0 of the class; texts name the lines."""

    def set_model(self, model: Any) -> None:
        self.total = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.batch = batch
        self.batches: int = self.batches + 1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = True
        self.params["x"] = 1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.count += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.x, self.seen[epoch] = 1, 2

    def noted(self) -> None:
        self.deep.list.append(3)

    def on_test_begin(self, logs: Any = None) -> None:
        self.tests = self.tests + 1

    def twice(self) -> None:
        first = self.last = 3  # noqa: F841

    def on_predict_begin(self, logs: Any = None) -> None:
        if not self.tests:
            self.made = object()

    def on_predict_end(self, logs: Any = None) -> None:
        own = {}
        own["a"] = 1
        HELD["a"] = 1

    def on_train_batch_begin_of(self, batch: int) -> None:
        global COUNT
        COUNT += 1

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.norm = self.model.get_weights()

    tests = 0


class Below(Keeps):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        pass

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.other: int = 1
        self.annotated: int = self.annotated + 1


def test_what_callbacks_keep_is_named_by_method_unless_a_subclass_has_another() -> None:
    first, below = (inspect.getsourcelines(kind)[1] for kind in (Keeps, Below))
    kept = [
        f"Keeps.on_train_batch_begin changes self.batches (test_own_pipeline.py:{first + 8})",
        f"Keeps.on_epoch_begin changes self.count (test_own_pipeline.py:{first + 15})",
        f"Keeps.on_epoch_end changes self.seen (test_own_pipeline.py:{first + 18})",
        f"Keeps.noted changes self.deep (test_own_pipeline.py:{first + 21})",
        f"Keeps.on_test_begin changes self.tests (test_own_pipeline.py:{first + 24})",
        f"Keeps.twice changes self.last (test_own_pipeline.py:{first + 27})",
        f"Keeps.on_predict_begin changes self.made (test_own_pipeline.py:{first + 31})",
        f"Keeps.on_predict_end changes HELD (test_own_pipeline.py:{first + 36})",
        f"Keeps.on_train_batch_begin_of changes COUNT (test_own_pipeline.py:{first + 40})",
        f"Keeps.on_test_batch_begin changes self.norm (test_own_pipeline.py:{first + 43})",
    ]
    assert unsaved_state.of_callbacks([Keeps(), Keeps()]) == kept
    over = f"Below.on_epoch_begin changes self.other (test_own_pipeline.py:{below + 5})"
    assert unsaved_state.of_callbacks([Below()]) == [kept[0], over, *kept[2:]]


def test_a_call_in_the_keras_of_tensorflow_is_a_call_of_keras(report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(tf.keras.config, "set_dtype_policy", done.append)
    with GlobalSettings() as settings:
        tf.keras.config.set_dtype_policy("mixed_float16")
    code: Any = SimpleNamespace(owns_file=lambda file: True, name_of=lambda file: "train.py")
    settings.warn(code, report)
    assert done == ["mixed_float16"]
    assert [warning[3] for warning in report.warnings] == ["precision.policy"]


def test_a_setting_is_warned_of_if_their_code_has_made_it_and_has_its_effect_only_if_it_is_obeyed(
    report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for place, name in ((tf.config, "set_visible_devices"), (keras.config, "set_dtype_policy")):
        monkeypatch.setattr(place, name, lambda *_, name=name: done.append(name))
    originals = tf.config.set_visible_devices, keras.config.set_dtype_policy
    settings = GlobalSettings()
    with settings:
        tf.config.set_visible_devices([], "GPU")
        keras.config.set_dtype_policy("mixed_float16")
        for _ in range(2):
            tf.config.set_visible_devices([], "GPU")
    assert (tf.config.set_visible_devices, keras.config.set_dtype_policy) == originals
    assert done == ["set_dtype_policy"]
    here = inspect.currentframe()
    assert here is not None
    first = here.f_code.co_firstlineno
    code: Any = SimpleNamespace(owns_file=lambda file: file == __file__, name_of=lambda file: "train.py")
    settings.warn(code, report)
    does_nothing, effect = "does nothing here", "takes effect, and the run's precision.policy does not"
    why = "gputui sets this up before your code runs"
    assert report.warnings == [
        (
            "set_by_option",
            f"{name} in train.py:{first + line} {what}: {why}",
            f"set {key} in the preset and remove the call",
            key,
        )
        for name, line, what, key in (
            ("set_visible_devices", 9, does_nothing, "device.visible"),
            ("set_dtype_policy", 10, effect, "precision.policy"),
            ("set_visible_devices", 12, does_nothing, "device.visible"),
        )
    ]
    report.warnings.clear()
    code.owns_file = lambda file: False
    settings.warn(code, report)
    assert report.warnings == [], "a library has called them"
    assert {setting.option for setting in global_settings.SETTINGS if setting.obeyed} == {
        "precision.tf32", "train.deterministic", "precision.policy",
    }  # fmt: skip
