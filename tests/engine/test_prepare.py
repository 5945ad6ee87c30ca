"""Which samples go into which file, the manifest of prepared data, and processes that end too early. No TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gputui.engine.files.writing import ExistsError
from gputui.engine.prepare import layout, preparing, result_files, workers
from gputui.engine.prepare import manifest as manifests
from gputui.engine.prepare import request as requests
from gputui.engine.prepare.estimates import Estimate
from gputui.engine.prepare.manifest import Broken, Manifest, Written
from gputui.engine.prepare.request import PrepareError
from gputui.engine.presets import Preset
from gputui.engine.system import locks

from tests.support.training import options

COUNTS = {"validation": 7, "train": 23}


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


@pytest.mark.parametrize(
    ("samples", "record_bytes", "asked", "files"),
    [(10, 1000, None, 1), (640, 1000, None, 10), (5000, 1000, None, 16), (10_000, 2**20, None, 78), (10, 1000, 3, 3)],
)
def test_the_number_of_files_of_the_training_part(
    samples: int, record_bytes: int, asked: int | None, files: int
) -> None:
    counts = {"validation": 0, "train": samples}
    assert len(layout.shards(counts, layout.samples_per_shard(counts, record_bytes, asked))) == files


def test_a_limit_makes_both_parts_smaller() -> None:
    assert layout.limited(COUNTS, 10) == {"validation": 2, "train": 8}
    assert layout.limited(COUNTS, 100) == COUNTS


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


def test_preparing_pays_after_the_passes_that_save_its_time() -> None:
    estimate = Estimate(64, 0, 9.0, 0.005, 0.004, 0.002, 1, 1.0, 100, 1.0, 1)
    assert estimate.passes == 3
    assert replace(estimate, read_seconds=0.0035).passes is None  # too little is saved to be sure
    assert replace(estimate, again_seconds=None).passes is None


def request(folder: Path) -> requests.Request:
    return requests.of(Preset("mine", options()), folder, {"format": "tfrecord", "dtype": None, "size": None})


def prepare(folder: Path) -> Manifest:
    return preparing.prepare(request(folder), lambda _line: None, lambda _progress: None)


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
