"""Which samples go into which file, the manifest of prepared data, and processes that end too early. No TensorFlow."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.files.writing import ExistsError
from gputui.engine.interpreter import interpreter
from gputui.engine.prepare import estimates, layout, preparing, result_files, workers
from gputui.engine.prepare import manifest as manifests
from gputui.engine.prepare import request as requests
from gputui.engine.prepare.estimates import Estimate
from gputui.engine.prepare.manifest import Broken, Manifest, Written
from gputui.engine.prepare.request import PrepareError
from gputui.engine.presets import Preset
from gputui.engine.system import locks
from gputui.engine.telemetry import resource_limits

from tests.support.training import options

COUNTS = {"validation": 7, "train": 23}
FACTS = {"validation": 3, "train": 10, "stamp": "a", "shape": [4], "dtype": "uint8", "classes": 2, "test": False}


def test_each_sample_is_in_one_file_and_the_validation_part_comes_first() -> None:
    for per_shard in (1, 5, 7, 23, 100):
        shards = layout.shards(COUNTS, per_shard)
        for part, count in COUNTS.items():
            numbers = [
                n for shard in shards if shard.part == part for n in range(shard.first, shard.first + shard.samples)
            ]
            assert numbers == list(range(count))
        names = [shard.file("tfrecord") for shard in shards]
        assert names == sorted(names)
        assert [shard.part for shard in shards] == sorted((shard.part for shard in shards), reverse=True)


def test_a_manifest_is_read_as_it_was_written_and_lists_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two")
    hashes = {name: manifests.hash_of(tmp_path / name) for name in "ab"}
    made = Manifest({"format": "tfrecord", "dtype": None}, COUNTS | {"stamp": "x"}, 10, 4, complete=True)
    made = made.with_file(Written(1, "train", "b", 9, 3, hashes["b"], [Broken("cat/1.png", "not an image")]))
    made = made.with_file(Written(0, "validation", "a", 7, 3, hashes["a"]))
    made.write(tmp_path)
    assert manifests.read(tmp_path) == made
    assert (made.samples, made.good("train"), [shard.number for shard in made.missing]) == (16, 9, [2, 3])
    assert manifests.checked(made, tmp_path, whole=True) == made
    (tmp_path / "b").write_bytes(b"new")
    assert manifests.checked(made, tmp_path, whole=False) == made
    checked = manifests.checked(made, tmp_path, whole=True)
    assert ([each.file for each in checked.written], checked.complete) == (["a"], False)


def request(folder: Path, **given: Any) -> requests.Request:
    return requests.of(Preset("mine", options()), folder, {"format": "tfrecord", "dtype": None, "size": None} | given)


def prepare(folder: Path) -> Manifest:
    return preparing.prepare(request(folder), lambda _line: None, lambda _progress: None)


def test_a_joined_file_counts_instead_of_the_files_of_samples(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(b"one")
    output = {"file": "data.npz", "bytes": 3, "sha256": manifests.hash_of(tmp_path / "data.npz")}
    files = [Written(0, "train", "gone", 9, 3, "")]
    made = Manifest({"format": "npz"}, FACTS, 10, 1, files, output, True)
    assert manifests.checked(made, tmp_path, whole=True) == made
    (tmp_path / "data.npz").write_bytes(b"two")
    assert manifests.checked(made, tmp_path, whole=False) == made
    nothing = Manifest({"format": "npz"}, FACTS, 10, 1, [], None, False)
    assert manifests.checked(made, tmp_path, whole=True) == nothing
    (tmp_path / "data.npz").write_bytes(b"four")
    assert manifests.checked(made, tmp_path, whole=False) == nothing


def test_a_damaged_manifest_says_what_to_do(tmp_path: Path) -> None:
    made = Manifest({"format": "tfrecord"}, FACTS, 10, 1)
    made.write(tmp_path)
    content = json.loads((tmp_path / "manifest.json").read_text())
    path = tmp_path / "manifest.json"
    other = f"{path} is not a manifest that this version can read; name another folder, or remove it"
    damaged = f"{path} is damaged; remove the folder to begin again"
    for text, words in (
        ("{", other), (json.dumps(content | {"version": 2}), other), (json.dumps({"version": 1}), damaged),
        (json.dumps({name: value for name, value in content.items() if name != "files"}), damaged),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(manifests.ManifestError) as fault:
            manifests.read(tmp_path)
        assert str(fault.value) == words
    path.unlink()
    assert manifests.read(tmp_path) is None


def test_a_process_that_ends_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MODULE", "gputui.engine.no_such_module")
    with pytest.raises(PrepareError, match=r"ended with return code 1: .*no_such_module\n.*prepare.log has") as fault:
        prepare(tmp_path / "ready")
    assert fault.value.began
    assert "no_such_module" in (tmp_path / "ready" / preparing.LOG).read_text()


def test_what_killed_processes_have_left_half_written_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One was killed in its first manifest. Files with other names are the user's."""
    monkeypatch.setattr(workers, "MODULE", "gputui.engine.no_such_module")
    names = {f".{name}.123" for name in (manifests.FILE, result_files.READER, result_files.PRESET)}
    for name in (preparing.LOCK, preparing.LOG, *names):
        (tmp_path / name).touch()
    with pytest.raises(PrepareError, match="ended with return code 1"):
        prepare(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {preparing.LOCK, preparing.LOG}
    (tmp_path / f".{manifests.FILE}.old").touch()
    with pytest.raises(ExistsError, match="is not overwritten"):
        prepare(tmp_path)


def test_two_commands_do_not_prepare_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RETRY_SECONDS", 0.0)
    with locks.take(tmp_path / preparing.LOCK), pytest.raises(PrepareError, match="is being prepared by another"):
        prepare(tmp_path)


# ---- what is estimated ----------------------------------------------------------------------------

MEASURED = {"samples": 8, "broken": 0, "load_seconds": 0.5, "bytes": 100.0}


@pytest.mark.parametrize(
    ("load_seconds", "given", "one_process", "workers", "seconds"),
    [
        (0.0039, {}, False, 1, 39.0),  # 20 s of work for each process
        (0.004, {}, False, 2, 20.0),
        (0.0079, {}, False, 3, 79 / 3),
        (1.0, {}, False, 4, 2500.0),  # as many as CPUs
        (0.001, {}, False, 1, 10.0),
        (1.0, {"workers": 3}, False, 3, 10_000 / 3),
        (1.0, {"workers": 9}, False, 9, 2500.0),
        (1.0, {"workers": 3}, True, 1, 10_000.0),
    ],
)
def test_the_number_of_processes_and_the_time_follow_from_the_work(
    load_seconds: float, given: dict[str, Any], one_process: bool, workers: int, seconds: float,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(resource_limits, "usable_cpus", lambda: 4)
    measured = MEASURED | {"load_seconds": load_seconds}
    found = estimates.of(measured, 10_000, request(tmp_path, **given), one_process, tmp_path)
    assert found.workers == workers
    assert found.seconds == pytest.approx(seconds)


def test_an_estimate_has_what_was_measured_and_the_room_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_limits, "usable_cpus", lambda: 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=9, used=4, free=5))
    measured = MEASURED | {"broken": 1, "prepare_seconds": 0.1, "again_seconds": 0.2, "read_seconds": 0.3}
    found = estimates.of(measured, 1000, request(tmp_path), False, tmp_path)
    assert found == Estimate(8, 1, 0.5, 0.1, 0.2, 0.3, 2, 250.0, 1000, 102_000.0, 5)
    arrays = estimates.of(MEASURED, 1000, request(tmp_path, format="npz"), False, tmp_path)
    assert arrays == Estimate(8, 0, 0.5, None, None, None, 2, 250.0, 1000, 204_000.0, 5)


@pytest.mark.parametrize(
    ("prepare", "again", "read", "passes"),
    [
        (3.0, 1.0, 0.5, 6), (3.1, 1.0, 0.5, 7), (3.0, 1.0, 0.8, None), (3.0, 1.0, 0.79, 15), (3.0, 1.0, 1.5, None),
        (None, 1.0, 0.5, None), (3.0, None, 0.5, None), (3.0, 1.0, None, None),
    ],
)  # fmt: skip
def test_it_pays_after_so_many_passes_if_a_fifth_of_the_time_is_saved(
    prepare: float | None, again: float | None, read: float | None, passes: int | None
) -> None:
    assert Estimate(8, 0, 1.0, prepare, again, read, 1, 1.0, 9, 9.0, 9).passes == passes


@pytest.mark.parametrize(
    ("samples", "record_bytes", "files", "per_shard"),
    [
        (127, 100, None, 127), (128, 100, None, 64), (1023, 100, None, 69), (1024, 100, None, 64),
        (100_000, 100, None, 6250), (1600, 2**20, None, 100), (4096, 2**20, None, 128),
        (4160, 2**20, None, 130), (4161, 2**20, None, 127), (10**9, 2**20, None, 100_000),
        (0, 100, None, 1), (10, 100, 3, 4), (10, 100, 10, 1),
        (10, 100, 11, 1),
    ],
)  # fmt: skip
def test_a_file_has_128_mib_and_small_data_has_up_to_16_files(
    samples: int, record_bytes: float, files: int | None, per_shard: int
) -> None:
    counts = {"validation": 5, "train": samples}
    assert layout.samples_per_shard(counts, record_bytes, files) == per_shard


@pytest.mark.parametrize(
    ("limit", "counts"),
    [(None, (7, 23)), (29, (7, 22)), (30, (7, 23)), (31, (7, 23)), (15, (4, 11)), (1, (0, 1)), (3, (1, 2))],
)
def test_a_limit_takes_of_both_parts_alike(limit: int | None, counts: tuple[int, int]) -> None:
    assert tuple(layout.limited({"validation": 7, "train": 23}, limit).values()) == counts


# ---- its processes --------------------------------------------------------------------------------

ECHO = """
import signal, sys, os
for number, line in enumerate(sys.stdin, 1):
    sys.stdout.write('{"got": ' + line.strip())
    sys.stdout.flush()
    print('}' if number < 3 else '}\\n{"and": 1}', flush=True)
    if "leave" in line:
        print("an earlier line", file=sys.stderr)
        print("a reason " + "x" * 200, file=sys.stderr)
        print("", file=sys.stderr)
        sys.exit(3)
    if "die" in line:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": (2, 3)}, "--size is for gputui's own data; your code decides what a sample is: its `map`"),
        ({"dtype": "uint8"}, "--dtype is for gputui's own data; your code decides what a sample is: its `map`"),
        ({"format": "npz"}, "--format npz is for gputui's own data; leave it out with your own code"),
        ({"shards": 3, "limit": 5, "workers": 2}, ""),
    ],
)
def test_of_own_code_only_the_amount_can_be_chosen(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    usual = {"format": "tfrecord", "dtype": None, "size": None, "limit": None, "shards": None, "workers": None}
    own, ours = (Preset("mine", options(*settings)) for settings in (("entry=a.py:build",), ()))
    made = requests.of(ours, tmp_path, usual | given)
    assert {name: getattr(made, name) for name in given} == given
    if not words:
        assert requests.of(own, tmp_path, usual | given).limit == 5
        return
    with pytest.raises(PrepareError) as fault:
        requests.of(own, tmp_path, usual | given)
    assert (str(fault.value), fault.value.began) == (words, False)


def test_a_process_answers_each_command_and_its_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "command", lambda python, module: [sys.executable, "-S", "-c", ECHO])
    log = tmp_path / "log"
    worker = workers.Worker(sys.executable, {"request": 1}, log)
    assert worker.answer() == {"got": {"request": 1}}
    worker.send({"measure": 64})
    assert worker.answer() == {"got": {"measure": 64}}
    worker.send({"leave": 1})
    found = workers.answered([worker])
    assert [next(found), next(found)] == [(worker, {"got": {"leave": 1}}), (worker, {"and": 1})]
    with pytest.raises(workers.WorkerEnded) as ended:
        next(found)
    assert str(ended.value) == f"a process that prepares the data ended with return code 3: a reason {'x' * 151}"
    worker.end()
    killed = workers.Worker(sys.executable, {"die": 1}, log)
    assert killed.answer() == {"got": {"die": 1}}
    with pytest.raises(workers.WorkerEnded, match=r"^a process that prepares the data was ended by SIGKILL$"):
        killed.answer()
    killed.send({"measure": 64})  # it cannot be heard any more
    with pytest.raises(workers.WorkerEnded, match=r"was ended by SIGKILL$"):
        killed.answer()
    killed.end()
    assert log.read_text().startswith("an earlier line\na reason "), "both write to the same file"
    at_work = workers.Worker(sys.executable, {"request": 2}, log)
    assert at_work.answer() == {"got": {"request": 2}}
    at_work.end()
    assert at_work.process.returncode == -9, "it was waited for"
    at_work.end()
