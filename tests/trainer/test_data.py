"""Sources of data: what they give, and how each fault in them is told before any training."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.engine import EventWriter, Run, options_json, presets, to_script
from tests.doors.trainer import DataError, Pipeline, RunReport, StopSwitch, TrainerError, session
from tests.doors.trainer import pipeline as pipelines
from tests.support.training import options, source_of

pytestmark = pytest.mark.usefixtures("cpus")
KEEP_ALL = ("validation_split=0", "shuffle=off", "batch_size=4")


def pipeline(*settings: str) -> Pipeline:
    return pipelines.build(options(*settings), replicas=1)


def batches(dataset: tf.data.Dataset, number: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(x.numpy(), y.numpy()) for x, y in dataset.take(number)]


def one_pass(*settings: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of the first pass."""
    pipe = pipeline(*KEEP_ALL, *settings)
    found = batches(pipe.stream(), pipe.batches_per_pass)
    return np.concatenate([x for x, _ in found]), np.concatenate([y for _, y in found])


def fault(*settings: str) -> str:
    """The sentence that refuses the data."""
    with pytest.raises(TrainerError) as raised:
        pipeline("batch_size=2", *settings)
    told = raised.value
    assert told.kind == "data"
    assert "\n" not in told.message + told.hint
    assert len(told.message) < 400
    return f"{told.message}; {told.hint}"


# ---- data by name -----------------------------------------------------------------------------


def test_the_split_is_disjoint_complete_and_the_same_for_a_seed() -> None:
    def parts(seed: int) -> tuple[list[bytes], list[bytes]]:
        pipe = pipeline("data=digits", "validation_split=0.25", "shuffle=off", "batch_size=50", f"seed={seed}")
        train = [row.tobytes() for x, _ in batches(pipe.stream(), pipe.batches_per_pass) for row in x]
        held = [row.tobytes() for x, _ in batches(pipe.validation(), pipe.validation_batches) for row in x]
        return train, held

    train, held = parts(seed=7)
    assert (len(train), len(held)) == (1348, 449)
    assert not set(train) & set(held)
    assert parts(seed=7) == (train, held)
    assert parts(seed=8)[1] != held


def test_a_data_set_that_cannot_be_downloaded_names_the_file_and_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "kh"))
    monkeypatch.setattr("keras.src.backend.config._KERAS_DIR", str(tmp_path / "kh"))  # Keras reads it at its import
    monkeypatch.setattr("urllib.request._opener", None)  # so does Python with the proxies, which lead nowhere here
    for kind in ("http", "https", "HTTP", "HTTPS"):
        monkeypatch.setenv(f"{kind}_proxy", "http://127.0.0.1:9")
    files = {"mnist": "mnist.npz", "fashion_mnist": "fashion-mnist", "cifar10": "cifar-10-batches-py"}
    for name, file in files.items():
        with pytest.raises(DataError) as fault:
            pipelines.build(options(f"data={name}"), replicas=1)
        told = fault.value.message + "; " + fault.value.hint
        assert f"{name} is not on this machine" in told
        assert f"put {file}" in told
        assert str(tmp_path / "kh" / "datasets") in told
        assert "\n" not in told


# ---- npz --------------------------------------------------------------------------------------


def saved(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "a.npz", **arrays)
    return f"data=npz:{folder / 'a.npz'}"


X = np.arange(10 * 4, dtype="float32").reshape(10, 2, 2) / 40
Y = np.arange(10) % 3


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": X}, "no array 'y'"),
        ({"y": Y}, "no array 'x'"),
        ({}, "it has: none"),
        ({"x": X, "y": Y[:5]}, "x has 10 samples, but y has shape (5,)"),
        ({"x": X, "y": np.zeros((10, 3), int)}, "each sample needs one label"),
        ({"x": X, "y": Y * 0.5}, "y contains float64, but must contain whole class numbers"),
        ({"x": X, "y": Y - 1}, "label -1; classes are numbered from 0"),
        ({"x": X, "y": Y + 10**12}, "label 1000000000000; classes are numbered from 0 to at most 999999"),
        ({"x": X, "y": Y.astype(str)}, "y contains"),
        ({"x": X.astype(str), "y": Y}, "x contains"),
        ({"x": X.astype(complex), "y": Y}, "x contains complex128"),
        ({"x": np.where(X[4, 0, 0] == X, np.nan, X), "y": Y}, "sample 4 of x is not finite"),
        ({"x": np.where(X[5, 1, 1] == X, np.inf, X), "y": Y}, "sample 5 of x is not finite"),
        ({"x": np.zeros((0, 2, 2)), "y": np.zeros(0, int)}, "x has shape (0, 2, 2)"),
        ({"x": np.zeros((4, 0, 2)), "y": Y[:4]}, "x has shape (4, 0, 2)"),
        ({"x": np.zeros(10), "y": Y}, "x has shape (10,)"),
        ({"x": np.float32(3), "y": Y}, "x has shape ()"),
        ({"x": X, "y": 3}, "y has shape ()"),
        ({"x": X, "y": np.array([None] * 10)}, "not a .npz file of plain arrays"),
        ({"x": X[:1], "y": Y[:1]}, "do not fill one global batch"),
    ],
)
def test_npz_that_cannot_be_trained_on_is_refused(arrays: dict[str, Any], words: str, tmp_path: Path) -> None:
    told = fault(saved(tmp_path, **arrays), "drop_remainder=true", "validation_split=0")
    assert words in told
    assert "a.npz" in told or "global batch" in told


# ---- images -----------------------------------------------------------------------------------


def image(path: Path, shade: int, size: tuple[int, int, int] = (6, 6, 3)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full(size, shade, "uint8")
    encode = {".png": tf.io.encode_png, ".jpg": tf.io.encode_jpeg}[path.suffix]
    path.write_bytes(encode(pixels).numpy())


def class_folders(root: Path) -> str:
    """Three shades of cats, two of dogs, and what lies about in real folders."""
    for shade in (10, 20, 30):
        image(root / "cat" / f"{shade}.png", shade)
    image(root / "dog" / "200.jpg", 200, (12, 10, 3))
    image(root / "dog" / "210.png", 210, (3, 3, 1))
    (root / "dog" / "notes.txt").write_text("none")
    (root / ".hidden").mkdir()
    (root / "readme.txt").write_text("none")
    return f"data=images:{root}"


def test_images_come_from_class_folders_resized_to_the_shape(tmp_path: Path) -> None:
    x, y = one_pass(class_folders(tmp_path), "shape=[4, 5, 3]")
    assert x.shape == (5, 4, 5, 3)
    told = sorted((int(label), round(float(picture.mean()) * 255)) for picture, label in zip(x, y, strict=True))
    assert told == [(0, 10), (0, 20), (0, 30), (1, 200), (1, 210)]


def test_a_folder_without_classes_is_refused(tmp_path: Path) -> None:
    assert f"{tmp_path} has 0 class folders" in fault(f"data=images:{tmp_path}")
    image(tmp_path / "cat" / "1.png", 1)
    assert f"{tmp_path} has 1 class folder;" in fault(f"data=images:{tmp_path}")


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\nbroken"], ids=repr)
def test_an_unreadable_first_image_of_a_class_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    place = class_folders(tmp_path)
    (tmp_path / "cat" / "0.png").write_bytes(content)
    told = fault(place)
    assert told.startswith(f"{tmp_path}/cat/0.png cannot be read as an image: ")
    assert told.endswith("; repair or remove it; gputui prepare leaves such files out")


# ---- test parts -------------------------------------------------------------------------------


def with_test_part(path: Path, **changes: Any) -> str:
    arrays = {
        "x_train": np.arange(24, dtype="uint8").reshape(6, 2, 2), "y_train": np.arange(6) % 3,
        "x_test": np.full((2, 2, 2), 255, "uint8"), "y_test": np.array([[3], [0]]),
    }  # fmt: skip
    np.savez(path, **{name: array for name, array in (arrays | changes).items() if array is not None})
    return f"data=npz:{path}"


def test_the_test_part_of_an_npz_validates_and_all_else_trains(tmp_path: Path) -> None:
    pipe = pipeline(with_test_part(tmp_path / "a.npz"), "validation=test", "batch_size=6", "shuffle=off")
    ((x, y),) = batches(pipe.validation(), 1)
    assert x.shape == (2, 2, 2, 1)
    assert (x == 1.0).all()
    assert list(y) == [3, 0]
    assert source_of(pipe).classes == 4, "the test part may know more classes"
    ((_, labels),) = batches(pipe.stream(), 1)
    assert sorted(labels) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"x_test": None}, "has no array 'x_test' (it has: x_train"),
        ({"x_test": np.zeros((2, 3, 2), "uint8")}, "samples of both parts need the same shape"),
        ({"x_test": np.zeros((2, 2, 2), "float32")}, "samples of both parts need the same shape and type"),
        ({"y_test": np.zeros(3, "int64")}, "a.npz (test): x has 2 samples, but y has shape (3,)"),
    ],
)
def test_a_test_part_that_does_not_go_with_the_rest_is_refused(
    changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    assert told in fault(with_test_part(tmp_path / "a.npz", **changes), "validation=test")


def test_the_test_part_of_a_named_set_validates(monkeypatch: pytest.MonkeyPatch) -> None:
    train = np.zeros((9, 4, 4), "uint8"), np.arange(9) % 2
    parts = train, (np.full((3, 4, 4), 51, "uint8"), np.ones(3, "int64"))
    monkeypatch.setattr(keras.datasets.mnist, "load_data", lambda: parts)  # there is no network for the real one
    pipe = pipeline("data=mnist", "validation=test", "batch_size=3")
    assert (pipe.train_samples, pipe.validation_samples) == (9, 3)
    assert batches(pipe.validation(), 1)[0][0].max() == pytest.approx(0.2)


# ---- TFRecord ---------------------------------------------------------------------------------


def feature(value: Any) -> tf.train.Feature:
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value, int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    if np.asarray(value).dtype.kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(value)))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=np.ravel(value)))


def records(path: Path, *examples: dict[str, Any]) -> str:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            features = tf.train.Features(feature={name: feature(value) for name, value in example.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return f"data=tfrecord:{path.parent}/*.tfrecord"


PIXELS = np.arange(12, dtype="uint8").reshape(2, 2, 3) * 20


@pytest.mark.parametrize(
    ("encoding", "stored", "expected"),
    [
        ("encoded", "png", PIXELS / 255),
        ("uint8", PIXELS.tobytes(), PIXELS / 255),
        ("float32", (PIXELS / np.float32(100)).tobytes(), PIXELS / 100),
        ("float16", (PIXELS / 100).astype("float16").tobytes(), (PIXELS / 100).astype("float16")),
        ("float_list", PIXELS / 100, PIXELS / 100),
        ("int64_list", PIXELS.astype(int), PIXELS),
    ],
    ids=["encoded", "uint8", "float32", "float16", "float_list", "int64_list"],
)
def test_tfrecord_reads_each_encoding(encoding: str, stored: Any, expected: np.ndarray, tmp_path: Path) -> None:
    if encoding == "encoded":
        stored = tf.io.encode_png(PIXELS).numpy()
    records(tmp_path / "a.tfrecord", *[{"image": stored, "label": n} for n in (2, 0)])
    place = records(tmp_path / "b.tfrecord", {"image": stored, "label": 1})
    x, y = one_pass(place, "shape=[2, 2, 3]", "classes=3", f"tfrecord_encoding={encoding}")
    assert list(y) == [2, 0, 1]
    for one in x:
        np.testing.assert_allclose(one, expected, atol=1e-6)


def test_tfrecord_keeps_the_first_records_for_validation(tmp_path: Path) -> None:
    place = records(tmp_path / "a.tfrecord", *[{"image": [float(n)], "label": n} for n in range(10)])
    pipe = pipeline(place, "shape=[1]", "tfrecord_encoding=float_list", "validation_split=0.3", "shuffle=off")
    assert list(batches(pipe.validation(), 1)[0][1]) == [0, 1, 2]
    assert list(batches(pipe.stream(), 1)[0][1]) == [3, 4, 5, 6, 7, 8, 9]
    code = to_script(presets.defaults([place, "shape=[1]", "tfrecord_encoding=float_list", "validation_split=0.3"]))
    data: dict[str, Any] = {}
    exec(code[: code.index("if __name__")], data)
    data |= {"DATA": f"{tmp_path}/*.tfrecord", "VALIDATION_SPLIT": 0.3, "CLASSES": 10, "SHAPE": (1,)}
    exec(textwrap.dedent(code[code.index("    records = ") : code.index("    per_pass = ")]), data)
    labels = [[int(data["load"](record)[1]) for record in data[part]] for part in ("validation", "train")]
    assert labels == [[0, 1, 2], [3, 4, 5, 6, 7, 8, 9]], "so does the exported script"


FLOATS = ("shape=[4]", "classes=3", "tfrecord_encoding=float_list")
GOOD = {"image": [0.0, 0.1, 0.2, 0.3], "label": 1}


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ({"image": GOOD["image"]}, "label"),
        ({"label": 1}, "image"),
        ({"image": [0.1], "label": 1}, "image"),
        ({"image": b"abc", "label": 1}, "image"),
        ({"image": GOOD["image"], "label": 0.5}, "label"),
        ({"image": GOOD["image"], "label": 3}, "label outside workload.classes"),
        ({"image": GOOD["image"], "label": -1}, "label outside workload.classes"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_naming_file_and_feature(
    example: dict[str, Any], words: str, tmp_path: Path
) -> None:
    told = fault(records(tmp_path / "a.tfrecord", example), *FLOATS)
    assert words in told
    assert f"{tmp_path}/a.tfrecord" in told


def test_files_that_hold_no_records_are_refused(tmp_path: Path) -> None:
    place = f"data=tfrecord:{tmp_path}/*.tfrecord"
    assert "no file matches" in fault(place)
    (tmp_path / "a.tfrecord").write_bytes(b"")
    assert "contains no records" in fault(place)
    (tmp_path / "a.tfrecord").write_bytes(b"this is not a record file, certainly not")
    assert "a.tfrecord" in fault(place)
    last = records(tmp_path / "a.tfrecord", *[GOOD] * 5, GOOD | {"label": 3})
    assert "contain the label 3, but workload.classes is 3" in fault(last, *FLOATS)


def test_a_record_file_that_breaks_off_is_refused(tmp_path: Path) -> None:
    place = records(tmp_path / "a.tfrecord", *[GOOD] * 50)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(path.read_bytes()[:-20])
    assert "cannot be read to their end" in fault(place, *FLOATS)


def test_fewer_records_than_workload_samples_says_end_the_first_pass_with_an_error(tmp_path: Path) -> None:
    place = records(tmp_path / "a.tfrecord", *[GOOD] * 5)
    pipe = pipeline(place, *FLOATS, "samples=9", "validation_split=0", "batch_size=2")
    with pytest.raises(tf.errors.OpError, match="contain 9 elements but"):
        batches(pipe.stream(), pipe.batches_per_pass)


def test_an_unreadable_image_that_training_meets_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = class_folders(tmp_path / "images")
    broken = tmp_path / "images" / "cat" / "25.png"
    image(broken, 25)
    broken.write_bytes(broken.read_bytes()[:-15])
    for name in ("CUDA_DEVICE_ORDER", "TF_GPU_THREAD_MODE", "CUDA_CACHE_MAXSIZE"):
        monkeypatch.setenv(name, "")  # the trainer sets them for its process: restored afterwards
    settings = ("seed=7", "logical_devices=2", "model=mlp", "shape=[4, 4, 3]", "batch_size=2", "validation_split=0")
    run = Run(tmp_path)
    run.file(options_json.FILE).write_text(options_json.to_json(presets.defaults([place, *settings]).options))
    writer = EventWriter(run.file("events.jsonl"), run.id)
    assert session.train_run(RunReport(run, writer), StopSwitch()) == 1
    writer.close()
    error = (run.result or {})["error"]
    assert error["kind"] == "data"
    assert error["message"].startswith(f"{broken} cannot be read as an image: ")
