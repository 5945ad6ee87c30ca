"""Which samples `gputui prepare` reads of a preset's data or of own code: their numbers, names, types, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.prepare import work
from gputui.engine.trainer.prepare.request import Request
from gputui.engine.trainer.prepare.samples import Broken, Samples

from tests.support.class_folders import class_folders
from tests.support.own import Write
from tests.support.training import options

pytestmark = pytest.mark.usefixtures("cpus")


def opened(*settings: str, dtype: str | None = None, size: Any = None, limit: int | None = None) -> Samples:
    return work.opened(Request(options(*settings), Path(), "tfrecord", dtype, size, limit))


def refused(*settings: str, **given: Any) -> tuple[str, str]:
    with pytest.raises(TrainerError) as raised:
        opened(*settings, **given)
    return raised.value.message, raised.value.hint


def inputs(samples: Samples, part: str = "train") -> list[Any]:
    return [sample if isinstance(sample, Broken) else sample[0].numpy() for sample in samples.fresh(part)]


def labels(samples: Iterator[Any]) -> list[int]:
    return [int(sample[1]) for sample in samples]


@pytest.fixture
def arrays(tmp_path: Path) -> str:
    """Images of bytes, eight of two classes."""
    x = (np.arange(8 * 2 * 4).reshape(8, 2, 4, 1) * 3).astype("uint8")
    np.savez(tmp_path / "images.npz", x=x, y=np.arange(8) % 2)
    return f"data=npz:{tmp_path}/images.npz"


# ---- a preset's data ---------------------------------------------------------------------------


def test_the_facts_of_arrays_are_those_of_a_training(arrays: str) -> None:
    made = opened(arrays, "validation_split=0.25", limit=4)
    assert made.counts == {"validation": 1, "train": 3}
    facts = dict(made.facts)
    assert len(str(facts.pop("stamp"))) > 10
    assert facts == {
        "validation": 1, "train": 3, "shape": [2, 4, 1], "dtype": "uint8", "classes": 2, "test": False,
    }  # fmt: skip
    assert not made.one_process
    element = next(made.elements("train", 2))
    assert made.name(element, "train", 2) == "sample 2 of train"
    assert made.dataset is not None
    assert [array.tolist() for array in inputs(made)][:3] == [
        x.tolist() for x, _ in made.dataset("train").take(3).as_numpy_iterator()
    ]


def test_a_training_part_and_a_test_part_keep_their_order(tmp_path: Path) -> None:
    x = np.arange(6, dtype="float32")[:, None] / 6
    np.savez(tmp_path / "parts.npz", x_train=x[:4], y_train=np.arange(4), x_test=x[4:], y_test=np.arange(2))
    made = opened(f"data=npz:{tmp_path}/parts.npz", "train.validation=test")
    assert (made.counts, made.facts["test"]) == ({"validation": 2, "train": 4}, True)
    assert [array.tolist() for array in inputs(made, "validation")] == x[4:].tolist()


@pytest.mark.parametrize(
    ("dtype", "stored", "scale"), [(None, "uint8", 1), ("float32", "float32", 255), ("float16", "float16", 255)]
)
def test_bytes_stay_bytes_or_become_scaled_floats(dtype: str | None, stored: str, scale: int, arrays: str) -> None:
    made = opened(arrays, "validation_split=0", "seed=3", dtype=dtype)
    assert made.facts["dtype"] == stored
    (first, *_) = sorted((array.astype("float64") for array in inputs(made)), key=lambda array: float(array[0, 0, 0]))
    assert str(inputs(made)[0].dtype) == stored
    sample = next(made.fresh("train"))
    assert not isinstance(sample, Broken)
    again = made.decode(tf.constant(made.encode(sample)))
    assert np.array_equal(again[0], sample[0])
    assert int(again[1]) == int(sample[1])
    np.testing.assert_allclose(first.ravel() * scale, np.arange(8) * 3, rtol=1e-2)


def test_images_of_arrays_are_resized_and_rounded(arrays: str) -> None:
    made = opened(arrays, "validation_split=0", size=(1, 2))
    assert (made.facts["shape"], made.facts["dtype"]) == ([1, 2, 1], "uint8")
    (first, *_) = sorted(inputs(made), key=lambda array: int(array[0, 0, 0]))
    # Of 0 3 6 9 over 12 15 18 21: bilinear sampling gives 7.5 and 13.5, which are rounded to even numbers.
    assert (first.dtype, first.ravel().tolist()) == ("uint8", [8, 14])


def test_a_size_is_that_to_which_a_training_would_resize(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (4, 9, 7, 3)).astype("uint8")
    with tf.io.TFRecordWriter(str(tmp_path / "a.rec")) as writer:
        for number, image in enumerate(pixels):
            png = tf.io.encode_png(image).numpy()
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[png])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    data = (f"data=tfrecord:{tmp_path}/a.rec", "tfrecord_encoding=encoded", "classes=4", "validation_split=0.25")
    as_trained = opened(*data, "shape=[4, 6, 3]")
    resized = opened(*data, "shape=[8, 8, 3]", size=(4, 6))
    for part in ("train", "validation"):
        pairs = list(zip(inputs(as_trained, part), inputs(resized, part), strict=True))
        assert len(pairs) == resized.counts[part]
        assert all(np.array_equal(*pair) for pair in pairs)
        assert resized.dataset is not None
        by_tensorflow = [x for x, _ in resized.dataset(part).as_numpy_iterator()]
        assert all(np.array_equal(one, other) for one, (_, other) in zip(by_tensorflow, pairs, strict=True))
    assert (resized.counts, resized.facts["shape"]) == ({"validation": 1, "train": 3}, [4, 6, 3])


def test_images_of_files_are_named_by_their_place_in_the_folder(tmp_path: Path) -> None:
    class_folders(tmp_path / "images", 6, 0)
    broken = next((tmp_path / "images").glob("*/*.png"))
    broken.write_bytes(b"no image")
    made = opened(f"data=images:{tmp_path}/images", "shape=[8, 8, 3]", "validation_split=0", size=(4, 6))
    assert (made.facts["shape"], made.counts["train"]) == ([4, 6, 3], 6)
    found = inputs(made)
    assert {array.shape for array in found if not isinstance(array, Broken)} == {(4, 6, 3)}
    (named,) = [each.sample for each in found if isinstance(each, Broken)]
    assert named == str(broken.relative_to(tmp_path / "images"))


def test_what_would_lose_something_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "floats.npz", x=np.zeros((6, 5), "float32"), y=np.arange(6))
    data = f"data=npz:{tmp_path}/floats.npz"
    assert refused(data, dtype="uint8") == (
        "the inputs of this data are not bytes from 0 to 255", "use --dtype float32 or float16",
    )  # fmt: skip
    assert refused(data, size=(4, 4)) == ("--size needs images; a sample of this data has the shape [5]", "")
    np.savez(tmp_path / "videos.npz", x=np.zeros((6, 2, 4, 4, 1), "float32"), y=np.arange(6))
    assert refused(f"data=npz:{tmp_path}/videos.npz", size=(4, 4)) == (
        "--size needs images; a sample of this data has the shape [2, 4, 4, 1]", "",
    )  # fmt: skip
    assert opened(data, dtype="float16").facts["dtype"] == "float16"
    assert opened(data).facts["dtype"] == "float32"


# ---- own code ----------------------------------------------------------------------------------

CODE = """
import keras, numpy as np, tensorflow as tf
x, y = np.arange(40, dtype="float32").reshape(20, 2), np.arange(20)

class Data(keras.utils.PyDataset):
    def __len__(self):
        return 3
    def __getitem__(self, number):
        sizes = %s
        first = sum(sizes[:number])
        return x[first:first + sizes[number]], y[first:first + sizes[number]]

def endless():
    while True:
        yield x[0], y[0]

def build(context):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = tf.data.Dataset.from_tensor_slices((x, y))
    return %s
"""


@pytest.fixture
def code(own: Write, tmp_path: Path) -> Any:
    """code("what build returns", sizes of the batches): its settings."""

    def make(returned: str, sizes: str = "(8, 8, 4)") -> tuple[str, ...]:
        (tmp_path / "train.py").write_text(CODE % (sizes, returned))
        return f"entry={tmp_path}/train.py:build", f"folder={tmp_path}", "validation_split=0"

    return make


def test_shuffles_of_either_part_are_left_out_and_said(code: Any) -> None:
    for train, validation, left_out in (
        ("rows", "rows.take(4)", False), ("rows.shuffle(20)", "rows.take(4)", True),
        ("rows", "rows.take(4).shuffle(4)", True),
        ("rows.shuffle(20, seed=1, reshuffle_each_iteration=False)", "rows.take(4)", False),
    ):  # fmt: skip
        made = opened(*code(f"dict(model=model, train={train}, validation={validation}, map=None)"))
        assert made.facts["shuffle_left_out"] is left_out, (train, validation)
        assert labels(made.fresh("validation")) == [0, 1, 2, 3]
        assert sorted(labels(made.fresh("train"))) == list(range(20))
        assert (labels(made.fresh("train")) == list(range(20))) is ("seed" not in train)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("returned", "counts", "one_process"),
    [
        ("(model, (x, y), (x[:3], y[:3]))", (20, 3), False),
        ("dict(model=model, train=rows, map=None, samples=7, validation=rows.take(4))", (7, 4), False),
        ("dict(model=model, train=rows, map=None, samples=99)", (20, 0), False),
        ("dict(model=model, train=rows.filter(lambda a, b: b < 9), map=None)", (9, 0), False),
        ("(model, rows.batch(6))", (20, 0), True),
        ("(model, Data())", (20, 0), False),
    ],
)
def test_samples_of_own_code_are_counted_and_read_from_any_place(
    returned: str, counts: tuple[int, int], one_process: bool, code: Any
) -> None:
    made = opened(*code(returned))
    train, validation = counts
    assert made.counts == {"validation": validation, "train": train}
    assert (made.one_process, made.facts["shuffle_left_out"]) == (one_process, False)
    assert made.facts["structure"]["train"] == {
        "tuple": [{"number": 0, "dtype": "float32", "shape": [2]}, {"number": 1, "dtype": "int64", "shape": []}]
    }
    for first in (0, 5, train - 1, 6):
        assert labels(made.loaded("train", first, 1)) == [first]
    assert labels(made.fresh("train"))[:7] == list(range(7))
    (sample, *_) = made.loaded("train", 2, 1)
    assert not isinstance(sample, Broken)
    x, label = made.decode(tf.constant(made.encode(sample)))
    assert (x.numpy().tolist(), int(label)) == ([4.0, 5.0], 2)
    assert made.name(sample, "train", 2) == "sample 2 of train"
    limited = work.opened(Request(options(*code(returned)), Path(), "tfrecord", None, None, 4))
    assert sum(limited.counts.values()) == 4
    assert limited.facts["stamp"] != made.facts["stamp"]


def test_texts_name_a_sample_and_dicts_are_numbered_by_their_names(code: Any) -> None:
    texts = "(model, ({'b': np.array(['deep/b.png', 'c.png']), 'a': x[:2]}, y[:2]))"
    made = opened(*code(texts))
    assert made.facts["structure"]["train"] == {"tuple": [
        {"dict": {"a": {"number": 0, "dtype": "float32", "shape": [2]},
                  "b": {"number": 1, "dtype": "string", "shape": []}}},
        {"number": 2, "dtype": "int64", "shape": []},
    ]}  # fmt: skip
    assert json.loads(json.dumps(made.facts["structure"])) == made.facts["structure"]
    first = opened(*code("dict(model=model, train=tf.data.Dataset.from_tensor_slices((['é.png', 'c.png'], y[:2])), "
                         "map=lambda a, b: (tf.strings.length(a), b))"))  # fmt: skip
    element = next(first.elements("train", 0))
    assert first.name(element, "train", 0) == "é.png"
    assert first.dataset is not None
    assert first.dataset("train").element_spec[0].dtype == tf.int32


def test_each_part_is_mapped_by_its_own_function_and_drawn_numbers_are_those_of_the_seed(code: Any) -> None:
    maps = "map=lambda a, b: (a + 1, b), validation_map=lambda a, b: (a + 100, b)"
    made = opened(*code(f"dict(model=model, train=rows, validation=rows.take(2), {maps})"))
    firsts = [float(next(made.fresh(part))[0][0]) for part in ("train", "validation")]  # type: ignore[index]
    assert firsts == [1.0, 100.0]
    assert made.dataset is not None
    assert [x.tolist() for x, _ in made.dataset("validation").as_numpy_iterator()] == [[100.0, 101.0], [102.0, 103.0]]
    drawn = code("(model, (np.random.normal(size=(20, 2)).astype('float32'), y))")
    stamps = []
    for elsewhere in (1, 2):  # as in another process
        np.random.seed(elsewhere)
        stamps.append(opened(*drawn).facts["stamp"])
    assert stamps[0] == stamps[1] != opened(*drawn, "seed=8").facts["stamp"]


def test_arrays_without_validation_are_split_as_in_a_training(code: Any) -> None:
    made = opened(*code("(model, (x, y))"), "validation_split=0.25")
    assert made.counts == {"validation": 5, "train": 15}
    drawn = np.random.default_rng(7).permutation(20).tolist()
    assert [labels(made.fresh(part)) for part in ("train", "validation")] == [drawn[:15], drawn[15:]]
    none = opened(*code("(model, (x, y))"), "validation_split=0.01")
    assert (none.counts, set(none.facts["structure"])) == ({"validation": 0, "train": 20}, {"train"})
    batched = opened(*code("(model, rows.batch(5))"), "validation_split=0.25")
    assert batched.counts == {"validation": 0, "train": 20}, "only arrays are split"


def test_own_data_that_cannot_be_stored_is_refused(code: Any) -> None:
    endless = "dict(model=model, train=rows.repeat(), map=None)"
    assert refused(*code(endless)) == ("train has no end", "return samples next to it")
    endless = "dict(model=model, train=rows, validation=rows.repeat(), map=None)"
    assert refused(*code(endless)) == ("validation has no end", "return validation_samples next to it")
    ragged = "(model, (tf.ragged.constant([[1.0], [2.0, 3.0]]), y[:2]))"
    assert refused(*code(ragged)) == ("a sample contains RaggedTensorSpec", "only tensors can be stored: make it dense")
    once = "(model, endless())"
    assert refused(*code(once)) == (
        "train is a generator, which has only one pass, and several are needed here",
        "return the function that makes it",
    )
    assert refused(*code("(model, Data())", "(8, 5, 7)")) == (
        "batch 1 of your PyDataset has 5 samples, and the first has 8",
        "all batches but the last need the same size here",
    )
