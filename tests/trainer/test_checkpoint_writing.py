"""How checkpoints are written, kept, refused by a disk and read again, of one machine and of several."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.runs import checkpoint_files
from gputui.engine.trainer.checkpoint import checkpoints as checkpoint_modules
from gputui.engine.trainer.checkpoint import packed
from gputui.engine.trainer.checkpoint.checkpoints import Checkpoints, ClusterCheckpoints, NotWritten
from gputui.engine.trainer.checkpoint.packed import Arrays
from gputui.engine.trainer.checkpoint.training_state import State
from gputui.engine.trainer.cluster.exchange import Exchange
from gputui.engine.trainer.common.training_errors import TrainerError

from tests.trainer.test_workers import by_all


class Small:
    """The state of a training, which is a number that all workers share, and one that each has of its own."""

    begins_anew = ""
    shared_names: list[str] | None = None

    def __init__(self, shared: float = 0.0, own: bytes = b"") -> None:
        self.shared = tf.Variable(shared, dtype=tf.float64)
        self.own, self.of_workers = own, list[bytes]()
        self.fault: BaseException | None = None
        self.written: list[str] = []

    def write(self, prefix: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.written.append(prefix)
        Path(f"{prefix}.data-00000-of-00001").write_text("data")
        Path(f"{prefix}.index").write_text(json.dumps([self.shared.numpy(), [o.decode() for o in self.of_workers]]))

    def restore(self, prefix: str) -> list[str]:
        if self.fault is not None:
            raise self.fault
        shared, workers = json.loads(Path(f"{prefix}.index").read_text())
        self.shared.assign(shared)
        self.of_workers = [own.encode() for own in workers]
        return []

    def fits(self, prefix: str) -> bool:
        return Path(f"{prefix}.index").exists()

    def of_its_own(self) -> bytes:
        return self.own

    def take_own(self, own: bytes) -> None:
        self.own = own

    def the_same(self) -> list[tf.Variable]:
        return [self.shared]

    size_of, take = staticmethod(State.size_of), staticmethod(State.take)


def checkpoints(folder: Path, keep: int = 2, state: Any = None) -> tuple[Checkpoints, Any]:
    state = Small() if state is None else state
    return Checkpoints(folder, keep, state), state


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_are_kept_and_one_step_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, synced = tmp_path / "checkpoints", list[Path]()
    monkeypatch.setattr(checkpoint_modules, "sync", synced.append)
    kept, state = checkpoints(folder)
    for step in (3, 3, 6, 9):
        kept.save(step)
        assert kept.last_step == step
    assert (len(state.written), steps(folder)) == (3, ["step-0000000006", "step-0000000009"])
    kept.save(6)  # written again: an earlier one of this step is replaced, and newer ones stay
    assert steps(folder) == ["step-0000000006", "step-0000000009"]
    assert len(state.written) == 4
    assert synced == [tmp_path, *[folder] * 4], "the names of the folder and of the checkpoints are on the disk"
    alone, _ = checkpoints(folder, keep=1)
    alone.save(7)
    assert steps(folder) == ["step-0000000007", "step-0000000009"], "the one just written stays"


def test_what_a_killed_process_left_is_in_no_checkpoint(tmp_path: Path) -> None:
    """Neither in that of its process id, nor where its checkpoint of the same step was half removed."""
    kept, _ = checkpoints(tmp_path)
    kept.save(1)
    draft = tmp_path / Path(kept.state.written[0]).parent.name  # type: ignore[attr-defined]
    for left in (draft, tmp_path / "step-0000000002"):
        left.mkdir()
        (left / "junk").touch()
    (tmp_path / "step-0000000003").write_text("no folder")
    for step in (2, 3):
        kept.save(step)
        assert not (tmp_path / f"step-{step:010d}" / "junk").exists()
        assert checkpoint_files.verify(tmp_path, step)
    assert steps(tmp_path) == ["step-0000000002", "step-0000000003"]


FULL = OSError(errno.ENOSPC, "No space left on device", "/x")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (FULL, "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (tf.errors.ResourceExhaustedError(None, None, "/x/state; No space left on device"), "No space left on device"),
        (tf.errors.UnknownError(None, None, "a {{node b}}\n file"), "a file"),
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"), None),
        (ValueError("theirs"), None),
    ],
)
def test_a_disk_that_refuses_costs_the_checkpoint_and_other_faults_are_raised(
    fault: Exception, reason: str | None, tmp_path: Path
) -> None:
    kept, state = checkpoints(tmp_path)
    kept.save(1)
    state.fault = fault
    with pytest.raises(NotWritten if reason else type(fault)) as raised:
        kept.save(2)
    if reason:
        assert str(raised.value) == f"{reason}: {tmp_path}: no checkpoint of step 2 is written"
    if not isinstance(fault, ValueError):
        assert steps(tmp_path) == ["step-0000000001"], "no half of it"
    state.fault = None
    assert kept.last_step == 1
    kept.save(2)
    assert steps(tmp_path) == ["step-0000000001", "step-0000000002"]


def test_callbacks_and_the_place_in_the_data_are_those_of_the_step(tmp_path: Path) -> None:
    kept, _ = checkpoints(tmp_path, keep=9)
    kept.save(1)
    kept.callbacks = lambda arrays: arrays.pack({"seen": np.arange(3)})
    kept.place_in_data = lambda step: {"pass": step}
    kept.save(2)
    kept.place_in_data = lambda _: []
    kept.save(3)
    assert (kept.callbacks_at(1), kept.saved_place(1)) == (None, None)
    found = kept.callbacks_at(2)
    assert found is not None
    assert found[1].unpack(found[0])["seen"].tolist() == [0, 1, 2]
    assert (kept.saved_place(2), kept.saved_place(3), kept.saved_place(4)) == ({"pass": 2}, [], None)


def break_(folder: Path, step: int) -> None:
    (folder / f"step-{step:010d}" / "state.index").unlink()


def test_the_lost_steps_are_counted_up_to_the_newest_that_is_damaged(tmp_path: Path) -> None:
    kept, _ = checkpoints(tmp_path, keep=9)
    for step in (2, 3, 7, 9):
        kept.save(step)
    assert (kept.latest_step(), kept.damaged(9)) == (9, "")
    damaged = "is damaged (state.index is missing)"
    for step in (9, 7):
        break_(tmp_path, step)
    assert kept.latest_step(9) == 3
    both = f"checkpoint of step 9 {damaged}; checkpoint of step 7 {damaged}"
    assert kept.damaged(3) == f"{both}; resuming from step 3, 6 steps are lost"
    assert kept.latest_step(8) == 3
    beyond = "checkpoint of step 9 lies beyond the end of the training, step 8"
    assert kept.damaged(3) == f"{beyond}; checkpoint of step 7 {damaged}; resuming from step 3, 4 steps are lost"
    break_(tmp_path, 3)
    assert kept.latest_step(4) == 2
    assert kept.damaged(2).endswith(f"step 3 {damaged}; resuming from step 2, 1 step is lost")
    break_(tmp_path, 2)
    with pytest.raises(TrainerError) as raised:
        kept.latest_step(7)
    hint = f"nothing was changed; gputui --preset {tmp_path.parent / 'preset.yaml'} starts again from step 0"
    assert (raised.value.kind, raised.value.hint) == ("checkpoint", hint)
    assert raised.value.message == (
        f"no checkpoint can be used: checkpoint of step 9 lies beyond the end of the training, step 7; "
        f"checkpoint of step 7 {damaged}; checkpoint of step 3 {damaged}; and 1 more"
    )
    for step in (2, 3, 7, 9):
        shutil.rmtree(tmp_path / f"step-{step:010d}")
    kept.save(12)
    assert (kept.latest_step(12), kept.damaged(12)) == (12, ""), "of those that are gone nothing is told"
    empty, _ = checkpoints(tmp_path / "none")
    assert (empty.latest_step(5), empty.damaged(0)) == (None, "")


def test_a_checkpoint_that_does_not_fit_is_named_and_one_that_does_is_the_last(tmp_path: Path) -> None:
    kept, state = checkpoints(tmp_path)
    state.shared.assign(2.5)
    kept.save(4)
    again, state = checkpoints(tmp_path)
    assert (again.fits(4), again.fits(5)) == (True, False)
    for fault in (ValueError("a\n b" + "c" * 300), AssertionError("x"), tf.errors.NotFoundError(None, None, "y")):
        state.fault = fault
        with pytest.raises(TrainerError) as raised:
            again.restore(4)
        reason = " ".join(str(fault).split())[:200]
        told = ("checkpoint", f"{tmp_path}/step-0000000004 does not fit this model: {reason}", "")
        assert (raised.value.kind, raised.value.message, raised.value.hint) == told
    steps_after = [again.last_step]
    state.fault = None
    again.restore(4)
    steps_after.append(again.last_step)
    assert (state.shared.numpy(), steps_after) == (2.5, [None, 4])
    again.save(4)
    assert state.written == [], "it is there already"


def test_the_model_fits_a_checkpoint_that_cannot_be_read_as_restoring_it_names_the_fault(tmp_path: Path) -> None:
    assert State(keras.Sequential([keras.layers.Dense(1)])).fits(str(tmp_path / "nothing"))
    (tmp_path / "state.index").write_text("no index")
    assert State(keras.Sequential([keras.layers.Dense(1)])).fits(str(tmp_path / "state"))


# ---- of several machines -----------------------------------------------------------------------


Each = Callable[[ClusterCheckpoints, Small, Exchange], Any]


def workers(folder: Path, monkeypatch: pytest.MonkeyPatch, each: Each) -> list[Any]:
    """What `each` returns on three workers, of which only the first has files."""

    def one(mine: Exchange) -> Any:
        state: Any = Small(mine.index + 0.5, f"own {mine.index}".encode())
        return each(ClusterCheckpoints(folder / str(mine.index), 2, state, mine), state, mine)

    return by_all(monkeypatch, one)


def test_the_chief_writes_what_each_worker_has_of_its_own_and_all_get_theirs_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(kept: ClusterCheckpoints, state: Small, mine: Exchange) -> Any:
        kept.callbacks = lambda arrays: arrays.pack(
            {"n": mine.index, "same": np.ones(5), "mine": np.arange(mine.index)}
        )
        kept.place_in_data = lambda step: [step, mine.index]
        assert kept.latest_step() is None
        kept.save(3)
        kept.save(3)
        return kept.last_step, len(state.written)

    assert workers(tmp_path, monkeypatch, write) == [(3, 1), (3, 0), (3, 0)]
    assert steps(tmp_path) == ["0"]

    def read(kept: ClusterCheckpoints, state: Small, mine: Exchange) -> Any:
        state.own = b""
        step = kept.latest_step(5)
        assert step is not None
        found = kept.callbacks_at(step)
        assert found is not None
        values, arrays = found
        given = Arrays.unpack(arrays, values)
        assert (given["same"].tolist(), given["mine"].tolist()) == ([1.0] * 5, list(range(mine.index)))
        fits = kept.fits(step), kept.fits(9)
        place, none = kept.saved_place(step), kept.callbacks_at(9)
        kept.restore(step)
        return step, given["n"], fits, place, none, state.shared.numpy(), state.own, kept.last_step

    expected = [(3, n, (True, False), [3, 0], None, 0.5, own, 3) for n, own in enumerate((b"", b"own 1", b"own 2"))]
    assert workers(tmp_path, monkeypatch, read) == expected


def test_arrays_that_an_earlier_worker_has_are_not_sent_again() -> None:
    sent: list[bytes] = []
    shared, own = Arrays(), Arrays()
    value = shared.pack({"best": np.arange(4.0)})
    own.pack(np.arange(2.0))
    chief = json.dumps([value, [[*own.by_digest, "<f8", [2]]]]).encode()

    def of_all(data: bytes) -> list[bytes]:
        sent.append(data)
        return [chief, data, data] if len(sent) == 1 else [b"", np.arange(4.0).tobytes(), data]

    last: Any = SimpleNamespace(index=2, of_all=of_all)
    values, arrays = packed.gathered(value, shared, last)
    assert (values, sent[1:]) == ([value] * 3, [b""])
    assert [each.tolist() for each in arrays.by_digest.values()] == [[0.0, 1.0, 2.0, 3.0]], "the chief has its own"


def test_if_the_disk_of_the_chief_refuses_all_workers_try_the_step_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(kept: ClusterCheckpoints, state: Small, mine: Exchange) -> Any:
        state.fault, told, tried = FULL, list[str](), list[Any]()
        for _ in range(2):
            try:
                kept.save(3)
            except NotWritten as reason:
                told.append(str(reason))
            tried.append(kept.last_step)
        state.fault = None
        kept.save(3)
        return told, tried, kept.last_step

    found = workers(tmp_path, monkeypatch, refused)
    message = f"No space left on device: {tmp_path}/0: no checkpoint of step 3 is written"
    assert found == [([message] * 2, [None, None], 3), ([], [None, None], 3), ([], [None, None], 3)]


def test_a_checkpoint_of_fewer_workers_gives_further_ones_the_callbacks_of_the_chief(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, _ = checkpoints(tmp_path / "0")
    (tmp_path / "0").mkdir()
    alone.save(2)
    arrays = Arrays()
    two = [arrays.pack({"of": name}) for name in ("the chief", "another one")]
    path = checkpoint_files.path_of(tmp_path / "0", 2) / "callbacks"
    path.write_bytes(b"".join(packed.pieces(two, arrays)))

    def read(kept: ClusterCheckpoints, state: Small, mine: Exchange) -> Any:
        found = kept.callbacks_at(2)
        assert found is not None
        kept.restore(2)
        return found[1].unpack(found[0])["of"], state.own

    names = ("the chief", "another one", "the chief")
    expected = [(name, f"own {number}".encode()) for number, name in enumerate(names)]
    assert workers(tmp_path, monkeypatch, read) == expected
