"""Prepared data: the same batches as from the original, samples that are left out, and what is refused."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.doors.engine import Manifest, Options, PrepareError, Preset, preparing, presets
from tests.doors.engine import prepare_request as requests
from tests.doors.trainer import Broken, Request, Samples, TrainerError, work
from tests.doors.trainer import pipeline as pipelines
from tests.support.class_folders import class_folders
from tests.support.own import Write
from tests.support.training import options, source_of


class InProcess:
    """The interface of engine/prepare/preparing.py's Worker."""

    def __init__(self, _python: str, request: Mapping[str, Any], _log: Path) -> None:
        self.answers: list[Any] = []
        self.request = work.read(json.dumps(request))
        try:
            self.samples = work.opened(self.request)
            self.answers.append({"facts": dict(self.samples.facts), "one_process": self.samples.one_process})
        except TrainerError as fault:
            self.answers.append({"error": fault.message, "hint": fault.hint})

    def send(self, command: Mapping[str, Any]) -> None:
        work.obey(command, self.samples, self.request, self.answers.append)

    def answer(self) -> Any:
        return self.answers.pop(0)

    def end(self) -> None:
        pass


def _answered(workers: Sequence[InProcess]) -> Iterator[tuple[InProcess, Any]]:
    while True:
        for worker in workers:
            while worker.answers:
                yield worker, worker.answer()


class Preparing:
    """Prepares data in folders of its own. `said` has what was said, in the last preparation."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, ""

    def __call__(self, options: Options, name: str = "ready", **given: Any) -> tuple[Manifest, Path]:
        said: list[str] = []
        asked = self.request(options, name, **given)
        manifest = preparing.prepare(asked, said.append, lambda _progress: None)
        self.said = "\n".join(said)
        return manifest, asked.folder

    def request(self, options: Options, name: str = "ready", **given: Any) -> requests.Request:
        given = {"format": "tfrecord", "dtype": None, "size": None} | given
        return requests.of(Preset("mine", options), self.folder / name, given)


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preparing:
    """prepared(options, dtype="float32", ...): the manifest and the folder of their data, prepared in this process."""
    monkeypatch.setattr(preparing, "Worker", InProcess)
    monkeypatch.setattr(preparing, "answered", _answered)
    return Preparing(tmp_path)


pytestmark = pytest.mark.usefixtures("cpus")


IMAGES = ("shape=[8, 8, 3]", "batch_size=4", "validation_split=0.3")


def read_back(folder: Path) -> Preset:
    return presets.resolve(str(folder / "preset.yaml"))


def batches(preset: Preset) -> list[np.ndarray]:
    """Inputs and labels of the first two passes and of an evaluation."""
    given = pipelines.build(preset.options, replicas=1)
    streams = [given.stream().take(2 * given.batches_per_pass), given.validation().take(given.validation_batches)]
    return [array.numpy() for stream in streams for batch in stream for array in batch]


def same(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def dataset(folder: Path) -> Any:
    """The module dataset.py of the folder."""
    spec = importlib.util.spec_from_file_location("dataset", folder / "dataset.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Settings of a preset for each kind of data."""
    class_folders(tmp_path / "images", 30, 0)
    rng = np.random.default_rng(0)
    x, y = rng.random((30, 5), "float32"), rng.integers(0, 3, 30)
    np.savez(tmp_path / "floats.npz", x=x, y=y)
    np.savez(tmp_path / "parts.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    return {
        "images": (f"data=images:{tmp_path}/images", *IMAGES),
        "floats": (f"data=npz:{tmp_path}/floats.npz", "batch_size=4", "validation_split=0.3"),
        "parts": (f"data=npz:{tmp_path}/parts.npz", "batch_size=4", "train.validation=test"),
    }


PLAIN: dict[str, Any] = {}
NPZ: dict[str, Any] = {"format": "npz"}
FLOATS: dict[str, Any] = {"dtype": "float32", "shards": 3}
NIGHTLY = pytest.mark.nightly
PREPARED = [
    ("images", PLAIN), ("floats", FLOATS), pytest.param("parts", PLAIN, marks=NIGHTLY),
    pytest.param("images", NPZ, marks=NIGHTLY),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given"), PREPARED, ids=str)
def test_a_training_on_prepared_data_gets_the_same_batches(
    kind: str, given: dict[str, Any], sources: dict[str, tuple[str, ...]], prepared: Preparing
) -> None:
    original = Preset("mine", options(*sources[kind]))
    manifest, folder = prepared(original.options, **given)
    assert manifest.data["dtype"] == ("uint8" if kind == "images" and not given.get("dtype") else "float32")
    assert same(batches(original), batches(read_back(folder)))
    seconds, samples = {path: path.stat().st_mtime_ns for path in folder.iterdir()}, manifest.samples
    again, _ = prepared(original.options, **given)
    assert (again.samples, {path: path.stat().st_mtime_ns for path in folder.iterdir()}) == (samples, seconds)
    twin, other = prepared(original.options, "twin", **given)
    assert [each.sha256 for each in twin.written] == [each.sha256 for each in manifest.written]
    assert twin.output == manifest.output
    if given.get("format") != "npz":
        stored = dataset(other)
        first = next(iter(stored.train()))
        pipe = pipelines.build(read_back(folder).options, 1)
        expected = next(iter(source_of(pipe).train.elements.map(stored.parse)))
        assert same([each.numpy() for each in first], [each.numpy() for each in expected])
        assert len(list(stored.validation())) == manifest.good("validation")


def test_sizes_types_and_limits_that_lose_something(sources: dict[str, tuple[str, ...]], prepared: Preparing) -> None:
    given = options(*sources["images"])
    manifest, folder = prepared(given, size=(4, 6), dtype="float16", limit=20)
    assert (manifest.data["shape"], manifest.samples, manifest.good("validation")) == ([4, 6, 3], 20, 6)
    x, _ = next(iter(pipelines.build(read_back(folder).options, 1).stream()))
    assert x.shape == (4, 4, 6, 3)
    assert 0.2 < float(tf.reduce_mean(x)) < 0.8
    floats = options(*sources["floats"])
    for settings, words in (({"dtype": "uint8"}, "are not bytes"), ({"size": (4, 4)}, "--size needs images")):
        with pytest.raises(PrepareError, match=words):
            prepared(floats, "refused", **settings)
    assert not (prepared.folder / "refused").exists()


def test_broken_images_are_left_out_also_the_first_of_a_class(prepared: Preparing, tmp_path: Path) -> None:
    good = class_folders(tmp_path / "images", 20, 0)
    (tmp_path / "images" / "cat" / "000000.png").write_bytes(b"no image")
    manifest, folder = prepared(options(f"data=images:{tmp_path}/images", *IMAGES))
    (broken,) = manifest.broken
    assert broken.sample == "cat/000000.png"
    assert "Unknown image file format" in broken.reason
    assert manifest.samples == len(good) - 1
    assert len(batches(read_back(folder))) > 2


def test_an_estimate_is_measured_and_leaves_nothing(sources: dict[str, tuple[str, ...]], prepared: Preparing) -> None:
    estimate = preparing.estimate(prepared.request(options(*sources["images"])))
    assert (estimate.sample, estimate.left, estimate.broken) == (21, 30, 0)
    assert estimate.again_seconds
    assert estimate.read_seconds
    assert estimate.prepare_seconds
    assert estimate.bytes == pytest.approx(30 * (8 * 8 * 3 + 60), rel=0.2)
    assert sorted(path.name for path in prepared.folder.iterdir()) == ["floats.npz", "images", "parts.npz"]


# ---- a user's own code ----------------------------------------------------------------------------

CODE = """
import keras, numpy as np, tensorflow as tf
x, y = np.arange(40, dtype="float32").reshape(20, 2), np.arange(20)

class Data(keras.utils.PyDataset):
    def __len__(self):
        return 4
    def __getitem__(self, number):
        return x[6 * number:6 * number + 6], y[6 * number:6 * number + 6]

def build(context):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return %s
"""
SLICES = "tf.data.Dataset.from_tensor_slices((x, y))"
DOUBLED = "lambda a, b: ({'a': 2 * a}, b)"
LOOKED = "lambda a, b: (tf.debugging.check_numerics(tf.where(b == 3, np.nan, a), 'not a number'), b)"


@pytest.mark.parametrize(
    ("returned", "counts", "first"),
    [
        ("(model, (x, y), (x[:4], y[:4]))", (20, 4), (0, 1)),
        (f"(model, {SLICES}.batch(6))", (20, 0), (0, 1)),
        (f"(model, {SLICES}.shuffle(20).shuffle(9).batch(6))", (20, 0), (0, 1)),
        ("(model, Data())", (20, 0), (0, 1)),
        (f"dict(model=model, train={SLICES}, map={DOUBLED}, validation={SLICES}.take(2))", (20, 2), (0, 2)),
        (f"dict(model=model, train={SLICES}, map={LOOKED}, samples=30)", (19, 0), (0, 1)),  # more than there are
    ],
    ids=["arrays", "batched", "shuffled", "PyDataset", "mapped", "broken"],
)
def test_the_data_of_own_code_is_stored_as_single_samples(
    returned: str, counts: tuple[int, int], first: tuple[float, ...], own: Write, prepared: Preparing, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(CODE % returned)
    given = options(f"entry={tmp_path}/train.py:build", f"folder={tmp_path}", "validation_split=0")
    manifest, folder = prepared(given, shards=4)
    assert (manifest.good("train"), manifest.good("validation")) == counts
    assert ("shuffle of your data is left out" in prepared.said) == ("shuffle" in returned)
    samples = list(dataset(folder).train())
    assert len(samples) == counts[0]
    x = samples[0][0]
    assert list((x["a"] if isinstance(x, dict) else x).numpy()) == list(first)
    labels = [int(sample[1]) for sample in samples]
    assert labels == [number for number in range(20) if number != 3 or counts[0] == 20]
    assert [each.sample for each in manifest.broken] == ["sample 3 of train"][: 20 - counts[0]]
    if "train=" not in returned:
        with pytest.raises(PrepareError, match="--dtype is for gputui's own data"):
            prepared(given, "other", dtype="float16")


def test_a_split_after_a_shuffle_in_a_fixed_order_stays(own: Write, prepared: Preparing, tmp_path: Path) -> None:
    fixed = f"{SLICES}.shuffle(20, seed=1, reshuffle_each_iteration=False)"
    parts = f"{fixed}.skip(5).shuffle(20).batch(6), {fixed}.take(5).batch(5)"
    (tmp_path / "train.py").write_text(CODE % f"(model, {parts})")
    _, folder = prepared(options(f"entry={tmp_path}/train.py:build", f"folder={tmp_path}"))
    written = dataset(folder)
    train, validation = ([int(label) for _, label in part()] for part in (written.train, written.validation))
    assert sorted(train + validation) == list(range(20))
    assert validation != list(range(5)), "not the first ones"


def test_own_data_that_is_drawn_at_random_is_refused(own: Write, prepared: Preparing, tmp_path: Path) -> None:
    draws = "lambda a, b: (a + tf.random.uniform(()), b)"
    (tmp_path / "train.py").write_text(CODE % f"dict(model=model, train={SLICES}, map={draws})")
    with pytest.raises(PrepareError, match="are not the same each time\nleave random changes out"):
        prepared(options(f"entry={tmp_path}/train.py:build", f"folder={tmp_path}"))
    assert not (tmp_path / "ready").exists()


class Numbers:
    """Samples that are numbers from 0 on, those of training plus 100. The label is the number; some cannot be read."""

    def __init__(self, train: int = 5, validation: int = 2, broken: tuple[int, ...] = ()) -> None:
        self.there = {"validation": validation, "train": train}
        self.broken: dict[int, Exception] = {
            number: tf.errors.InvalidArgumentError(None, None, f"no image {number}; nothing") for number in broken
        }
        self.opened: list[tuple[str, int]] = []
        self.samples = Samples(
            dict(self.there), self._elements, self._load, lambda element, part, number: f"{part} {number}: {element}",
            work.encode, lambda record: record, {"stamp": "s"}, None, one_process=True,
        )  # fmt: skip

    def _elements(self, part: str, first: int) -> Iterator[int]:
        self.opened.append((part, first))
        return iter(range(first, self.there[part]))

    def _load(self, part: str, element: int) -> tuple[Any, ...]:
        if element in self.broken:
            raise self.broken[element]
        number = element + 100 * (part == "train")
        return tf.constant([number, 1], tf.uint8), tf.constant(number, tf.int64)

    def labels(self, part: str, first: int, count: int) -> list[Any]:
        return list(map(label, self.samples.loaded(part, first, count)))


def label(sample: Any) -> Any:
    return sample if isinstance(sample, Broken) else int(sample[1])


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(options(), tmp_path, "tfrecord", None, None, None)


# ---- measured ----------------------------------------------------------------------------------


class Time:
    """Each sample takes a second of the clock, and the first one a minute."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, numbers: Numbers) -> None:
        self.now, load = 50.0, numbers.samples.load

        def slow(part: str, element: Any) -> Any:
            self.now += 60.0 if self.now == 50.0 else 1.0
            return load(part, element)

        numbers.samples.load = slow
        monkeypatch.setattr(work, "time", SimpleNamespace(perf_counter=lambda: self.now, monotonic=lambda: self.now))


# ---- written -----------------------------------------------------------------------------------

SHARD = {"number": 3, "part": "train", "first": 1, "samples": 4}


@pytest.mark.parametrize("written", ["tfrecord", "npz"])
def test_a_file_has_the_good_samples_and_its_entry_names_the_others(
    written: str, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, answers = Numbers(broken=(3,)), list[Any]()
    Time(monkeypatch, numbers)
    monkeypatch.setattr(work, "PROGRESS_SECONDS", 2.0)
    work.obey({"shard": SHARD}, numbers.samples, replace(request_, format=written), answers.append)
    name = f"00003-train.{'rows' if written == 'npz' else 'tfrecord'}"
    assert [path.name for path in request_.folder.iterdir()] == [name]
    content = (request_.folder / name).read_bytes()
    entry = {
        "number": 3, "part": "train", "file": name, "samples": 3, "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "broken": [{"sample": "train 3: 3", "reason": "no image 3; nothing"}],
    }  # fmt: skip
    assert answers == [{"at": 1}, {"at": 3}, {"written": entry}], "of all that were read, every two seconds"
    if written == "npz":
        rows = bytes([101, 1, 102, 1, 104, 1])
        assert content == rows + np.array([101, 102, 104], "int64").tobytes()
    else:
        stored = tf.data.TFRecordDataset(str(request_.folder / name)).map(
            lambda record: work._decoded(record, "uint8", (2,))
        )
        assert [(x.tolist(), int(y)) for x, y in stored.as_numpy_iterator()] == [
            ([number, 1], number) for number in (101, 102, 104)
        ]


# ---- joined ------------------------------------------------------------------------------------


def opened(*settings: str, dtype: str | None = None, size: Any = None, limit: int | None = None) -> Samples:
    return work.opened(Request(options(*settings), Path(), "tfrecord", dtype, size, limit))


def refused(*settings: str, **given: Any) -> tuple[str, str]:
    with pytest.raises(TrainerError) as raised:
        opened(*settings, **given)
    return raised.value.message, raised.value.hint


def inputs(samples: Samples, part: str = "train") -> list[Any]:
    return [sample if isinstance(sample, Broken) else sample[0].numpy() for sample in samples.fresh(part)]


@pytest.fixture
def arrays(tmp_path: Path) -> str:
    """Images of bytes, eight of two classes."""
    x = (np.arange(8 * 2 * 4).reshape(8, 2, 4, 1) * 3).astype("uint8")
    np.savez(tmp_path / "images.npz", x=x, y=np.arange(8) % 2)
    return f"data=npz:{tmp_path}/images.npz"


# ---- a preset's data ---------------------------------------------------------------------------


def test_images_of_arrays_are_resized_and_rounded(arrays: str) -> None:
    made = opened(arrays, "validation_split=0", size=(1, 2))
    assert (made.facts["shape"], made.facts["dtype"]) == ([1, 2, 1], "uint8")
    (first, *_) = sorted(inputs(made), key=lambda array: int(array[0, 0, 0]))
    # Of 0 3 6 9 over 12 15 18 21: bilinear sampling gives 7.5 and 13.5, which are rounded to even numbers.
    assert (first.dtype, first.ravel().tolist()) == ("uint8", [8, 14])


# ---- own code ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "message", "hint"),
    [
        (f"dict(model=model, train={SLICES}.repeat(), map=None)", "train has no end", "return samples next to it"),
        (f"dict(model=model, train={SLICES}, validation={SLICES}.repeat(), map=None)", "validation has no end",
         "return validation_samples next to it"),
        ("(model, (tf.ragged.constant([[1.0], [2.0, 3.0]]), y[:2]))", "a sample contains RaggedTensorSpec",
         "only tensors can be stored: make it dense"),
        ("(model, (pair for pair in [(x, y)]))",
         "train is a generator, which has only one pass, and several are needed here",
         "return the function that makes it"),
    ],
)  # fmt: skip
def test_own_data_that_cannot_be_stored_is_refused(
    returned: str, message: str, hint: str, own: Write, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(CODE % returned)
    settings = (f"entry={tmp_path}/train.py:build", f"folder={tmp_path}", "validation_split=0")
    assert refused(*settings) == (message, hint)
