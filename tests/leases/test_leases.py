"""Leases of GPUs: starts at once, their files, places on a shared GPU, and instances."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    Gpu,
    GpuProcess,
    GpuUse,
    Holder,
    Machine,
    MigInstance,
    NotFree,
    Process,
    Wish,
    allocation_from,
    gpu_choice,
    gpu_use,
    records,
)
from tests.doors.engine import identity_Place as Place
from tests.doors.engine import places_runs_folder as runs_folder
from tests.leases.test_commands import answer
from tests.support.fakenvml import FakeNvml

ANOTHER_USER = 65534
# Starts again and again, and says so if two hold a GPU at once: a file of each GPU is made as only one can make it.
STARTS = """
import os, random, sys, time
import msgspec  # before another user, who may not be able to read it
from gputui.engine.job import this_machine
from gputui.engine.leases import gpu_use
from gputui.engine.leases.gpu_use import Wish
from gputui.engine.leases.records import NotFree
from gputui.engine.options import gpu_choice
from gputui.engine.system.identity import Place
folder, starts, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[4])
wish = Wish.of(gpu_choice.parse(sys.argv[3]), this_machine.read())
gpu_use.read(), Place.here()  # loads what another user may not be able to read
os.setuid(user)
for _ in range(starts):
    try:
        gpus, leases = gpu_use.choose(wish, "a training")
    except NotFree:
        print("not free", flush=True)
        continue
    for gpu in gpus:
        try:
            os.close(os.open(f"{folder}/{gpu.uuid}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            print("twice", flush=True)
    time.sleep(random.random() / 50)
    for gpu in gpus:
        os.unlink(f"{folder}/{gpu.uuid}")
    for each in leases:
        each.release()
    print("trained", flush=True)
"""
# Leases a GPU, says which, and holds it until it is killed.
HOLDS = """
import json, os, sys, time
from gputui.engine.job import this_machine
from gputui.engine.leases import gpu_use
from gputui.engine.leases.gpu_use import Wish
from gputui.engine.options import gpu_choice
gpus, leases = gpu_use.choose(Wish.of(gpu_choice.parse(sys.argv[1]), this_machine.read()), "digits")
print(json.dumps([gpu.index for gpu in gpus]), flush=True)
time.sleep(600)
"""
LOOKS = """
import json
from gputui.engine.leases import gpu_use
print(json.dumps([gpu.why_not_free() for gpu in gpu_use.read()]))
"""


def start(nvml: FakeNvml, program: str, *words: str, gpus: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program, *words], env=os.environ | nvml.environment(gpus), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def holding(nvml: FakeNvml, choice: str, gpus: str) -> tuple[subprocess.Popen[str], list[int]]:
    process = start(nvml, HOLDS, choice, gpus=gpus)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def looks(nvml: FakeNvml, gpus: str) -> list[str]:
    output, _ = start(nvml, LOOKS, gpus=gpus).communicate(timeout=60)
    return list(json.loads(output))


@pytest.mark.parametrize("choice", [pytest.param("free:1", marks=pytest.mark.nightly), "free:2"])
def test_starts_at_once_of_two_users_never_get_the_same_gpu(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    with tempfile.TemporaryDirectory() as name:  # in a folder that another user can read
        folder = Path(name)
        folder.chmod(0o777)
        monkeypatch.setenv("GPUTUI_LEASES", str(folder / "leases"))
        gpus = f"gpus=4 use={folder / 'use'}"
        users = [0, ANOTHER_USER] if os.geteuid() == 0 else [os.geteuid()]
        processes = [start(nvml, STARTS, name, "12", choice, str(users[number % len(users)]), gpus=gpus)
                     for number in range(8)]  # fmt: skip
        outputs = [process.communicate(timeout=120)[0].splitlines() for process in processes]
        assert {line for lines in outputs for line in lines} <= {"trained", "not free"}, outputs
        assert all("trained" in lines for lines in outputs)
        assert records.holders() == {}


@pytest.mark.needs("cc")
def test_killed_starts_and_foreign_processes_leave_one_run_on_each_gpu() -> None:
    """Some rounds of those that benchmarks/sharing.py does by the hundreds."""
    program = Path(__file__).parents[2] / "benchmarks/sharing.py"
    command = [sys.executable, "-P", str(program), "--rounds", "6", "--strangers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 foreign processes" in done.stdout
    assert {"killed", "trained", "not free"} <= set(re.findall(r"[0-9]+ ([a-z ]+)", done.stdout)), done.stdout


def test_a_lease_ends_with_its_process_and_names_it_before(nvml: FakeNvml, tmp_path: Path) -> None:
    gpus = f"gpus=2 use={tmp_path / 'use'}"
    process, (first,) = holding(nvml, "free:1", gpus)
    by = f"used by {Path.home().owner()}'s digits since "
    assert [why.startswith(by) for why in looks(nvml, gpus)] == [index == first for index in range(2)]
    other, (second,) = holding(nvml, "free:1", gpus)
    assert {first, second} == {0, 1}
    refused, _ = start(nvml, HOLDS, "free:1", gpus=gpus).communicate(timeout=60)
    assert "needs a GPU; GPU 0: used by" in refused
    end(process)
    assert [bool(why) for why in looks(nvml, gpus)] == [index == second for index in range(2)]
    end(other)
    assert records.holders() == {}


def use(index: int, used: int) -> GpuUse:
    return GpuUse(index, f"GPU-{index}", "NVIDIA A100", None, 24 << 30, used << 30, 0.0, ())


def wish(text: str, needs_gb: int = 0) -> Wish:
    choice = gpu_choice.parse(text)
    assert choice is not None
    return Wish(choice, needs_gb << 30, ("GPU-0", "GPU-1", "GPU-2"))


@pytest.mark.parametrize("is_queued", [False, True])
def test_a_process_that_appears_between_the_look_and_the_start_keeps_its_gpu(
    is_queued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look, the choice and the lease are one step; a queued run was looked at by the runner before."""
    free = use(0, 0)
    taken = replace(free, processes=(GpuProcess(1, "bob", "python"),))
    looks = iter([[taken]] if is_queued else [[free], [taken]])
    monkeypatch.setenv(gpu_use.IDLE_VARIABLE, "0")
    monkeypatch.setattr(gpu_use, "read", lambda: next(looks))
    with pytest.raises(NotFree, match="bob's python"):
        gpu_use.choose(Wish(wish("free:1").choice, 0, (free.key,)), "digits", idle_known=is_queued)
    assert records.holder(free.key) is None
    assert not list(looks)


# ---- the files of leases -------------------------------------------------------------------------


def record(name: str = "GPU-1", **changes: object) -> Path:
    """A record of this user about a lease, as this process would write it, with some fields changed."""
    path = records.folder() / f"{name}.{os.geteuid()}.json"
    fields = Process.current().as_fields() | Place.here().as_fields() | {"what": "digits", "since": 5.0}
    path.write_text(json.dumps(fields | changes))
    return path


def test_a_gpu_stays_stuck_until_the_next_start_of_the_machine_or_its_next_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (taken,) = gpu_use.take(["GPU-1"], "digits")
    taken.release(stuck="its memory is in use")
    who = records.holder("GPU-1")
    assert who is not None
    assert (who.stuck, who.what, records.holders()) == ("its memory is in use", "digits", {"GPU-1": who})
    record(stuck="its memory is in use", boot_id="another start")
    assert records.holder("GPU-1") is None
    record(stuck="its memory is in use")
    (again,) = gpu_use.take(["GPU-1"], "more")
    who = records.holder("GPU-1")
    assert who is not None
    assert (who.stuck, who.what) == ("", "more")
    record(pid=1, pid_namespace="another container")
    assert "'s digits since" in str(records.holder("GPU-1")), "whose process cannot be seen from here"
    again.release(stuck="once more")
    (slot,) = gpu_use.take(["GPU-1"], "digits", per_gpu=2)
    slot.release()
    assert records.holders() == {}
    (slot,) = gpu_use.take(["GPU-1"], "digits", per_gpu=2)
    own = f".{os.geteuid()}.json"
    assert {path.name for path in records.folder().glob("*.json")} == {f"GPU-1~1{own}"}
    slot.release(stuck="of a slot")
    assert {path.name for path in records.folder().glob("*.json")} == {f"GPU-1{own}"}, "the whole GPU is stuck"
    made = [(Holder("GPU-1", since=at, stuck=why), None) for at, why in ((2.0, "b"), (3.0, ""), (1.0, "a"))]
    monkeypatch.setattr(records, "_records_of", lambda _: iter(made))
    assert records.holder("GPU-1") == made[0][0], "the newest of several users"


def test_slots_are_taken_in_their_order_up_to_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.doors.engine import places_runs_folder as runs_folder

    made = []
    for number in (1, 2, 3):
        (slot,) = gpu_use.take(["GPU-1"], "digits", {"GPU-1": 100 * number}, per_gpu=3)
        slot.write("digits", str(runs_folder() / str(number)))
        made.append(slot)
    keys = [(1, "GPU-1~1", 100), (2, "GPU-1~2", 100), (3, "GPU-1~3", 100)]
    assert [(slot.slot, slot.key, slot.used_bytes) for slot in made] == keys
    assert records.held_slots("GPU-1") == [1, 2, 3]
    assert not Holder("GPU-1", "me", run=str(runs_folder() / "1")).can_be_joined(2), "it has the whole GPU"
    with pytest.raises(NotFree, match="3 of 3 runs: "):
        gpu_use.take(["GPU-1"], "digits", per_gpu=3)
    made.pop(1).release()
    who = records.holder("GPU-1")
    assert who is not None
    assert (who.places, [Path(each.run).name for each in who.sharers]) == ("2 of 3 runs", ["1", "3"])
    (again,) = gpu_use.take(["GPU-1"], "digits", per_gpu=3)
    assert again.slot == 2
    for slot in (*made, again):
        slot.release()
    assert records.holder("GPU-1") is None


# ---- places on a shared GPU ----------------------------------------------------------------------


NOBODY = 65534
# Leases a place on a GPU as a queued run does, hands it over to a run of the home in HOME_OF, and holds it.
SHARES = """
import json, os, sys, time
from pathlib import Path
from gputui.engine.files.places import runs_folder
from gputui.engine.job import this_machine
from gputui.engine.leases import gpu_use
from gputui.engine.leases.records import NotFree
from gputui.engine.options import Options
from dataclasses import replace
per_gpu, user, home = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
options = replace(
    Options(), device=replace(Options().device, visible="free:1"), run=replace(Options().run, per_gpu=per_gpu)
)
gpu_use.read(), gpu_use.wish_of(options, this_machine.read())  # loads what another user may not be able to read
os.setuid(user)
os.environ["GPUTUI_HOME"] = home
try:
    leased = gpu_use.lease_devices(options, "digits", among=["GPU-0000-0"])
except NotFree as fault:
    print(json.dumps(str(fault)), flush=True)
    sys.exit()
for each in leased.leases:
    each.write("digits", str(runs_folder() / "20261127-010101-digits"))
print(json.dumps(leased.options.device.memory_limit_mb), flush=True)
time.sleep(600)
"""


class Box:
    """One GPU with 8 GiB, and the processes that lease places on it."""

    def __init__(self, nvml: FakeNvml, folder: Path) -> None:
        self.environment = os.environ | nvml.environment(f"gpus=1 mem_total=8192 use={folder / 'use'}")
        self.processes: list[subprocess.Popen[str]] = []

    def share(self, per_gpu: int = 2, user: int | None = None, home: str = "") -> object:
        """The memory limit of a run that gets a place, or why it gets none."""
        words = [str(per_gpu), str(os.geteuid() if user is None else user), home or os.environ["GPUTUI_HOME"]]
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", SHARES, *words], env=self.environment, text=True, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    def end(self, *processes: subprocess.Popen[str]) -> None:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def test_only_runs_of_one_home_with_one_number_share_a_gpu_and_a_kill_frees_one_place(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as name:  # which another user can read
        folder = Path(name)
        folder.chmod(0o777)
        monkeypatch.setenv("GPUTUI_LEASES", str(folder / "leases"))
        box = Box(nvml, folder)
        try:
            assert box.share() == int(0.95 * 8192 / 2 - 768), "the part of each"
            (who,) = records.holders().values()
            assert who.places == "1 of 2 runs"
            with pytest.raises(NotFree, match=r"is used by 1 of 2 runs: .*'s digits since \d\d:\d\d$"):
                gpu_use.take(["GPU-0000-0"], "a run for itself")
            assert "used by 1 of 2 runs: " in str(box.share(per_gpu=3))
            assert "used by 1 of 2 runs: " in str(box.share(home=name))
            if os.geteuid() == 0:
                assert "used by 1 of 2 runs: " in str(box.share(user=NOBODY))
            assert isinstance(box.share(), int)
            assert re.search(r"used by 2 of 2 runs: .* and 1 more$", str(box.share()))
            box.end(box.processes[0])
            (who,) = records.holders().values()
            assert who.places == "1 of 2 runs"
            assert isinstance(box.share(), int), "its place is free again"
            box.end(*box.processes)
            assert records.holders() == {}
            (whole,) = gpu_use.take(["GPU-0000-0"], "a run for itself")
            assert "'s a run for itself" in str(box.share())
            whole.release()
        finally:
            box.end(*box.processes)


def test_a_place_is_given_back_at_once_and_the_whole_gpu_only_when_its_memory_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (first,) = gpu_use.take(["GPU-1"], "digits", {"GPU-1": 0}, per_gpu=2)
    first.write("digits", str(runs_folder() / "a"))
    (second,) = gpu_use.take(["GPU-1"], "digits", {"GPU-1": 4 << 30}, per_gpu=2)
    assert second.used_bytes == 0, "that of the GPU before all of them"
    monkeypatch.setattr(gpu_use, "read", lambda: [GpuUse(1, "GPU-1", "A100", None, 24 << 30, 4 << 30)])
    monkeypatch.setattr(gpu_use, "GIVE_BACK_SECONDS", 0.0)
    assert gpu_use.give_back([first]) == []
    assert [line.partition(":")[0] for line in gpu_use.give_back([second])] == ["GPU 1 is stuck"]
    assert "4.0 GiB" in records.holders()["GPU-1"].stuck
    (third,) = gpu_use.take(["GPU-1"], "digits", {"GPU-1": 0}, per_gpu=2)
    third.release()
    (whole,) = gpu_use.take(["GPU-1"], "digits")
    with pytest.raises(NotFree, match="digits"):
        gpu_use.take(["GPU-1"], "digits", per_gpu=2)
    whole.release()
    assert records.holders() == {}


# ---- MIG instances -------------------------------------------------------------------------------


GIB = 1024**3
BOX = "gpus=2 mig=2@0 mem_used=20"
# Chooses as often as it is asked to, and says what it has got or why it has got nothing.
CHOOSES = """
import json, os, sys
from gputui.engine import presets
from gputui.engine.leases import gpu_use
from gputui.engine.leases.records import NotFree
got = []
for visible in sys.argv[1:]:
    options = presets.resolve("quickstart", [f"device.visible={visible}"]).options
    try:
        leased = gpu_use.lease_devices(options, "digits")
    except NotFree as fault:
        got.append(str(fault))
    else:
        got.append([leased.options.device.visible, sorted(each.name for each in leased.leases)])
print(json.dumps(got))
"""


def chosen(nvml: FakeNvml, words: str, *visible: str) -> list[Any]:
    output, _ = start(nvml, CHOOSES, *visible, gpus=words).communicate(timeout=60)
    return list(json.loads(output.splitlines()[-1]))


def machine(visible: str | None = None) -> Machine:
    """A machine with a GPU of two instances, and a whole GPU."""
    instances = (MigInstance("MIG-a", 10 * GIB), MigInstance("MIG-b", 20 * GIB))
    cut = Gpu(0, "GPU-a", "A100", (8, 0), 40 * GIB, mig=instances)
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return Machine(
        (cut, Gpu(1, "GPU-b", "A100", (8, 0), 40 * GIB)), "", 8, 64 * GIB,
        visible_devices=visible, allocation=allocation_from(environment, 2),
    )  # fmt: skip


def test_each_start_gets_an_instance_of_its_own_then_a_whole_gpu(nvml: FakeNvml) -> None:
    *taken, last = chosen(nvml, f"{BOX} use=/nowhere", "free:1", "free:1", "free:1", "free:1")
    assert taken == [[[name], [name]] for name in ("MIG-0000-100", "MIG-0000-101", "GPU-0000-1")]
    assert last.startswith("needs a GPU; GPU 0:0: used by ")
    assert "; GPU 0:1: used by " in last


def test_an_instance_that_the_options_name_is_leased_and_not_its_whole_gpu(nvml: FakeNvml) -> None:
    named, other, first = chosen(nvml, BOX, "[MIG-0000-101]", "free:1", "[0]")
    assert named == [["MIG-0000-101"], ["MIG-0000-101"]]
    assert other == [["MIG-0000-100"], ["MIG-0000-100"]]
    assert first == [[0], []], "CUDA shows the first instance, which is leased already"


def test_the_commands_show_each_instance_with_its_processes(nvml: FakeNvml, tmp_path: Path, sleeper: int) -> None:
    leases = {"GPUTUI_LEASES": str(tmp_path / "leases")}
    box = nvml.environment(f"{BOX} procs={sleeper}@101") | leases
    _, output, _ = answer(box, "gpus", "--json")
    rows = [json.loads(line) for line in output.splitlines()]
    assert [(row["index"], row["instance"], row["uuid"], row["free"]) for row in rows] == [
        (0, 0, "MIG-0000-100", True), (0, 1, "MIG-0000-101", False), (1, None, "GPU-0000-1", False)
    ]  # fmt: skip
    assert rows[0]["busy"] is None
    assert rows[1]["processes"][0]["pid"] == sleeper
    _, output, _ = answer(box, "gpus")
    lines = output.splitlines()
    assert lines[1].split()[0] == "0:0"
    assert lines[1].endswith("free")
    assert "'s sleep since " in lines[2]
    code, output, errors = answer(box, "lease", "1", "--", "bash", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert (code, output) == (0, "MIG-0000-100\n")
    assert "on GPU 0:0" in errors
    hidden = nvml.environment(
        f"{BOX} fail=DeviceGetComputeRunningProcesses_v3:4@0 fail=DeviceGetComputeRunningProcesses_v2:4@0"
    )
    _, output, _ = answer(hidden | leases, "gpus")
    assert output.splitlines()[1].endswith("free, by its memory: its processes are not visible from here")
    _, output, _ = answer(nvml.environment("mig=0") | leases, "gpus")
    assert output.splitlines()[1].endswith("in MIG mode without an instance")
