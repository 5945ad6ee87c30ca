"""What a process of `gputui prepare` does with samples: reads on, measures, writes a file, joins files, and refuses."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.options import options_json
from gputui.engine.trainer.common.training_errors import DataError, TrainerError
from gputui.engine.trainer.prepare import __main__ as program
from gputui.engine.trainer.prepare import array_file, preset_data, shard_file, work
from gputui.engine.trainer.prepare.request import Request, read
from gputui.engine.trainer.prepare.samples import Broken, EndedEarly, Samples

from tests.support.training import options


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
            preset_data.encode, lambda record: record, {"stamp": "s"}, None, one_process=True,
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


# ---- one after the other -----------------------------------------------------------------------


def test_samples_that_follow_the_last_ones_are_read_on_and_others_from_their_place() -> None:
    numbers = Numbers(broken=(3,))
    assert numbers.labels("train", 0, 2) == [100, 101]
    broken = Broken("train 3: 3", "no image 3; nothing")
    assert numbers.labels("train", 2, 2) == [102, broken]
    assert numbers.opened == [("train", 0)]
    assert numbers.labels("validation", 0, 1) == [0]
    assert numbers.labels("validation", 1, 1) == [1]
    assert numbers.labels("train", 4, 1) == [104]
    assert numbers.labels("train", 4, 1) == [104]
    assert numbers.opened[1:] == [("validation", 0), ("train", 4), ("train", 4)]
    assert label(next(numbers.samples.loaded("train", 0, 3))) == 100, "left at its first sample"
    assert numbers.labels("train", 1, 1) == [101]
    assert numbers.labels("train", 0, 1) == [100]
    assert label(next(numbers.samples.loaded("train", 0, 3))) == 100
    assert numbers.labels("train", 1, 1) == [101], "after one that was left, too"
    assert numbers.opened[4:] == [("train", 0), ("train", 1), ("train", 0), ("train", 0), ("train", 1)]
    assert list(map(label, numbers.samples.fresh("train"))) == [100, 101, 102, broken, 104]
    assert numbers.opened[-1] == ("train", 0)


def test_data_that_ends_early_says_at_which_sample() -> None:
    numbers = Numbers()
    numbers.there["train"] = 4
    with pytest.raises(EndedEarly) as ended:
        numbers.labels("train", 2, 3)
    assert str(ended.value) == "the train data ended at sample 4, earlier than when it was counted"


FULL = tf.errors.UnknownError(None, None, "/data/x; No space left on device")


@pytest.mark.parametrize(
    "fault",
    [tf.errors.ResourceExhaustedError(None, None, "OOM"), tf.errors.CancelledError(None, None, "ended"), FULL],
)
def test_a_fault_of_the_machine_is_no_broken_sample(fault: Exception) -> None:
    numbers = Numbers()
    numbers.broken[1] = fault
    with pytest.raises(type(fault)):
        numbers.labels("train", 0, 2)


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


def test_a_measure_is_of_the_first_samples_of_the_training_part_that_can_be_read(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, answers = Numbers(broken=(1, 4)), list[Any]()
    Time(monkeypatch, numbers)
    work.obey({"measure": 3}, numbers.samples, request_, answers.append)
    size = 16 + len(preset_data.encode(next(numbers.samples.loaded("train", 0, 1))))  # type: ignore[arg-type]
    assert answers == [{"measured": {"samples": 3, "broken": 1, "load_seconds": 1.0, "bytes": size}}]
    assert work.measure(numbers.samples, 99, request_, reads=False) == {
        "samples": 5, "broken": 2, "load_seconds": 1.0, "bytes": size,
    }  # fmt: skip
    without = Numbers(train=0)
    without.samples.counts = {"validation": 2, "train": 0}
    assert work.measure(without.samples, 99, request_, reads=False)["samples"] == 2
    assert {part for part, _ in without.opened} == {"validation"}
    with pytest.raises(DataError) as refused:
        work.measure(Numbers(broken=(0, 1)).samples, 2, request_, reads=False)
    assert (refused.value.message, refused.value.hint) == (
        "none of the first 2 samples can be read", "check workload.data, or your code",
    )  # fmt: skip


def test_reading_again_is_measured_only_if_it_is_asked_for(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = Numbers(broken=(1,))
    monkeypatch.setattr(work, "MEASURED_SECONDS", 0.0)
    numbers.samples.decode = lambda record: tf.strings.length(record)
    figures = work.measure(numbers.samples, 3, request_, reads=True)
    assert set(figures) == {
        "samples", "broken", "load_seconds", "bytes", "prepare_seconds", "again_seconds", "read_seconds",
    }  # fmt: skip
    assert min(figures.values()) >= 0
    stored = list(tf.data.TFRecordDataset(str(request_.folder / "sample.tfrecord")).as_numpy_iterator())
    assert len(stored) == 2, "without the broken one"
    passes: list[int] = []

    def seconds(work: Callable[[], int], number: int) -> float:
        passes.append(work() // number)
        return 6.0

    monkeypatch.setattr(work, "_seconds", seconds)
    figures = work.measure(numbers.samples, 3, request_, reads=True)
    assert (figures["again_seconds"], figures["read_seconds"]) == (2.0, 3.0), "of three samples, and of two good ones"
    assert passes == [3, 1], "samples by Python, and batches by TensorFlow"


def test_the_time_of_a_pass_is_its_mean_after_a_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([100.0, 0.25, 0.25, 0.25, 0.25, 9.0])
    wall, used = [0.0], [0.0]

    def works() -> int:
        spent = next(seconds)
        wall[0] += spent
        used[0] += 2 * spent
        return 1

    times = SimpleNamespace(perf_counter=lambda: wall[0], process_time=lambda: used[0])
    monkeypatch.setattr(work, "time", times)
    assert work._seconds(works, 5) == pytest.approx(4 * 0.5 / 20), "for a second, four times five passes"


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
            lambda record: preset_data._decoded(record, "uint8", (2,))
        )
        assert [(x.tolist(), int(y)) for x, y in stored.as_numpy_iterator()] == [
            ([number, 1], number) for number in (101, 102, 104)
        ]


def test_a_file_has_its_name_when_its_content_is_on_the_disk(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Any] = []
    name = "00003-train.tfrecord"
    monkeypatch.setattr(
        shard_file, "sync", lambda path: synced.append((path.name.strip("."), (request_.folder / name).exists()))
    )
    work.obey({"shard": SHARD}, Numbers().samples, request_, lambda _: None)
    (draft, before), (folder, after) = synced
    assert draft.startswith(name)
    assert (before, folder, after) == (False, request_.folder.name, True)


def refused(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(DataError) as fault:
        call()
    return fault.value.message, fault.value.hint


def test_what_keeps_a_file_from_being_written_is_told_and_leaves_nothing(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(fault: Exception) -> Any:
        def failing(*_: Any) -> int:
            (request_.folder / ".half").write_text("")
            raise fault

        monkeypatch.setattr(shard_file, "_records", lambda samples, good, draft: failing(draft.write_text("half")))
        numbers, answers = Numbers(), list[Any]()
        work.obey({"shard": SHARD}, numbers.samples, request_, answers.append)
        return answers

    for full in (FULL, OSError(errno.ENOSPC, "No space left on device", "/data/x")):
        ((answer),) = write(full)
        assert answer == {
            "disk": f"disk full at {request_.folder} (No space left on device)", "remedy": "free some space",
        }  # fmt: skip
    ((answer),) = write(OSError(errno.EFBIG, "File too large"))
    assert answer["remedy"] == "raise the limit on the size of files (ulimit -f)"
    assert refused(lambda: write(PermissionError(errno.EACCES, "Permission denied", "/x"))) == (
        "/x: Permission denied", "",
    )  # fmt: skip
    assert refused(lambda: write(OSError("odd"))) == (f"{request_.folder}: odd", "")
    lost = tf.errors.DataLossError(None, None, "truncated record")
    assert refused(lambda: write(lost)) == ("the train data cannot be read: truncated record", "")
    assert refused(lambda: write(EndedEarly("train", 3))) == (
        "the train data ended at sample 3, earlier than when it was counted",
        "the data must have the same samples in the same order each time",
    )
    assert [path.name for path in request_.folder.iterdir()] == [".half"], "no draft"
    numbers = Numbers()
    numbers.samples.error_of = lambda fault: TrainerError("user_code", "train.py:3: x")
    monkeypatch.setattr(shard_file, "_records", lambda *_: (_ for _ in ()).throw(lost))
    with pytest.raises(TrainerError, match=r"^train\.py:3: x$"):
        work.obey({"shard": SHARD}, numbers.samples, request_, lambda _: None)


# ---- joined ------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", [False, True])
@pytest.mark.parametrize(("dtype", "shape"), [("uint8", (2,)), ("float16", (1, 2)), ("float32", (0,))])
def test_joined_files_are_arrays_in_the_order_that_a_training_draws_back(
    test: bool, dtype: str, shape: tuple[int, ...], request_: Request
) -> None:
    parts = {"validation": [[1, 2], [], [9]], "train": [[3], [], [4, 5, 6]]}
    files: list[dict[str, Any]] = []
    for part, groups in parts.items():
        for labels in groups:
            name = f"{len(files):05}-{part}.rows"
            rows = np.array([np.full(shape, number) for number in labels], dtype)
            (request_.folder / name).write_bytes(rows.tobytes() + np.array(labels, "int64").tobytes())
            files.append({"file": name, "samples": len(labels), "part": part})
    given, answers = {"dtype": dtype, "shape": list(shape), "files": files, "test": test}, list[Any]()
    work.obey({"join": given}, Numbers().samples, request_, answers.append)
    path = request_.folder / "data.npz"
    content = path.read_bytes()
    assert answers == [
        {"output": {"file": "data.npz", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}}
    ]
    assert sorted(each.name for each in request_.folder.iterdir() if each.suffix != ".rows") == ["data.npz"]
    seed = request_.options.train.seed
    with np.load(path) as arrays:
        names = ["x_test", "x_train", "y_test", "y_train"] if test else ["x", "y"]
        assert sorted(arrays) == names
        end = "_train" if test else ""
        labels = arrays[f"y{end}"]
        drawn = np.random.default_rng(seed).permutation(len(labels))
        assert labels[drawn].tolist() == ([3, 4, 5, 6] if test else [3, 4, 5, 6, 1, 2, 9])
        if test:
            assert arrays["y_test"].tolist() == [1, 2, 9], "the test part is not drawn"
        for x, y in ((arrays[f"x{end}"], labels), *([(arrays["x_test"], arrays["y_test"])] if test else [])):
            assert (x.dtype, x.shape, y.dtype) == (dtype, (len(y), *shape), "int64")
            assert all((row == number).all() for row, number in zip(x, y, strict=True))


def test_a_disk_that_refuses_the_joined_file_is_named_and_no_draft_is_left(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(array_file, "sync", fail)
    given = {"dtype": "uint8", "shape": [2], "files": [], "test": False}
    assert work.join(given, request_) == {
        "disk": f"disk quota used up at {request_.folder} (Disk quota exceeded)", "remedy": "free some space",
    }  # fmt: skip
    assert list(request_.folder.iterdir()) == []


# ---- the beginning -----------------------------------------------------------------------------


def test_the_first_answer_has_the_facts_and_whether_one_process_is_enough() -> None:
    assert work.described(Numbers().samples) == {"facts": {"stamp": "s"}, "one_process": True}


@pytest.mark.parametrize("entry", [False, True])
def test_a_process_answers_its_request_and_then_each_command(entry: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, answers, threads = Numbers(), list[Any](), list[int]()
    asked = options(*(["entry=train.py:build"] if entry else []))
    line = {"options": json.loads(options_json.to_json(asked)), "folder": "/tmp", "format": "npz", "dtype": None,
            "size": None, "limit": None}  # fmt: skip
    commands = [{"measure": 2}, {"shard": SHARD}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(each) + "\n" for each in (line, *commands))))
    monkeypatch.setattr(work, "use_one_thread", lambda: threads.append(1))
    monkeypatch.setattr(work, "opened", lambda request: numbers.samples)
    monkeypatch.setattr(work, "obey", lambda command, samples, request, answer: answer((command, request.format)))
    program._serve(answers.append)
    assert answers == [work.described(numbers.samples), *((command, "npz") for command in commands)]
    assert threads == ([] if entry else [1]), "a user's code may do as it likes"


@pytest.mark.parametrize("size", [None, [4, 6]])
def test_a_request_is_read_as_it_was_sent(size: list[int] | None, tmp_path: Path) -> None:
    asked = options("batch_size=3", f"data=npz:{tmp_path}/a.npz")
    line = {
        "options": json.loads(options_json.to_json(asked)), "folder": str(tmp_path), "format": "npz",
        "dtype": "float16", "size": size, "limit": 9,
    }  # fmt: skip
    read_back = read(json.dumps(line))
    assert read_back == Request(asked, tmp_path, "npz", "float16", None if size is None else (4, 6), 9)
