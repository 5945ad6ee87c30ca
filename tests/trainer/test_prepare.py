"""Prepared data: the same batches as from the original, from each kind of data, for gputui and for plain TensorFlow."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine import presets
from gputui.engine.files.writing import ExistsError
from gputui.engine.prepare import preparing
from gputui.engine.prepare.manifest import ManifestError
from gputui.engine.prepare.request import PrepareError
from gputui.engine.presets import Preset
from gputui.engine.trainer.data import pipeline as pipelines
from gputui.engine.trainer.own import counting
from gputui.engine.trainer.prepare import entry_data

from tests.support.class_folders import class_folders
from tests.support.own import Write
from tests.support.preparing import Preparing
from tests.support.preparing import prepared as prepared
from tests.support.training import options

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


NOTIFYING = """\
schema_version: 1
train: {{seed: 1}}
input: {{batch_size: 4}}
notify:
  # the channel is https://example.org/SECRET
  url: https://example.org/SECRET  # SECRET
  command: mail SECRET
workload: {{data: "images:{folder}/images", shape: [8, 8, 3]}}
# once notify.url was https://example.org/SECRET
"""


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
        "digits": ("data=digits", "batch_size=200"),
    }


PLAIN: dict[str, Any] = {}
NPZ: dict[str, Any] = {"format": "npz"}
FLOATS: dict[str, Any] = {"dtype": "float32", "shards": 3}
PREPARED = [*((kind, given) for kind in ("images", "floats") for given in (PLAIN, NPZ, FLOATS)),
            ("parts", PLAIN), ("parts", FLOATS), ("digits", NPZ)]  # fmt: skip


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
        expected = next(iter(pipelines.build(read_back(folder).options, 1).source.train.elements.map(stored.parse)))
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


def test_a_folder_of_any_name_has_no_address_for_notices(prepared: Preparing, tmp_path: Path) -> None:
    """The folder is handed on, and the address is often a secret, also in a comment."""
    class_folders(tmp_path / "images", 20, 0)
    (tmp_path / "mine.yaml").write_text(NOTIFYING.format(folder=tmp_path))
    original = presets.resolve(str(tmp_path / "mine.yaml"))
    assert original.options.notify.url
    asked = replace(prepared.request(original.options, "ready[v2]"), preset=original)
    preparing.prepare(asked, lambda _line: None, lambda _progress: None)
    assert same(batches(original), batches(read_back(asked.folder)))
    assert not read_back(asked.folder).options.notify.url
    assert [path.name for path in asked.folder.iterdir() if b"SECRET" in path.read_bytes()] == []


def test_what_belongs_to_other_data_is_refused(prepared: Preparing, tmp_path: Path) -> None:
    class_folders(tmp_path / "images", 20, 0)
    given = options(f"data=images:{tmp_path}/images", *IMAGES)
    _, folder = prepared(given)
    (folder / "00000-validation.tfrecord").unlink()
    (tmp_path / "images" / "cat" / "000000.png").write_bytes(b"changed")
    with pytest.raises(PrepareError, match="have changed since"):
        prepared(given)
    (folder / "manifest.json").unlink()
    with pytest.raises(ExistsError, match="is not overwritten"):
        prepared(given)
    (folder / "manifest.json").write_text('{"version": 1, "written": 3}')
    with pytest.raises(ManifestError, match="is damaged"):
        prepared(given)


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
        (f"(model, {SLICES}.shuffle(20).batch(6))", (20, 0), (0, 1)),
        ("(model, Data())", (20, 0), (0, 1)),
        (f"dict(model=model, train={SLICES}, map={DOUBLED}, validation={SLICES}.take(2))", (20, 2), (0, 2)),
        (f"dict(model=model, train={SLICES}, map={LOOKED})", (19, 0), (0, 1)),
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


def test_a_shuffle_is_noticed_also_if_two_passes_begin_with_the_same_samples(
    own: Write, prepared: Preparing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(CODE % f"(model, {SLICES}.batch(18).shuffle(2, seed=3))")
    given = options(f"entry={tmp_path}/train.py:build", f"folder={tmp_path}", "validation_split=0")
    monkeypatch.setattr(entry_data, "_stamp", lambda _samples: "the same")
    _, folder = prepared(given)
    assert "shuffle of your data is left out" in prepared.said
    assert [int(label) for _, label in dataset(folder).train()] == list(range(20))
    monkeypatch.setattr(counting, "MOST_BYTES", 0)
    with pytest.raises(PrepareError, match="are not the same each time"):
        prepared(given, "other")


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
