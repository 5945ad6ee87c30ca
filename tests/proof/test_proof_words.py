"""What a proof says in words, held against its numbers: whatever was measured, figures in one line follow from each
other, and no line says the contrary of the decision."""

from __future__ import annotations

import io
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from gputui.engine import presets
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.leases import start_devices
from gputui.engine.options import OPTIONS, Options
from gputui.engine.proof import folder, proof_start, request
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.proof.request import ProofError
from gputui.engine.runs import Run
from gputui.engine.telemetry.host import Children, Host
from gputui.engine.trials import proof_sentences, significance, trial_runner
from gputui.engine.trials.comparing import BaselineFailed, note
from gputui.engine.trials.record import Comparison, Record
from gputui.engine.trials.sweep_record import SweepSettings
from gputui.engine.trials.trial import Trial
from gputui.tui import cli
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.drawing import proof as drawing
from gputui.tui.drawing import proof_comparisons
from gputui.tui.drawing.rows import plain
from gputui.tui.printing import proof as proof_tables
from gputui.tui.printing.proof import trial_line, trials

from tests.support import recorded
from tests.support.cases import all_hold
from tests.support.front_door import until
from tests.support.proving import HERE, Planted, proving
from tests.support.recorded_proof import PROOF
from tests.support.recorded_search import write_search
from tests.support.typed import typed

NUMBER = r"[-+]?[\d,]*\.?\d+(?:e[-+]\d+)?"
FASTER = re.compile(rf"({NUMBER}) times as fast")
EIGHT = tuple(
    Gpu(index=i, uuid=f"GPU-{i}", name="H100", compute_capability=(9, 0), memory_total_bytes=80 * 2**30)
    for i in range(8)
)
GPUS = Machine(gpus=EIGHT, no_gpu_reason="", cpus=8, memory_bytes=2**34)


# ---- random proofs ------------------------------------------------------------------------------


def _measured(path: Path, seed: int) -> dict[str, Any]:
    """A proof of whichever kind, measured on a machine of whichever noise, which now and then is disturbed."""
    drawn = random.Random(seed)
    kind = drawn.choice(["ab", "ab", "loop"])
    repeats, noise = drawn.choice([3, 3, 4, 5, 9]), drawn.choice([0.0, 0.003, 0.03, 0.3, 1.5])
    speeds: dict[str, float] = {}

    def figures(options: Options, before: int) -> Planted:
        effect = drawn.choice([0.3, 0.97, 1.0, 1.004, 1.02, 1.05, 1.6, 4.0])
        speed = 1000 * speeds.setdefault(repr(options), effect) * drawn.lognormvariate(0, noise)
        return Planted(
            speed, drawn.uniform(0, 0.6), drawn.uniform(0, 0.4), outcome="crashed" if drawn.random() < 0.02 else "ok"
        )

    asked = (
        request.of_change("quickstart", ["steps_per_execution=16"], repeats=repeats)
        if kind == "ab"
        else request.of_preset("loop", "input-heavy", [], repeats=repeats)
    )
    made = proving(path / f"proof-{seed}", asked, figures)
    try:
        made.prover.prove()
        made.record.state = "done"
    except BaselineFailed as fault:
        made.record.state, made.record.error = "failed", str(fault)
    for one in made.record.trials:
        one.disturbed = "other programs used 52 % of the CPU's cores" if drawn.random() < 0.1 else ""
    made.record.write("ended")
    return made.written


def _lines(told: dict[str, Any]) -> list[str]:
    """Everything that any view says of it."""
    out = io.StringIO()
    with redirect_stdout(out):
        proof_tables.show_trials(typed(Record, told))
        proof_tables.show_result(typed(Record, told))
    rows = [
        row
        for low in (False, True)
        for width in (48, 60, 118)
        for row in drawing.head(typed(Record, told), told["started_t"], width, PLAIN, low)
    ]
    rows += [row for one in typed(Record, told).comparisons for row in proof_comparisons.detail(one, 200, 30, PLAIN)]
    said = [*out.getvalue().splitlines(), *as_markdown(typed(Record, told)).splitlines(), *map(plain, rows)]
    said += [trial_line(title, one) for title, one in trials(typed(Record, told))]
    return (
        said
        + [proof_sentences.verdict(one) for one in typed(Record, told).comparisons]
        + [proof_sentences.conclusion(typed(Record, told))]
    )


@pytest.mark.parametrize("first", [0, 8, 16])
def test_figures_follow_from_each_other_and_no_line_contradicts_the_decision(tmp_path: Path, first: int) -> None:
    with all_hold() as cases:
        for seed in range(first, first + 8):
            with cases.case(f"seed {seed}"):
                told = _measured(tmp_path, seed)
                said = _lines(told)
                for line in said:
                    _follow(line)
                for one in told["comparisons"]:
                    _agree(one)
                disturbed = any(trial.disturbed for trial in typed(Record, told).trials)
                assert any("disturbed" in line for line in said) == disturbed


def _numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(NUMBER, text)]


def _follow(line: str) -> None:
    """Speeds with the factor between them; a factor with its percentage; how many more pairs with their sum."""
    if found := re.search(rf"({NUMBER}) -> ({NUMBER}) samples/s(?:,? \(?({NUMBER}) times)?", line):
        before, after = _numbers(found[1])[0], _numbers(found[2])[0]
        factor = found[3] or (FASTER.search(line) or [None, None])[1]
        if factor is not None:
            assert float(factor) == pytest.approx(after / before, rel=0.011, abs=0.006), line
    if found := re.search(rf"({NUMBER}) times as fast \(gain ({NUMBER}) %", line):
        assert float(found[1]) == pytest.approx(1 + float(found[2]) / 100, rel=0.006, abs=0.006), line
    if found := re.search(r"(\d+) pairs with a .* about (\d+) more pairs? would be needed \(--repeats (\d+)\)", line):
        assert int(found[1]) + int(found[2]) == int(found[3]), line
    if found := re.search(r"(\d+) of (\d+) trials (?:was|were) disturbed", line):
        assert 0 < int(found[1]) <= int(found[2]), line


CONTRARY = {
    "undecided": ("no difference", "faster", "slower", "times as fast", "rejected"),
    "no difference": ("faster", "slower", "times as fast", "chance", "more pair"),
    "faster": ("no difference", "chance", "slower", "more pair"),
    "slower": ("no difference", "chance", "faster", "more pair"),
    "kept": ("no difference", "chance", "slower", "rejected", "more pair"),
    "rejected": ("kept", "times as fast", "makes no"),
    "failed": ("times as fast", "no difference", "chance"),
}


def _agree(one: dict[str, Any]) -> None:
    sentence, gain, spread = proof_sentences.verdict(typed(Comparison, one)), one["gain"], one["spread"]
    for contrary in CONTRARY[one["decision"]]:
        assert contrary not in sentence, sentence
    if one["decision"] == "failed":
        return
    count = sum(trial["side"] == "b" and trial["outcome"] == "ok" for trial in one["trials"])
    least = significance.detectable_gain(spread, count)
    size = math.expm1(abs(math.log1p(gain)))  # a third of the speed is as far from none as three times the speed
    certain = size > max(significance.LEAST_GAIN, least)
    assert (one["decision"] in ("faster", "kept")) == (certain and gain > 0), sentence
    if one["decision"] == "slower":
        assert certain
    assert ("may be chance" in sentence) == (not certain and max(size, least) > significance.LEAST_GAIN), sentence
    if advised := re.search(r"--repeats (\d+)", sentence):
        enough = significance.detectable_gain(spread, int(advised[1]))
        assert max(size, significance.LEAST_GAIN) >= enough, sentence
        assert max(size, significance.LEAST_GAIN) <= significance.detectable_gain(spread, int(advised[1]) - 1), sentence


def test_a_gain_is_one_figure_everywhere_on_a_machine_that_changes(tmp_path: Path) -> None:
    """One pair ran on a machine as fast as half: the speeds that are shown are those of the pair of the median gain."""
    speeds = iter([1000, 2100, 2810, 1755, 1760, 3643])  # a b, b a, a b: 2.1, 1.6 and 2.07 times as fast
    made = proving(
        tmp_path / "proof",
        request.of_change("quickstart", ["steps_per_execution=16"]),
        lambda options, before: Planted(next(speeds)),
    )
    made.prover.prove()
    made.record.state = "done"
    made.record.write("ended")
    said = _lines(made.written)
    assert made.written["comparisons"][0]["decision"] == "faster"
    assert any("1,760 -> 3,643 samples/s  2.07 times as fast" in line for line in said)
    whole = " ".join((*said, as_markdown(typed(Record, made.written))))
    assert set(re.findall(r"[\d.]+(?= times)", whole)) == {"2.07"}


# ---- what disturbs --------------------------------------------------------------------------------


def _asked(*settings: str) -> request.Request:
    """About a preset with these settings; the machine is given where it is judged."""
    return request.of_preset("loop", "input-heavy", list(settings))


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [
        (["device.visible=[0, 1]"], ["device.visible=[2]"], False),
        (["device.visible=[0, 1]", "strategy.kind=mirrored"], ["device.visible=[1]"], True),
        (["device.visible=[0, 1]"], ["device.visible=[1]"], False),
        (["device.visible=[0]"], ["device.visible=all"], True),
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


def test_a_run_on_another_machine_shares_no_device(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "process_iter", lambda names: [])
    run = recorded.write(home, gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    assert proof_start.other_training((), GPUS) == f"the run {run.name} is running"
    life = SimpleNamespace(host="box7")
    monkeypatch.setattr(Run, "liveness", property(lambda _: life))
    monkeypatch.setattr(Run, "state_of", lambda *_: "running")
    assert not proof_start.other_training((), GPUS)


def test_a_comparison_with_a_side_on_the_cpu_is_kept_from_every_training() -> None:
    with_cpu = proof_start.of_request(request.of_change("quickstart", ["device.visible=none"]), GPUS)
    assert proof_start.overlap(with_cpu, ["GPU-of-another-training"])
    on_gpus = proof_start.of_request(request.of_change("quickstart", ["device.visible=[1]"]), GPUS)
    assert not proof_start.overlap(on_gpus, ["GPU-of-another-training"])


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
    monkeypatch.setattr(start_devices, "why_not", lambda options, here: f"{options.device.visible}: none is free")
    assert proof_start.blocks(_asked("device.visible=free:1"), GPUS) == "free:1: none is free"
    assert proof_start.blocks(replace(_asked("device.visible=free:1"), sweep=sweep.sweep), GPUS) == ""


def test_a_training_on_the_cpu_is_kept_from_another_one_there_and_one_on_a_gpu_is_not(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "process_iter", lambda names: [])
    recorded.write(home, gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    for visible, found in (("none", "the run recorded is running"), ("[0]", ""), ("free:1", "")):
        options = presets.resolve("quickstart", [f"device.visible={visible}"]).options
        assert proof_start.in_the_way(options, GPUS) == found, visible


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


def test_a_trial_tells_who_used_its_cores_and_gpus(tmp_path: Path) -> None:
    def told(throttle: str = "[]", **host: float) -> Iterator[str]:
        yield '{"t": 1, "type": "started", "gpus": ["GPU-a"], "devices": ["/device:GPU:0"]}'
        yield '{"t": 1, "type": "phase", "phase": "training"}'
        yield f'{{"t": 2, "type": "host", "cpu": {host["cpu"]}, "others_cpu": {host["others"]}}}'
        yield (
            '{"t": 2, "type": "gpu", "gpus": [{"uuid": "GPU-a", "busy": 1.0, "processes": ['
            '{"pid": 1, "name": "python", "own": true, "memory_used_bytes": 9000000000}, '
            f'{{"pid": 2, "name": "blender", "own": false, "memory_used_bytes": {host["held"]}}}], '
            f'"throttle": {throttle}}}]}}'
        )

    def seen(throttle: str = "[]", **host: float) -> str:
        Run(tmp_path).file("events.jsonl").write_text("\n".join(told(throttle, **host)) + "\n")
        return trial_runner.disturbed(Run(tmp_path), "")

    assert seen(cpu=1.0, others=0.05, held=5e6) == ""
    assert seen(cpu=0.4, others=0.3, held=5e6) == "", "there were cores left"
    assert seen(cpu=1.0, others=0.5, held=5e6) == "other programs used 50 % of the CPU's cores"
    assert seen(cpu=0.4, others=0.0, held=5e9) == "other programs on its GPU: blender"
    for reason, said in (("power cap", ""), ("software thermal", "its GPU was slowed down (software thermal)")):
        assert seen(f'["{reason}"]', cpu=0.4, others=0.0, held=5e6) == said
    seen(cpu=0.4, others=0.0, held=5e9)
    assert trial_runner.disturbed(Run(tmp_path), "the run X is running").startswith(
        "the run X is running, other programs"
    )


def test_what_a_training_has_started_is_its_own_and_not_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes of a user's data, and what those start."""
    with monkeypatch.context() as planted:
        planted.setattr(psutil, "cpu_count", lambda: 4)
        planted.setattr(Children, "cores", lambda children: 2.0)
        assert Host(os.getpid())._others_cpu(cpu=0.9, engine=0.1, trainer=0.7) == pytest.approx(0.2)
    burn = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    worker = subprocess.Popen([sys.executable, "-c", burn], start_new_session=True)
    try:
        children = Children(os.getpid())
        until(lambda: children.cores() > 0.1)
        host = Host(os.getpid())
        until(lambda: (reading := host.read()).cpu and reading.others_cpu is not None)
        reading = host.read()
        assert reading.others_cpu is not None
        assert 0 <= reading.others_cpu <= (reading.cpu or 0)
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    until(lambda: children.cores() == 0)


# Options of the data and of the training with which a model learns the same.
LEARNS_THE_SAME = {
    "input.parallel_calls", "input.cache", "input.prefetch", "input.prefetch_to_device", "input.cast",
    "input.deterministic_order", "input.private_threads", "train.epochs", "train.steps_per_epoch",
    "train.deterministic", "train.stop_on_nan", "train.nan_check_steps",
}  # fmt: skip


def test_a_comparison_says_of_each_option_whether_it_changes_what_is_learnt() -> None:
    keys = {option.key for option in OPTIONS if option.group in ("input", "train")}
    silent = {key for key in keys if not note([key], Options())}
    of_a_group = {option.key: note([option.key], Options()) for option in OPTIONS if option.group == "workload"}
    assert len(of_a_group) > 10
    assert set(of_a_group.values()) == {"another model or other data is learnt"}
    assert note(["precision.tf32"], Options()) == "other number formats round differently"
    assert silent == LEARNS_THE_SAME, "a new option declares its effect on learning (learning=), or is entered here"


def test_the_proof_written_by_hand_has_the_fields_of_the_engine() -> None:
    """What the tests of the screens show has the fields that a real proof.json has."""
    for kind, data in (
        (Record, PROOF),
        (Comparison, PROOF["comparisons"][0]),
        (Trial, PROOF["comparisons"][0]["trials"][0]),
    ):
        known = {field.name for field in fields(kind)} - {"path"}
        assert set(data) == known, kind
    assert json.loads(json.dumps(PROOF))
