"""The files of leases: what they record, whose records count, and which folder is used."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.job import this_machine
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.leases import idle_notes, lease, start_devices, tickets
from gputui.engine.leases.free_gpus import GpuUse, GpuUser
from gputui.engine.leases.idle_notes import IdleNotes
from gputui.engine.leases.lease import Holder, NotFree
from gputui.engine.leases.tickets import Ticket
from gputui.engine.system import locks
from gputui.engine.system.identity import Place, Process


def record(name: str = "GPU-1", **changes: object) -> Path:
    """A record of this user about a lease, as this process would write it, with some fields changed."""
    path = lease.folder() / f"{name}.{os.geteuid()}.json"
    fields = Process.current().as_fields() | Place.here().as_fields() | {"what": "digits", "since": 5.0}
    path.write_text(json.dumps(fields | changes))
    return path


def test_a_lease_records_its_holder_for_others_to_read() -> None:
    before = time.time()
    (taken,) = lease.take(["GPU-1"], "digits", {"GPU-1": 7})
    taken.write("more digits", "/runs/a")
    path = lease.folder() / f"GPU-1.{os.geteuid()}.json"
    assert path.stat().st_mode & 0o777 == 0o644
    me = lease.user_name(os.geteuid())
    who = lease.holder("GPU-1")
    assert who is not None
    assert before <= who.since <= time.time()
    assert replace(who, since=0.0) == Holder("GPU-1", me, os.getpid(), 0.0, "more digits", "/runs/a", "", 7, 1)
    assert lease.holders() == {"GPU-1": who}
    assert lease.environment([taken]) == {"GPUTUI_LEASED": f"{taken.lock.fd} GPU-1"}
    assert (taken.key, taken.is_shared_now(), lease.environment([])) == ("GPU-1", False, {})
    taken.release()
    assert (path.exists(), lease.holder("GPU-1")) == (False, None)


def test_all_devices_are_leased_or_none_and_the_holder_is_named() -> None:
    (held,) = lease.take(["GPU-2"], "digits")
    with pytest.raises(NotFree, match=r"^GPU-2 is used by .*'s digits since \d\d:\d\d$"):
        lease.take(["GPU-3", "GPU-2", "GPU-1"], "others")
    assert list(lease.holders()) == ["GPU-2"]
    held.release()
    three = lease.take(["GPU-3", "GPU-1", "GPU-3"], "others")
    assert [each.name for each in three] == ["GPU-1", "GPU-3"]
    for each in three:
        each.release()


def test_the_newest_record_of_a_living_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with locks.take(lease.folder() / "GPU-1.lock", of_all_users=True):
        assert lease.holder("GPU-1") == Holder("GPU-1"), "nothing is recorded"
        record()
        who = lease.holder("GPU-1")
        assert who is not None
        assert (who.what, who.since) == ("digits", 5.0)
        for changes, what in (
            ({"start_ticks": 1}, ""),  # another process had this id
            ({"boot_id": "another start"}, ""),
            ({"pid_namespace": "pid:[1]", "start_ticks": 1}, "digits"),  # in another container, which cannot be seen
            ({"what": "x\x07" * 60}, ("x?" * 60)[:80]),
            ({"what": 7, "since": "x", "used_bytes": "y"}, ""),
        ):
            record(**changes)
            who = lease.holder("GPU-1")
            assert who is not None
            assert (who.name, who.what[:80]) == ("GPU-1", what), changes
        path = record()
        path.unlink()
        path.symlink_to("/etc/passwd")
        assert lease.holder("GPU-1") == Holder("GPU-1"), "a link is no record"


def test_a_gpu_stays_stuck_until_the_next_start_of_the_machine_or_its_next_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (taken,) = lease.take(["GPU-1"], "digits")
    taken.release(stuck="its memory is in use")
    who = lease.holder("GPU-1")
    assert who is not None
    assert (who.stuck, who.what, lease.holders()) == ("its memory is in use", "digits", {"GPU-1": who})
    record(stuck="its memory is in use", boot_id="another start")
    assert lease.holder("GPU-1") is None
    record(stuck="its memory is in use")
    (again,) = lease.take(["GPU-1"], "more")
    who = lease.holder("GPU-1")
    assert who is not None
    assert (who.stuck, who.what) == ("", "more")
    again.release(stuck="once more")
    (slot,) = lease.take(["GPU-1"], "digits", per_gpu=2)
    slot.release()
    assert lease.holders() == {}
    (slot,) = lease.take(["GPU-1"], "digits", per_gpu=2)
    own = f".{os.geteuid()}.json"
    assert {path.name for path in lease.folder().glob("*.json")} == {f"GPU-1~1{own}"}
    slot.release(stuck="of a slot")
    assert {path.name for path in lease.folder().glob("*.json")} == {f"GPU-1{own}"}, "the whole GPU is stuck"
    records = [(Holder("GPU-1", since=at, stuck=why), None) for at, why in ((2.0, "b"), (3.0, ""), (1.0, "a"))]
    monkeypatch.setattr(lease, "_records_of", lambda _: iter(records))
    assert lease.holder("GPU-1") == records[0][0], "the newest of several users"


def test_a_gpu_that_is_shared_is_not_leased_as_a_whole_nor_the_other_way_round(home: Path) -> None:
    (slot,) = lease.take(["GPU-1"], "digits", per_gpu=2)
    with pytest.raises(NotFree, match=r"^GPU-1 is used by 1 of 2 runs: .*digits"):
        lease.take(["GPU-1"], "words")
    slot.release()
    (whole,) = lease.take(["GPU-1"], "words")
    with pytest.raises(NotFree, match=r"^GPU-1 is used by .*words"):
        lease.take(["GPU-1"], "digits", per_gpu=2)
    whole.release()
    assert lease.holders() == {}


def test_slots_are_taken_in_their_order_up_to_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from gputui.engine.files.places import runs_folder

    made = []
    for number in (1, 2, 3):
        (slot,) = lease.take(["GPU-1"], "digits", {"GPU-1": 100 * number}, per_gpu=3)
        slot.write("digits", str(runs_folder() / str(number)))
        made.append(slot)
    assert [(slot.slot, slot.key, slot.used_bytes, slot.is_shared_now()) for slot in made] == [
        (1, "GPU-1~1", 100, True), (2, "GPU-1~2", 100, True), (3, "GPU-1~3", 100, True)
    ]  # fmt: skip
    assert not Holder("GPU-1", "me", run=str(runs_folder() / "1")).can_be_joined(2), "it has the whole GPU"
    with pytest.raises(NotFree, match="3 of 3 runs: "):
        lease.take(["GPU-1"], "digits", per_gpu=3)
    made.pop(1).release()
    who = lease.holder("GPU-1")
    assert who is not None
    assert (who.places, [Path(each.run).name for each in who.sharers]) == ("2 of 3 runs", ["1", "3"])
    (again,) = lease.take(["GPU-1"], "digits", per_gpu=3)
    assert again.slot == 2
    for slot in (*made, again):
        slot.release()
    assert lease.holder("GPU-1") is None


def test_an_engine_takes_over_the_leases_that_it_has_inherited() -> None:
    whole = lease.take(["GPU-1"], "digits", {"GPU-1": 7})
    (slot,) = lease.take(["GPU-2"], "more", {"GPU-2": 9}, per_gpu=2)
    variable = lease.environment([*whole, slot])["GPUTUI_LEASED"]
    assert variable == f"{whole[0].lock.fd} GPU-1,{slot.lock.fd} GPU-2~1"
    inherited = lease.inherited(f"{variable},x GPU-3,999999 GPU-4,")
    assert [(each.name, each.slot, each.per_gpu, each.used_bytes, each.fields["what"]) for each in inherited] == [
        ("GPU-1", 0, 1, 7, "digits"), ("GPU-2", 1, 2, 9, "more")
    ]  # fmt: skip
    assert [os.get_inheritable(each.lock.fd) for each in inherited] == [False, False]
    assert lease.inherited(None) == lease.inherited("") == []
    for each in inherited:
        each.release()
    assert lease.holders() == {}


# ---- the folder ----------------------------------------------------------------------------------


def test_the_folder_is_open_to_all_users_and_the_second_is_used_if_the_first_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUTUI_LEASES")
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setattr(lease, "_FOLDERS", (str(first), str(second)))
    assert (lease.folder(), first.stat().st_mode & 0o7777) == (first, 0o1777)
    first.rmdir()
    first.touch()
    assert (lease.folder(), second.stat().st_mode & 0o7777) == (second, 0o1777)
    second.rmdir()
    second.touch()
    with pytest.raises(OSError, match="is no folder"):
        lease.folder()
    monkeypatch.setenv("GPUTUI_LEASES", str(first))
    with pytest.raises(OSError, match="is no folder"):
        lease.folder()
    assert lease.holders() == {}
    assert lease.holder("GPU-1") is None


def test_a_folder_of_another_user_that_is_not_open_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o755)
    monkeypatch.setenv("GPUTUI_LEASES", str(folder))
    monkeypatch.setattr(lease, "time", SimpleNamespace(sleep=lambda _seconds: None, time=time.time))
    uid = os.geteuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: uid + 1)
        with pytest.raises(OSError, match=r"is not open to all users \(its mode must be 1777\)"):
            lease.folder()
    assert lease.folder().stat().st_mode & 0o7777 == 0o1777, "one's own is opened"


def test_one_process_at_a_time_chooses_and_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*_: object, **__: object) -> None:
        raise locks.Taken

    with lease.choosing(), monkeypatch.context() as patched:
        patched.setattr(locks, "take", taken)
        with pytest.raises(NotFree) as refusal, lease.choosing():
            pass
    assert str(refusal.value) == "another process has been choosing GPUs for 10 s; try again"
    with lease.choosing():
        assert "choosing" not in lease.holders()


# ---- tickets and notes ---------------------------------------------------------------------------


def test_a_ticket_is_written_for_all_to_read_and_removed() -> None:
    tickets.write(Ticket("me", 3, 2, 7.5, on_cpu=True))
    path = lease.folder() / f"ticket.{os.geteuid()}.json"
    content = json.loads(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o644
    own = Process.current().as_fields() | Place.here().as_fields()
    assert content == {"entries": 3, "devices": 2, "since": 7.5, "on_cpu": True} | own
    tickets.remove()
    tickets.remove()
    assert not path.exists()


@pytest.mark.parametrize("since", [float("inf"), float("nan"), -5.0, 1e18, 4e12, "x"])
def test_a_record_with_impossible_contents_harms_nobody(since: object) -> None:
    (held,) = lease.take(["GPU-1"], "x")
    record(since=since, what="\x1b[31mred\nlast", used_bytes=-5, per_gpu=-1, stuck="\x1b]0;t\x07")
    who = lease.holder("GPU-1")
    assert who is not None
    assert str(who) == f"{lease.user_name(os.geteuid())}'s ?[31mred last"
    assert (who.used_bytes, who.per_gpu, who.stuck) == (None, 1, "?]0;t?")
    held.release()


def test_tickets_of_others_count_by_owner_and_living_process(monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    own = Process.current().as_fields() | Place.here().as_fields()
    path = lease.folder() / f"ticket.{uid}.json"

    def seen(**fields: Any) -> list[Ticket]:
        path.write_text(json.dumps(own | fields))
        with monkeypatch.context() as patched:
            patched.setattr(os, "geteuid", lambda: uid + 1)  # another user looks
            return tickets.of_others()

    name = lease.user_name(uid)
    assert seen(devices=2, entries=3, since=7.5, on_cpu=True) == [Ticket(name, 3, 2, 7.5, True)]
    (ticket,) = seen(devices=1, since=-1e9)
    assert ticket == Ticket(name, 1, 1, ticket.since, False)
    assert ticket.since == pytest.approx(time.time(), abs=60), "one without a true time is the last"
    assert seen(devices=0) == seen() == seen(devices=1, start_ticks=1) == seen(devices="x") == []
    assert tickets.of_others() == []


def test_idle_processes_are_noted_at_most_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    stand_in = SimpleNamespace(clock_gettime=lambda _clock: now[0], CLOCK_BOOTTIME=time.CLOCK_BOOTTIME)
    monkeypatch.setattr(idle_notes, "time", stand_in)
    written: list[float] = []
    write = idle_notes._write

    def noted(notes: Any) -> None:
        written.append(now[0])
        write(notes)

    monkeypatch.setattr(idle_notes, "_write", noted)
    notes, cpu = IdleNotes(), 8.0

    def look(passed: float, used: float = 0.0, busy: float = 0.0) -> float | None:
        nonlocal cpu
        now[0] += passed
        cpu += used
        user = GpuUser(os.getpid(), "bob", "python", use=busy, cpu_seconds=cpu)
        (gpu,) = notes.of([GpuUse(0, "GPU-a", "T4", users=(user,))])
        return (gpu.users or ())[0].idle_seconds

    assert [look(0), look(30), look(29.75), look(0.25)] == [0, 30, 59.75, 60]
    assert written == [1000.0, 1060.0]
    assert look(10, used=0.53) == 70, "Python wakes up now and then"
    assert look(1, used=0.01) == 0, "since the last note it has used more than 0.5 s and 0.3 %"
    assert (look(1, busy=0.01), look(5)) == (0, 5)


def test_the_reason_to_wait_for_devices_is_told_once_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = iter(["GPU 0: used", "GPU 0: used", "GPU 0: busy", ""])
    now, told, slept = [0.0], list[str](), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(start_devices, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(start_devices, "why_not", lambda *_: next(reasons))
    monkeypatch.setattr(this_machine, "read", lambda: None)
    start_devices.wait(None, told.append, lambda: False)  # type: ignore[arg-type]
    assert told == ["waiting: GPU 0: used", "waiting: GPU 0: busy"]
    assert now[0] == pytest.approx(15.0, abs=0.5)
    assert set(slept) == {0.1}
    given_up = iter([False, False, False, True, True])
    reasons = iter(["GPU 0: used"] * 9)
    start_devices.wait(None, told.append, lambda: next(given_up))  # type: ignore[arg-type]
    assert told[2:] == ["waiting: GPU 0: used"]


def test_devices_that_the_options_name_are_those_that_train_or_all_that_are_visible() -> None:
    two = Machine(tuple(Gpu(index, f"GPU-{index}", "A100", (8, 0), 40 << 30) for index in range(2)), "", 8, 64 << 30)
    for settings, train, visible in (
        (["device.visible=all"], ["GPU-0"], ["GPU-0", "GPU-1"]),
        (["device.visible=all", "strategy.kind=mirrored"], ["GPU-0", "GPU-1"], ["GPU-0", "GPU-1"]),
        (["device.visible=[1]"], ["GPU-1"], ["GPU-1"]),
        (["device.visible=none"], ["cpu"], ["cpu"]),
    ):
        options = presets.resolve("quickstart", settings).options
        assert start_devices.names_of(options, two) == train, settings
        assert start_devices.names_of(options, two, all_visible=True) == visible, settings
