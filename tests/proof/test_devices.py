"""What a proof says in words, held against its numbers: whatever was measured, figures in one line follow from each
other, and no line says the contrary of the decision."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.doors.engine import Gpu, Machine, ProofError, SweepSettings, folder, gpu_use, presets, proof_start
from tests.doors.engine import proof_request as request
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
from tests.support.proving import HERE
from tests.support.recorded_proof import write_search

EIGHT = tuple(
    Gpu(index=i, uuid=f"GPU-{i}", name="H100", compute_capability=(9, 0), memory_total_bytes=80 * 2**30)
    for i in range(8)
)
GPUS = Machine(gpus=EIGHT, no_gpu_reason="", cpus=8, memory_bytes=2**34)


def _asked(*settings: str) -> request.Request:
    """About a preset with these settings; the machine is given where it is judged."""
    return request.of_preset("loop", "input-heavy", list(settings))


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [
        (["device.visible=[0, 1]"], ["device.visible=[2]"], False),
        (["device.visible=[0, 1]", "strategy.kind=mirrored"], ["device.visible=[1]"], True),
        (["device.visible=[0, 1]"], ["device.visible=[1]"], False),
        (["device.visible=[0]"], ["device.visible=none"], True),
        (["device.visible=none"], ["device.visible=none"], True),
    ],
)
def test_a_proof_is_kept_from_what_shares_its_devices(
    home: Path, monkeypatch: pytest.MonkeyPatch, ours: list[str], theirs: list[str], shared: bool
) -> None:
    monkeypatch.setattr(psutil, "process_iter", lambda names: [])  # this machine's own trainings
    proof = folder.create(_asked(*theirs))
    record = folder.empty_record(proof.path, proof.request)
    record.write("measuring")
    assert proof.state == "running"
    found = proof_start.other_training(proof_start.of_request(_asked(*ours), GPUS), GPUS)
    assert bool(found) == shared, found
    assert not proof_start.other_training(proof_start.of_request(_asked(*ours), GPUS), GPUS, but=proof.path)


def test_a_start_is_kept_from_what_uses_the_same_gpu(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a box of several people, each on a GPU of their own."""
    other = recorded.write(home / "other", gpus=0, seconds=20, outcome=None, settings=("device.visible=[3]",))
    words = ["python", "-m", "gputui.engine.trainer", str(other.path)]
    monkeypatch.setattr(psutil, "process_iter", lambda names: [SimpleNamespace(info={"cmdline": words}, pid=7)])
    run = recorded.write(home, gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    for path, uuid in ((run, GPUS.gpus[1].uuid), (other, GPUS.gpus[3].uuid)):
        events = path.file("events.jsonl")
        events.write_text(events.read_text().replace('"gpus":[]', f'"gpus":["{uuid}"]'))
    for ours, found in {
        "[0]": "", "[1]": "the run recorded is running", "[2, 1]": "", "none": "",
        "[3]": "the training recorded (process 7) is running",
    }.items():  # fmt: skip
        options = presets.resolve("quickstart", [f"device.visible={ours}"]).options
        assert proof_start.in_the_way(options, GPUS) == found, ours
    search = write_search(home / "theirs", kind="tune")
    (search.path / "trials").mkdir()
    words[-1] = str(other.path.rename(search.path / "trials" / "06-s"))
    options = presets.resolve("quickstart", ["device.visible=[3]"]).options
    told = f"the search {search.id} of the home {home / 'theirs'} (process 7) is running"
    assert proof_start.in_the_way(options, GPUS) == told
    both = presets.resolve("quickstart", ["device.visible=[2, 1]", "strategy.kind=mirrored"]).options
    assert proof_start.in_the_way(both, GPUS) == "the run recorded is running"
    assert not proof_start.in_the_way(both, GPUS, but=run.path)


def test_a_resumed_run_uses_the_gpus_of_its_latest_start(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With free:1 a resumed run may get another GPU."""
    monkeypatch.setattr(psutil, "process_iter", lambda names: [])
    run = recorded.write(home, gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    lines = run.file("events.jsonl").read_text().splitlines()
    begun = next(line for line in lines if '"type":"started"' in line)
    on_gpus = [begun.replace('"gpus":[]', f'"gpus":["{gpu.uuid}"]') for gpu in (GPUS.gpus[1], GPUS.gpus[2])]
    assert begun not in on_gpus
    events = [on_gpus[0], *(line for line in lines if line != begun), on_gpus[1]]
    run.file("events.jsonl").write_text("".join(f"{line}\n" for line in events))
    for ours, found in {"[1]": "", "[2]": "the run recorded is running"}.items():
        options = presets.resolve("quickstart", [f"device.visible={ours}"]).options
        assert proof_start.in_the_way(options, GPUS) == found, ours
    run.file("events.jsonl").unlink()
    visible = presets.resolve("quickstart", ["device.visible=[3]"])
    run.file("preset.yaml").write_text(visible.to_yaml())
    assert proof_start.in_the_way(visible.options, GPUS) == "the run recorded is running", "by its options before that"
    run.file("preset.yaml").write_text("- damaged\n")
    assert proof_start.in_the_way(visible.options, GPUS) == ""
    on_cpu = presets.resolve("quickstart", ["device.visible=none"]).options
    assert proof_start.in_the_way(on_cpu, GPUS) == "the run recorded is running", "it counts as one on the CPU"


def test_what_blocks_a_measurement_is_on_its_devices_and_of_a_sweep_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "process_iter", lambda names: [])
    run = recorded.write(home, gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    on_cpu = _asked("device.visible=none")
    assert proof_start.blocks(on_cpu, GPUS) == "the run recorded is running"
    assert proof_start.blocks(on_cpu, GPUS, but=run.path) == ""
    sweep = replace(on_cpu, sweep=SweepSettings(axes=[], metric="loss"))
    assert proof_start.blocks(sweep, GPUS) == "", "its trials wait in the queue"
    monkeypatch.setattr(gpu_use, "why_not", lambda options, here: f"{options.device.visible}: none is free")
    assert proof_start.blocks(_asked("device.visible=free:1"), GPUS) == "free:1: none is free"
    assert proof_start.blocks(replace(_asked("device.visible=free:1"), sweep=sweep.sweep), GPUS) == ""


def test_an_ab_whose_sides_train_on_the_same_device_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["ab", "--preset", "quickstart", "--set", "device.visible=none"]) == 2
    refused = capsys.readouterr().err
    assert "both sides train on the CPU" in refused
    assert "Traceback" not in refused
    one = Machine(gpus=GPUS.gpus[:1], no_gpu_reason="", cpus=8, memory_bytes=2**34)
    asked = request.of_change("quickstart", ["device.visible=[0]"])
    with pytest.raises(ProofError, match="both sides train on GPU 0"):
        request.refuse(asked, one)
    with pytest.raises(ProofError, match="both sides train on GPU 0"):
        request.refuse(asked, GPUS)
    request.refuse(request.of_change("quickstart", ["device.visible=[1]"]), GPUS)
    with pytest.raises(ProofError, match="there is no GPU 0"):
        request.refuse(asked, HERE)
