"""The course of a preparation, with workers that answer without data; and what the command prints."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.prepare import layout, manifest, preparing, result_files
from gputui.engine.prepare.estimates import Estimate
from gputui.engine.prepare.manifest import Broken, Manifest, Written
from gputui.engine.prepare.preparing import Progress
from gputui.engine.prepare.request import PrepareError, Request, of
from gputui.engine.presets import Preset
from gputui.engine.telemetry import resource_limits
from gputui.tui import cli

from tests.support.training import options

GIVEN = {"format": "tfrecord", "dtype": None, "size": None, "limit": None, "shards": None, "workers": None}
FACTS = {"validation": 3, "train": 10, "stamp": "a", "shape": [4], "dtype": "uint8", "classes": 2, "test": False}
CONTENT = b"x" * 50  # of each file of samples
HASH = hashlib.sha256(CONTENT).hexdigest()
MEASURED = {"samples": 8, "broken": 0, "load_seconds": 0.5, "bytes": 100.0}


def asked(folder: Path, *settings: str, **given: Any) -> Request:
    return of(Preset("mine", options(*settings)), folder, GIVEN | given)


# ---- its course -----------------------------------------------------------------------------------


class Worker:
    """Answers as a process does that has this data. `ends` are the answers for files, one after the other."""

    all: list[Worker]
    ends: deque[dict[str, Any]]
    facts = FACTS
    measured: Mapping[str, Any] = MEASURED
    one_process = False

    def __init__(self, _python: str, _request: Mapping[str, Any], log: Path) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self.answers = deque([{"facts": self.facts, "one_process": self.one_process}])
        self.is_ended, self.folder = False, log.parent
        log.touch()
        Worker.all.append(self)

    def send(self, command: Mapping[str, Any]) -> None:
        self.sent.append(command)
        if "measure" in command:
            self.answers.append({"measured": dict(self.measured)})
        elif "join" in command:
            self.answers.append({"output": {"file": "data.npz", "bytes": 30, "sha256": "x"}})
        elif Worker.ends:
            self.answers.append(Worker.ends.popleft())
        else:
            shard = layout.Shard(**command["shard"])
            self.answers.append({"at": shard.samples - 1})
            self.answers.append({"written": written(shard)})
            (self.folder / shard.file("tfrecord")).write_bytes(CONTENT)

    def answer(self) -> dict[str, Any]:
        return self.answers.popleft()

    def end(self) -> None:
        self.is_ended = True


def written(shard: layout.Shard, *broken: dict[str, str]) -> dict[str, Any]:
    return {"number": shard.number, "part": shard.part, "file": shard.file("tfrecord"), "bytes": 50, "sha256": HASH,
            "samples": shard.samples - len(broken), "broken": list(broken)}  # fmt: skip


def answered(workers: Sequence[Worker]) -> Iterator[tuple[Worker, dict[str, Any]]]:
    while True:
        for worker in workers:
            if worker.answers:
                yield worker, worker.answer()


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> type[Worker]:
    monkeypatch.setattr(preparing, "Worker", Worker)
    monkeypatch.setattr(preparing, "answered", answered)
    monkeypatch.setattr(Worker, "all", [], raising=False)
    monkeypatch.setattr(Worker, "ends", deque(), raising=False)
    monkeypatch.setattr(resource_limits, "usable_cpus", lambda: 2)
    return Worker


def prepared(request: Request) -> tuple[Manifest, list[str], list[Progress]]:
    said: list[str] = []
    shown: list[Progress] = []
    return preparing.prepare(request, said.append, shown.append), said, shown


def test_files_are_given_out_one_after_the_other_and_all_are_in_the_manifest(tmp_path: Path) -> None:
    made, said, shown = prepared(asked(tmp_path / "ready", shards=3))
    assert said == ["TensorFlow starts, and the data is opened"]
    names = ["00000-validation.tfrecord", "00001-train.tfrecord", "00002-train.tfrecord", "00003-train.tfrecord"]
    assert [(each.file, each.samples) for each in made.written] == list(zip(names, (3, 4, 4, 2), strict=True))
    assert (made.complete, made.samples_per_shard, made.files, made.bytes) == (True, 4, 4, 200)
    assert manifest.read(tmp_path / "ready") == made
    (worker,) = Worker.all
    assert worker.is_ended
    assert worker.sent[0] == {"measure": 64}
    assert [command["shard"]["number"] for command in worker.sent[1:]] == [0, 1, 2, 3]
    assert shown == [
        Progress(2, 13, 0, 4, 0), Progress(3, 13, 1, 4, 0), Progress(6, 13, 1, 4, 0), Progress(7, 13, 2, 4, 0),
        Progress(10, 13, 2, 4, 0), Progress(11, 13, 3, 4, 0), Progress(12, 13, 3, 4, 0), Progress(13, 13, 4, 4, 0),
    ]  # fmt: skip
    names += ["dataset.py", "manifest.json", "preset.yaml", ".prepare.lock"]
    assert sorted(path.name for path in (tmp_path / "ready").iterdir()) == sorted(names)


def test_several_processes_share_the_files_and_each_must_have_the_same_data(tmp_path: Path) -> None:
    made, _, shown = prepared(asked(tmp_path / "ready", shards=5, workers=2))
    first, second = Worker.all
    given = [command["shard"]["number"] for worker in (first, second) for command in worker.sent if "shard" in command]
    assert sorted(given) == [0, 1, 2, 3, 4, 5, 6]
    assert len([command for command in second.sent if "shard" in command]) > 1
    assert first.is_ended
    assert second.is_ended
    assert shown[-1] == Progress(13, 13, 7, 7, 0)
    assert made.complete


def test_data_that_changes_under_a_second_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = iter("ab")
    monkeypatch.setattr(Worker, "facts", property(lambda self: FACTS | {"stamp": next(stamps)}))
    with pytest.raises(PrepareError) as fault:
        prepared(asked(tmp_path / "ready", workers=2, shards=5))
    assert str(fault.value) == (
        "the data change while they are prepared; run the command again when nothing changes them"
    )
    assert all(worker.is_ended for worker in Worker.all)


def test_what_was_begun_goes_on_only_with_the_same_data_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ready"
    Worker.ends.extend([
        {"written": written(layout.Shard(0, "validation", 0, 3))},
        {"disk": "disk full at X", "remedy": "free some space"},
    ])  # fmt: skip
    with pytest.raises(PrepareError) as fault:
        prepared(asked(folder, shards=3))
    assert (str(fault.value), fault.value.began) == (
        "disk full at X\nfree some space, then the same command goes on", True,
    )  # fmt: skip
    (folder / "00000-validation.tfrecord").write_bytes(CONTENT[:-1] + b"y")  # its hash is looked at when all is there
    (folder / ".00001-train.tfrecord.part").write_bytes(b"half of it")
    for given, words in (
        ({"shards": 4}, "shards is 4, and was 3"),
        ({"shards": 3, "dtype": "float32"}, "dtype is float32, and was not given"),
        ({"shards": None, "limit": 5, "size": (2, 3), "format": "npz"},
         "format is npz, and was tfrecord; shards is not given, and was 3; size is [2, 3], and was not given"),
    ):  # fmt: skip
        with pytest.raises(PrepareError) as fault:
            prepared(asked(folder, **given))
        assert str(fault.value) == (
            f"{folder} was begun with other settings: {words}\ngive the same ones to go on, or name another folder"
        )
        assert not fault.value.began
    for changed in ({"stamp": "b"}, {"train": 11}, {"validation": 2}):
        monkeypatch.setattr(Worker, "facts", FACTS | changed)
        with pytest.raises(PrepareError) as fault:
            prepared(asked(folder, shards=3))
        assert str(fault.value) == (
            f"the data have changed since {folder} was begun, or come in another order\n"
            "remove the folder, or name another one"
        )
    monkeypatch.setattr(Worker, "facts", FACTS)
    made, said, _ = prepared(asked(folder, shards=3))
    assert said == ["TensorFlow starts, and the data is opened", "goes on: 1 of 4 files are complete"]
    assert [command["shard"]["number"] for command in Worker.all[-1].sent if "shard" in command] == [1, 2, 3]
    assert not list(folder.glob("*.part"))
    assert not list(folder.glob(".*.part")), "of a process that was killed"
    (folder / "00000-validation.tfrecord").write_bytes(CONTENT)
    again, said, _ = prepared(asked(folder, shards=3))
    assert said == ["all was complete; the hashes of 200 B are checked"]
    assert again == made
    with pytest.raises(PrepareError, match="was begun with other settings: shards is 4, and was 3"):
        prepared(asked(folder, shards=4))
    (folder / "00002-train.tfrecord").write_bytes(CONTENT[:-1] + b"y")
    again, said, _ = prepared(asked(folder, shards=3))
    assert said[1:] == ["TensorFlow starts, and the data is opened", "goes on: 3 of 4 files are complete"]
    assert again == made


def test_a_shuffle_of_own_data_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "facts", FACTS | {"shuffle_left_out": True})
    said = prepared(asked(tmp_path / "ready"))[1]
    assert said[1:] == ["the shuffle of your data is left out: shuffle the prepared samples in the training"]


@pytest.mark.parametrize(("free", "fits"), [(1325, False), (1326, True)])
def test_the_room_that_is_needed_is_asked_for_before(
    free: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    folder = tmp_path / "ready"
    if fits:
        assert prepared(asked(folder))[0].complete
        return
    with pytest.raises(PrepareError) as fault:
        prepared(asked(folder))
    assert str(fault.value) == (
        f"13 samples take about 1.3 KiB in {folder}, and 1.3 KiB are free there\n"
        "free some space, name a folder on another disk, or lower --size, --dtype or --limit"
    )
    assert not folder.exists(), "nothing was written"


def test_for_the_rest_of_what_was_begun_only_the_rest_of_the_room_and_of_the_processes_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ready"
    monkeypatch.setattr(Worker, "measured", MEASURED | {"load_seconds": 3.5})  # two processes for 13, one for 10
    Worker.ends.extend([{"written": written(layout.Shard(0, "validation", 0, 3))}, {"disk": "full", "remedy": "wait"}])
    with pytest.raises(PrepareError, match=r"^full\nwait, then the same command goes on$"):
        prepared(asked(folder, shards=3))
    assert len(Worker.all) == 2
    (folder / "00000-validation.tfrecord").write_bytes(CONTENT)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1019))
    with pytest.raises(PrepareError, match=r"^10 samples take about 1020 B in .*, and 1019 B are free there\n"):
        prepared(asked(folder, shards=3))
    assert (folder / "manifest.json").exists(), "what is there stays"
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1020))
    Worker.all.clear()
    made, said, shown = prepared(asked(folder, shards=3))
    assert (len(Worker.all), made.complete) == (1, True)
    assert said == ["TensorFlow starts, and the data is opened", "goes on: 1 of 4 files are complete"]
    assert (shown[0], shown[-1]) == (Progress(6, 13, 1, 4, 0), Progress(13, 13, 4, 4, 0))


def test_samples_that_cannot_be_read_are_left_out_and_named(tmp_path: Path) -> None:
    bad = {"sample": "cat/1.png", "reason": "not an image"}
    Worker.ends.append({"written": written(layout.Shard(0, "validation", 0, 3), bad)})
    made, _, shown = prepared(asked(tmp_path / "ready"))
    assert made.broken == [Broken("cat/1.png", "not an image")]
    assert (made.samples, made.good("validation"), made.good("train")) == (12, 2, 10)
    assert shown[-1] == Progress(13, 13, 2, 2, 1)
    content = json.loads((tmp_path / "ready" / "manifest.json").read_text())
    assert content["samples"] == {"validation": 2, "train": 10, "broken": 1}


def test_without_a_single_good_sample_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "facts", FACTS | {"validation": 0, "train": 1})
    Worker.ends.append({"written": written(layout.Shard(0, "train", 0, 1), {"sample": "a", "reason": "b"})})
    with pytest.raises(PrepareError) as fault:
        prepared(asked(tmp_path / "ready"))
    assert str(fault.value) == "none of the samples can be read; the manifest names them with the reasons"
    assert fault.value.began
    assert (tmp_path / "ready" / "manifest.json").exists()


def test_a_fault_of_the_data_is_told_with_its_hint_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "answer", lambda self: {"error": "no image in X", "hint": "fill it"})
    with pytest.raises(PrepareError, match=r"^no image in X\nfill it$") as fault:
        prepared(asked(tmp_path / "ready"))
    assert not fault.value.began
    assert not (tmp_path / "ready").exists()
    monkeypatch.setattr(Worker, "answer", lambda self: {"error": "no image in X", "hint": ""})
    (tmp_path / "ready").mkdir()
    monkeypatch.setattr(Worker, "end", lambda self: (self.folder / ".00000.part").touch())
    with pytest.raises(PrepareError, match=r"^no image in X$"):
        prepared(asked(tmp_path / "ready"))
    left = [path.name for path in (tmp_path / "ready").iterdir()]
    assert sorted(left) == [".prepare.lock", "prepare.log"], "the folder was there before"


def test_arrays_are_joined_and_the_files_of_samples_removed(tmp_path: Path) -> None:
    folder = tmp_path / "ready"
    made, said, _ = prepared(asked(folder, format="npz", shards=2))
    assert said[1:] == ["joins 3 files into data.npz"]
    assert (made.output, made.bytes, made.complete) == ({"file": "data.npz", "bytes": 30, "sha256": "x"}, 30, True)
    joined = Worker.all[0].sent[-1]["join"]
    assert joined == {
        "shape": [4], "dtype": "uint8", "test": False,
        "files": [{"file": "00000-validation.tfrecord", "part": "validation", "samples": 3},
                  {"file": "00001-train.tfrecord", "part": "train", "samples": 5},
                  {"file": "00002-train.tfrecord", "part": "train", "samples": 5}],
    }  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == [
        ".prepare.lock", "dataset.py", "manifest.json", "preset.yaml",
    ]  # fmt: skip


def test_an_estimate_is_of_all_samples_and_leaves_nothing(tmp_path: Path) -> None:
    found = preparing.estimate(asked(tmp_path / "a" / "ready"))
    assert (found.left, found.sample, found.seconds) == (13, 8, 6.5)
    (worker,) = Worker.all
    assert worker.sent == [{"measure": 64, "reads": True}]
    assert worker.is_ended
    assert list(tmp_path.iterdir()) == []


def test_what_decides_the_content_is_kept_and_compared(tmp_path: Path) -> None:
    request = asked(tmp_path, "data=images:/x", "validation=test", "seed=null", limit=9, size=(2, 3))
    names = ("data", "shape", "classes", "samples", "tfrecord_input", "tfrecord_label", "tfrecord_encoding", "entry",
             "args", "folder")  # fmt: skip
    found = request.settings()
    assert set(found) == {
        *(f"workload.{name}" for name in names), "train.seed", "train.validation", "train.validation_split",
        "input.parallel_reads", "format", "shards", "dtype", "size", "limit",
    }  # fmt: skip
    assert (found["train.seed"], found["train.validation"], found["size"], found["limit"]) == (0, "test", [2, 3], 9)
    same = Manifest(found | {"of a later gputui": 1}, FACTS, 10, 1)
    assert request.differences(same) == []
    assert asked(tmp_path, "data=images:/x", "seed=1", limit=9, size=(2, 3)).differences(same) == [
        "train.seed is 1, and was 0", "train.validation is split, and was test",
    ]  # fmt: skip


# ---- the files for users --------------------------------------------------------------------------


def test_the_preset_names_the_prepared_data_and_keeps_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "of [2]"
    files = [Written(0, "validation", "a", 2, 50, ""), Written(1, "train", "b", 8, 50, "")]  # 3 samples are broken
    given = ("data=images:/x", "parallel_reads=4", "notify.command=mail", "validation=test", "epochs=9", "batch_size=8")
    records = Manifest({"format": "tfrecord"}, FACTS, 10, 2, files)
    made = result_files.preset_of(records, asked(folder, *given)).options
    assert made.workload.data == f"tfrecord:{tmp_path}/of [[]2]/*.tfrecord"
    workload = made.workload
    assert (workload.shape, workload.classes, workload.samples) == ([4], 2, 10)
    assert (workload.tfrecord_input, workload.tfrecord_label, workload.tfrecord_encoding) == ("image", "label", "uint8")
    assert (made.train.validation, made.train.validation_split, made.train.epochs) == ("split", 0.2, 9)
    assert (made.input.parallel_reads, made.input.batch_size, made.notify.command) == ("off", 8, None)
    arrays = Manifest({"format": "npz"}, FACTS, 10, 2, files)
    made = result_files.preset_of(arrays, asked(folder, "data=images:/x")).options
    assert (made.workload.data, made.train.validation_split) == (f"npz:{folder}/data.npz", 0.2)
    tested = Manifest({"format": "npz"}, FACTS | {"test": True}, 10, 2, files)
    made = result_files.preset_of(
        tested, asked(folder, "data=mnist", "validation=test", "validation_split=0.4")
    ).options
    assert (made.train.validation, made.train.validation_split) == ("test", 0.4)


def test_the_program_that_reads_the_data(snapshot: Any) -> None:
    files = [Written(0, "validation", "a", 3, 50, ""), Written(1, "train", "b", 9, 50, "")]
    leaf = {"number": 0, "dtype": "float32", "shape": [4]}
    nested = {
        "tuple": [{"dict": {"a": leaf, "b": leaf | {"number": 1}}}, {"tuple": [leaf | {"number": 2, "shape": []}]}]
    }
    texts = [
        result_files.reader(Manifest({"format": written}, FACTS | more, 10, 2, files))
        for written, more in (
            ("tfrecord", {}), ("npz", {}), ("npz", {"test": True}), ("tfrecord", {"structure": {"train": nested}}),
            ("tfrecord", {"structure": {"train": leaf}}),
        )
    ]  # fmt: skip
    for text in texts:
        compile(text, "dataset.py", "exec")
    assert "\n====\n".join(texts) == snapshot


# ---- the command ----------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.run(["prepare", "--preset", "quickstart", "-o", "ready", *words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (
            Estimate(64, 0, 0.5, 0.005, 0.004, 0.002, 1, 3.0, 12_345, 3 * 2**20, 2**30),
            "measured on 64 samples of 12,345\n"
            "one CPU takes 4 ms to read and decode a sample now, and 2 ms once it is prepared, with its "
            "file in memory\n"
            "prepared: 3.0 MiB; 1.0 GiB are free at FOLDER\n"
            "preparing takes about 3.0 s, and TensorFlow's start\n"
            "it pays after 3 passes over the data, in a training that waits for its input all the time\n",
        ),
        (
            Estimate(1, 1, 0.5, None, None, None, 2, 90.0, 1, 70, 2**30),
            "measured on 1 sample of 1; 1 of 1 are broken\n"
            "one CPU takes 0 ms to read and decode a sample now, and 0 ms once it is prepared, with its "
            "file in memory\n"
            "prepared: 70 B; 1.0 GiB are free at FOLDER\n"
            "preparing takes about 1:30 with 2 processes, and TensorFlow's start\n"
            "it does not pay: a prepared sample takes about as long to read\n",
        ),
    ],
)
def test_an_estimate_is_printed(
    found: Estimate, lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(preparing, "estimate", lambda request: found)
    assert printed(capsys, "--estimate") == (0, lines.replace("FOLDER", str(tmp_path / "ready")), "")
    code, out, _ = printed(capsys, "--estimate", "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["passes"], told["left"], told["bytes"]) == (found.passes, found.left, found.bytes)


def test_the_end_of_a_preparation_is_printed_and_broken_samples_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    broken = [{"sample": f"cat/{number}.png", "reason": "not an image"} for number in range(7)]
    monkeypatch.setattr(Worker, "facts", FACTS | {"train": 1000})
    Worker.ends.append({"written": written(layout.Shard(0, "validation", 0, 3))})
    Worker.ends.append({"written": written(layout.Shard(1, "train", 0, 1000), *broken)})
    code, out, err = printed(capsys, "--shards", "1")
    ready = tmp_path / "ready"
    assert (code, out) == (0, (
        f"{ready}: 996 samples (993 for train, 3 for validation, 7 broken left out), 100 B\n"
        f"gputui --preset {ready}/preset.yaml trains on them\n"
        f"{ready}/dataset.py reads them with plain TensorFlow\n"
    ))  # fmt: skip
    assert err.splitlines() == [
        "TensorFlow starts, and the data is opened",
        *(f"left out: cat/{number}.png: not an image" for number in range(5)),
        f"and 2 more; {ready}/manifest.json names all",
    ]


def test_what_failed_has_another_exit_code_than_what_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Worker.ends.append({"disk": "disk full", "remedy": "free some space"})
    code, out, err = printed(capsys, "--shards", "2")
    assert (code, out) == (1, "")
    assert err.endswith("\ndisk full\nfree some space, then the same command goes on\n")
    assert printed(capsys, "--shards", "3")[0] == 2
    code, out, _ = printed(capsys, "--shards", "2", "--json")
    assert (code, out) == (0, (tmp_path / "ready" / "manifest.json").read_text())
    (tmp_path / "ready" / "manifest.json").write_text("{")
    code, out, err = printed(capsys)
    assert (code, out, err.startswith(f"{tmp_path}/ready/manifest.json is not a manifest")) == (2, "", True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_is_complete(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    opened = Worker.answer

    writes = [False]

    def interrupted(worker: Worker) -> dict[str, Any]:
        if any("shard" in command for command in worker.sent) == writes[0]:
            if number == signal.SIGINT:  # a worker of pytest ignores it
                raise KeyboardInterrupt
            signal.raise_signal(number)
        return opened(worker)

    monkeypatch.setattr(Worker, "answer", interrupted)
    for writes[0], words in ((False, "stopped: nothing was written"),
                          (True, "stopped: 0 of 3 files are complete; the same command goes on")):  # fmt: skip
        code, out, err = printed(capsys, "--shards", "2")
        assert (code, out, err.splitlines()[-1]) == (130, "", words)
    writes[0] = False
    assert printed(capsys, "--shards", "2", "--estimate") == (130, "", "")
    assert signal.getsignal(signal.SIGTERM) == before
