"""The folder of a proof: what is written into it, how its process is started in it, and which proof a text names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.leases import lease
from gputui.engine.leases.lease import NotFree
from gputui.engine.leases.start_devices import Devices
from gputui.engine.options import Options
from gputui.engine.process.spawn import LOCK
from gputui.engine.proof import folder, request
from gputui.engine.proof.request import ProofError, Request
from gputui.engine.runs.liveness import Liveness
from gputui.engine.system import locks, stop_signals
from gputui.engine.system.identity import Process
from gputui.engine.system.locks import PROOF_LOCK
from gputui.engine.trials.record import Record

from tests.support.recorded_proof import write_proof
from tests.support.swept import request_of


def asked(kind: str = "ab", name: str = "small", *settings: str, **more: Any) -> Request:
    preset = presets.defaults(settings)
    return request.of_opened(kind, presets.Preset(name, preset.options, preset.description), None, **more)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ProofError) as fault:
        call()
    return str(fault.value)


# ---- which proof is meant ---------------------------------------------------------------------------


def test_a_proof_is_named_by_its_id_a_part_of_it_or_as_the_latest(home: Path) -> None:
    nothing = f"there are no proofs in {home / 'proofs'}; {folder.MAKERS}"
    assert refusal(lambda: folder.find("latest")) == nothing
    assert folder.proofs() == []
    names = ("20261127-1-cnn", "20261127-1-cnn-2", "20261127-0-mlp")
    for moment, name in enumerate(names, 1):
        proof = write_proof(home, name)
        os.utime(proof.path / "request.json", (moment, moment))
    for name in (".20261127-2-gone", "notes"):
        (home / "proofs" / name).mkdir()
    (home / "proofs" / ".20261127-2-gone" / "request.json").touch()
    assert [proof.id for proof in folder.proofs()] == list(reversed(names)), "the newest first"
    assert folder.find("latest").id == names[2]
    assert folder.find(names[0]).id == names[0], "although it is a part of another id"
    assert [folder.find(part).id for part in ("mlp", "n-2", "-0-")] == [names[2], names[1], names[2]]
    assert refusal(lambda: folder.find("cnn")) == (
        f"'cnn' matches 2 proofs ({names[1]}, {names[0]} ...); give more of the id"
    )
    assert refusal(lambda: folder.find("LATEST")) == "no proof called 'LATEST'; gputui proof lists them"
    for name in names:
        os.utime(home / "proofs" / name / "request.json", (5, 5))
    assert [proof.id for proof in folder.proofs()] == [names[1], names[0], names[2]], "of one moment by their ids"


def test_the_trials_of_a_proof_are_in_the_order_of_their_numbers_without_unfinished_folders(home: Path) -> None:
    proof = write_proof(home)
    assert proof.trials == []
    for name in ("100-b", "02-a", ".101-a.new", "99-a"):
        (proof.path / "trials" / name).mkdir(parents=True)
    assert [run.id for run in proof.trials] == ["02-a", "99-a", "100-b"]


# ---- a new folder -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "slug"),
    [("My CNN!! (2)", "my-cnn-2"), ("???", "proof"), ("a" * 40, "a" * 32), (f"{'a' * 31}-b", "a" * 31),
     ("../up", "up")],
)  # fmt: skip
def test_a_new_folder_is_named_for_its_time_and_preset_and_has_the_request_and_an_empty_record(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, slug: str
) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: {"%Y%m%d-%H%M%S": "20261127-010203"}[form])
    made = asked("loop", name, limit_seconds=60.0, repeats=4, measure_seconds=7.0)
    proof = folder.create(made, "waiting for its turn")
    assert proof.path == home / "proofs" / f"20261127-010203-{slug}"
    assert sorted(path.name for path in proof.path.iterdir()) == ["proof.json", "request.json"]
    assert proof.request == made
    record = folder.read_record(proof.path)
    assert (record.id, record.kind, record.preset_name, record.state) == (proof.id, "loop", name, "running")
    assert (record.repeats, record.measure_seconds, record.limit_seconds) == (4, 7.0, 60.0)
    assert (record.preset_before, record.doing, record.all_trials) == (made.preset, "waiting for its turn", [])
    assert folder.create(made).path.name == f"20261127-010203-{slug}-2"
    assert folder.read_record(folder.create(made).path).doing == "starting"


def test_a_folder_whose_record_cannot_be_written_is_removed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Record, doing: str | None = None) -> None:
        assert (self.path.parent / "request.json").exists()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Record, "put", refuse)
    with pytest.raises(OSError, match="No space left"):
        folder.create(asked())
    assert list((home / "proofs").iterdir()) == []


# ---- its process ------------------------------------------------------------------------------------


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, Any]]]:
    """The processes that would be started: their commands, and what else `subprocess` is asked for."""
    made: list[tuple[list[str], dict[str, Any]]] = []

    def popen(command: list[str], **more: Any) -> SimpleNamespace:
        assert locks.held(Path(command[-1]) / PROOF_LOCK)
        made.append((command, more))
        return SimpleNamespace(pid=os.getpid())

    monkeypatch.setattr(subprocess, "Popen", popen)
    return made


@pytest.mark.parametrize(
    ("kind", "module"),
    [("ab", "proof"), ("loop", "proof"), ("diagnosis", "proof"), ("tune", "tune"), ("rate", "tune"),
     ("scaling", "scaling")],
)  # fmt: skip
def test_each_kind_has_a_process_of_its_own_in_a_session_of_its_own(
    home: Path, begun: Any, monkeypatch: pytest.MonkeyPatch, kind: str, module: str
) -> None:
    handed: list[tuple[object, ...]] = []
    taken: list[tuple[object, ...]] = []

    def leased(options: Options, what: str, **more: Any) -> Any:
        taken.append((options.device.visible, what, more))
        return _Context(Devices(options, ()))

    class _Context:
        def __init__(self, devices: Devices) -> None:
            self.devices = devices

        def __enter__(self) -> Devices:
            return self.devices

        def __exit__(self, *_: object) -> None:
            handed.append(("left",))

    monkeypatch.setattr(folder, "leased", leased)
    monkeypatch.setattr(Devices, "hand_over", lambda _self, pid, run: handed.append((pid, run)))
    monkeypatch.setattr(lease, "environment", lambda leases: {"OF_LEASES": str(len(leases))})
    monkeypatch.setenv("GPUTUI_OF_THIS_TEST", "1")
    proof = folder.create(asked(kind, "small", "device.visible=none"))
    folder.start(proof)
    folder.start(proof, {"GPU-1"}, {"ONLY": "this"}, "/tmp")
    (first, own), (second, given) = begun
    command = [sys.executable, "-P", "-m", f"gputui.engine.{module}", str(proof.path)]
    assert first == second == command
    every = kind in ("tune", "scaling")
    assert taken == [("none", "small", {"among": among, "all_visible": every}) for among in (None, {"GPU-1"})]
    assert handed == [(os.getpid(), str(proof.path)), ("left",)] * 2
    assert own["env"] == {**os.environ, LOCK: own["env"][LOCK], "OF_LEASES": "0"}
    assert given["env"] == {"ONLY": "this", LOCK: given["env"][LOCK], "OF_LEASES": "0"}
    assert (own["cwd"], given["cwd"]) == (None, "/tmp")
    for more in (own, given):
        assert more["pass_fds"] == [int(more["env"][LOCK])], "it inherits the lock"
        assert more["start_new_session"]
        assert more["stdin"] == subprocess.DEVNULL
        assert more["stdout"] is more["stderr"]
        assert more["stdout"].name == str(proof.path / "proof.log")
        assert more["stdout"].mode == "ab", "a resumed proof keeps its log"


def test_a_sweep_leases_nothing_and_a_damaged_preset_is_left_to_the_process(
    home: Path, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leased(*_given: Any, **_more: Any) -> Any:
        raise AssertionError("something is leased")

    monkeypatch.setattr(folder, "leased", leased)
    sweep = folder.create(request_of(["learning_rate=1e-3,2e-3"]))
    folder.start(sweep)
    damaged = folder.create(asked())
    plain = json.loads((damaged.path / "request.json").read_text())
    (damaged.path / "request.json").write_text(json.dumps(plain | {"preset": "- no preset\n"}))
    folder.start(damaged)
    assert [command[-2:] for command, _ in begun] == [
        ["gputui.engine.sweep", str(sweep.path)], ["gputui.engine.proof", str(damaged.path)]]  # fmt: skip


def test_devices_that_are_not_free_are_an_error_and_for_the_queue_a_reason_to_wait(
    home: Path, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leased(*_given: Any, **_more: Any) -> Any:
        raise NotFree("GPU 0 is not free")

    monkeypatch.setattr(folder, "leased", leased)
    proof = folder.create(asked())
    assert refusal(lambda: folder.start(proof)) == "GPU 0 is not free"
    with pytest.raises(NotFree):
        folder.start(proof, ())
    with locks.take(proof.path / PROOF_LOCK), pytest.raises(locks.Taken):
        folder.start(proof)
    assert begun == []
    assert not locks.held(proof.path / PROOF_LOCK)


# ---- stopping, and what must not be touched meanwhile -------------------------------------------------


def as_living(monkeypatch: pytest.MonkeyPatch, live: Liveness) -> None:
    monkeypatch.setattr(folder.Proof, "liveness", lambda _self, _record: live)


def test_a_proof_is_reserved_unless_it_waits_runs_or_is_in_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = write_proof(home, "20261127-a", state="stopped")

    def reserve(*done: str) -> None:
        with folder.reserved(proof, *done):
            assert locks.held(proof.path / PROOF_LOCK)

    reserve()
    assert not locks.held(proof.path / PROOF_LOCK)
    with locks.take(proof.path / PROOF_LOCK), monkeypatch.context() as context:
        as_living(context, Liveness())
        assert refusal(reserve) == "20261127-a cannot be deleted: another gputui is using it"
    for live, where in ((Liveness(engine=True), ""), (Liveness(engine=True, host="node7"), " on node7")):
        with monkeypatch.context() as context:
            as_living(context, live)
            assert refusal(lambda: reserve("queued")) == (
                f"20261127-a cannot be queued: it is running{where}; gputui proof 20261127-a --stop stops it"
            )
    (home / "queue").mkdir()
    proof.queue_file.write_text('{"kind": "proof", "state": "waiting"}')
    assert proof.state == "waiting"
    assert refusal(reserve) == (
        "20261127-a cannot be deleted: it waits in the queue; gputui queue rm 20261127-a takes it out"
    )
    assert refusal(lambda: folder.request_stop(proof)) == (
        "20261127-a waits in the queue; gputui queue rm 20261127-a takes it out"
    )
    for entry in ('{"kind": "proof", "state": "running"}', '{"kind": "run", "state": "waiting"}'):
        proof.queue_file.write_text(entry)
        assert proof.state == "stopped"


def test_a_stop_is_sent_to_the_process_that_the_record_names(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    this = Process.current()
    proof = write_proof(home, "20261127-a", state="running", **this.as_fields())
    sent: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        stop_signals, "send", lambda process, numbers, file, _is_it: sent.append((process.pid, numbers, file))
    )
    as_living(monkeypatch, Liveness(engine=True))
    folder.request_stop(proof)
    folder.request_stop(proof, (10,))
    file = proof.path / "proof.json"
    assert sent == [(this.pid, runs.ASKED_BY_PERSON, file), (this.pid, (10,), file)]

    def unverified(*_given: object) -> None:
        raise stop_signals.NotVerified("its process cannot be verified")

    monkeypatch.setattr(stop_signals, "send", unverified)
    assert refusal(lambda: folder.request_stop(proof)) == (
        "20261127-a: its process cannot be verified: no signal is sent"
    )
    as_living(monkeypatch, Liveness())
    assert refusal(lambda: folder.request_stop(proof)) == "20261127-a is not running (it is crashed)"
    ended = write_proof(home, "20261127-b", state="done")
    assert refusal(lambda: folder.request_stop(ended)) == "20261127-b is not running (it is done)"


def test_what_json_prints_has_the_state_of_the_process_and_nothing_of_a_damaged_record(home: Path) -> None:
    proof = write_proof(home, state="running", pid=None)
    plain = folder.read_plain(proof.path)
    assert plain["state"] == "running"
    assert proof.data == plain | {"state": "crashed"}, "its process is gone"
    (proof.path / "proof.json").write_text('{"id": 3}')
    assert (proof.data, proof.state, proof.record.is_read) == ({}, "crashed", False)
    whole = write_proof(home, "20261127-neg", repeats=-1)
    assert not whole.record.is_read
    assert asdict(whole.record)["id"] == ""
