"""Data that are prepared once: what is written, refused and taken up again."""

from __future__ import annotations

import hashlib
import signal
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    Manifest,
    PrepareError,
    Preset,
    Written,
    locks,
    manifest,
    of,
    preparing,
    resource_limits,
)
from tests.doors.engine import prepare_request as requests
from tests.doors.engine import prepare_request_Request as Request
from tests.doors.engine import preparing_Progress as Progress
from tests.doors.tui import tui_cli as cli
from tests.support.training import options

COUNTS = {"validation": 7, "train": 23}
FACTS = {"validation": 3, "train": 10, "stamp": "a", "shape": [4], "dtype": "uint8", "classes": 2, "test": False}


def test_each_sample_is_in_one_file_and_the_validation_part_comes_first() -> None:
    for per_shard in (1, 5, 7, 23, 100):
        shards = manifest.shards(COUNTS, per_shard)
        for part, count in COUNTS.items():
            numbers = [
                n for shard in shards if shard.part == part for n in range(shard.first, shard.first + shard.samples)
            ]
            assert numbers == list(range(count))
        names = [shard.file("tfrecord") for shard in shards]
        assert names == sorted(names)
        assert [shard.part for shard in shards] == sorted((shard.part for shard in shards), reverse=True)


def request(folder: Path, **given: Any) -> requests.Request:
    return requests.of(Preset("mine", options()), folder, {"format": "tfrecord", "dtype": None, "size": None} | given)


def prepare(folder: Path) -> Manifest:
    return preparing.prepare(request(folder), lambda _line: None, lambda _progress: None)


def test_a_process_that_ends_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "MODULE", "gputui.engine.no_such_module")
    with pytest.raises(PrepareError, match=r"ended with return code 1: .*no_such_module\n.*prepare.log has") as fault:
        prepare(tmp_path / "ready")
    assert fault.value.began
    assert "no_such_module" in (tmp_path / "ready" / preparing.LOG).read_text()


def test_two_commands_do_not_prepare_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RETRY_SECONDS", 0.0)
    with locks.take(tmp_path / preparing.LOCK), pytest.raises(PrepareError, match="is being prepared by another"):
        prepare(tmp_path)


# ---- The course of a preparation, with workers that answer without data; and what the command prin


GIVEN = {"format": "tfrecord", "dtype": None, "size": None, "limit": None, "shards": None, "workers": None}
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
            shard = manifest.Shard(**command["shard"])
            self.answers.append({"at": shard.samples - 1})
            self.answers.append({"written": written(shard)})
            (self.folder / shard.file("tfrecord")).write_bytes(CONTENT)

    def answer(self) -> dict[str, Any]:
        return self.answers.popleft()

    def end(self) -> None:
        self.is_ended = True


def written(shard: manifest.Shard, *broken: dict[str, str]) -> dict[str, Any]:
    return {"number": shard.number, "part": shard.part, "file": shard.file("tfrecord"), "bytes": 50, "sha256": HASH,
            "samples": shard.samples - len(broken), "broken": list(broken)}  # fmt: skip


def answered(played: Sequence[Worker]) -> Iterator[tuple[Worker, dict[str, Any]]]:
    while True:
        for worker in played:
            if worker.answers:
                yield worker, worker.answer()


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> type[Worker]:
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


@pytest.mark.usefixtures("played")
def test_data_that_changes_under_a_second_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = iter("ab")
    monkeypatch.setattr(Worker, "facts", property(lambda self: FACTS | {"stamp": next(stamps)}))
    with pytest.raises(PrepareError) as fault:
        prepared(asked(tmp_path / "ready", workers=2, shards=5))
    assert str(fault.value) == (
        "the data change while they are prepared; run the command again when nothing changes them"
    )
    assert all(worker.is_ended for worker in Worker.all)


@pytest.mark.usefixtures("played")
def test_what_was_begun_goes_on_only_with_the_same_data_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ready"
    Worker.ends.extend([
        {"written": written(manifest.Shard(0, "validation", 0, 3))},
        {"disk": "disk full at X", "remedy": "free some space"},
    ])  # fmt: skip
    with pytest.raises(PrepareError) as fault:
        prepared(asked(folder, shards=3))
    assert (str(fault.value), fault.value.began) == (
        "disk full at X\nfree some space, then the same command goes on", True,
    )  # fmt: skip
    (folder / "00000-validation.tfrecord").write_bytes(CONTENT[:-1] + b"y")  # its hash is looked at when all is there
    (folder / ".00001-train.tfrecord.part").write_bytes(b"half of it")
    with pytest.raises(
        PrepareError, match="was begun with other settings: dtype is float32, and was not given"
    ) as fault:
        prepared(asked(folder, shards=3, dtype="float32"))
    assert not fault.value.began
    for changed in ({"stamp": "b"}, {"train": 11}, {"validation": 2}):
        monkeypatch.setattr(Worker, "facts", FACTS | changed)
        with pytest.raises(PrepareError, match=r"the data have changed since .* was begun, or come in another order"):
            prepared(asked(folder, shards=3))
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


@pytest.mark.usefixtures("played")
def test_without_a_single_good_sample_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "facts", FACTS | {"validation": 0, "train": 1})
    Worker.ends.append({"written": written(manifest.Shard(0, "train", 0, 1), {"sample": "a", "reason": "b"})})
    with pytest.raises(PrepareError) as fault:
        prepared(asked(tmp_path / "ready"))
    assert str(fault.value) == "none of the samples can be read; the manifest names them with the reasons"
    assert fault.value.began
    assert (tmp_path / "ready" / "manifest.json").exists()


@pytest.mark.usefixtures("played")
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


# ---- the files for users --------------------------------------------------------------------------


@pytest.mark.usefixtures("played")
def test_the_preset_names_the_prepared_data_and_keeps_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "of [2]"
    files = [Written(0, "validation", "a", 2, 50, ""), Written(1, "train", "b", 8, 50, "")]  # 3 samples are broken
    given = ("data=images:/x", "parallel_reads=4", "notify.command=mail", "validation=test", "epochs=9", "batch_size=8")
    records = Manifest({"format": "tfrecord"}, FACTS, 10, 2, files)
    made = requests.preset_of(records, asked(folder, *given)).options
    assert made.workload.data == f"tfrecord:{tmp_path}/of [[]2]/*.tfrecord"
    workload = made.workload
    assert (workload.shape, workload.classes, workload.samples) == ([4], 2, 10)
    assert (workload.tfrecord_input, workload.tfrecord_label, workload.tfrecord_encoding) == ("image", "label", "uint8")
    assert (made.train.validation, made.train.validation_split, made.train.epochs) == ("split", 0.2, 9)
    assert (made.input.parallel_reads, made.input.batch_size, made.notify.command) == ("off", 8, None)
    arrays = Manifest({"format": "npz"}, FACTS, 10, 2, files)
    made = requests.preset_of(arrays, asked(folder, "data=images:/x")).options
    assert (made.workload.data, made.train.validation_split) == (f"npz:{folder}/data.npz", 0.2)
    tested = Manifest({"format": "npz"}, FACTS | {"test": True}, 10, 2, files)
    made = requests.preset_of(tested, asked(folder, "data=mnist", "validation=test", "validation_split=0.4")).options
    assert (made.train.validation, made.train.validation_split) == ("test", 0.4)


# ---- the command ----------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.run(["prepare", "--preset", "quickstart", "-o", "ready", *words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.usefixtures("played")
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


@pytest.mark.usefixtures("played")
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
