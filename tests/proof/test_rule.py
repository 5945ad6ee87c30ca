"""The rule by which a change is called faster: how pairs are judged, and how often noise alone passes for a gain."""

from __future__ import annotations

import math
import os
import random
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doors.engine import VISIBLE as VARIABLE
from tests.doors.engine import (
    Diagnosis,
    EventWriter,
    ForkServer,
    Learning,
    Measurements,
    Options,
    Preset,
    Run,
    Stop,
    Trial,
    TrialRunner,
    collector,
    comparing,
    create_at,
    diagnosis,
    duration,
    folder,
    gpu_use,
    plan,
    presets,
    proof_loop,
    significance,
    trial_runner,
)
from tests.doors.engine import proof_process as process
from tests.doors.engine import proof_request as request
from tests.proof.judged import measured
from tests.support import recorded
from tests.support.proving import HERE, Planted, as_text, leave, progress, started
from tests.support.recorded_proof import write_search


@pytest.mark.parametrize("count", [3, 10])
def test_noise_alone_passes_for_a_gain_as_rarely_as_the_docstring_says(count: int) -> None:
    noise = random.Random(5)
    drawn = ([math.expm1(noise.gauss(0, 0.1)) for _ in range(count)] for _ in range(3_000))
    assert sum(significance.verdict(gains)[0] == "faster" for gains in drawn) / 3_000 < 0.012


def test_a_search_that_looks_after_two_pairs_claims_nothing_as_rarely_as_the_docstring_says() -> None:
    """Of a change that does nothing: after two pairs, after three, and after as many as their spread asks for."""
    drawn = random.Random(11)

    def pairs(count: int) -> list[float]:
        return [math.expm1(drawn.gauss(0, math.sqrt(2) * 0.1)) for _ in range(count)]

    claims = Counter[str]()
    for _ in range(2_000):
        gains = pairs(significance.FEW)
        if significance.verdict(gains)[0] == "faster":
            claims["two"] += 1
            continue
        decision = significance.verdict(gains := gains + pairs(1))[0]
        median, spread = significance.gain_and_spread(gains)
        if decision == "undecided" and median is not None and spread is not None and median > 0:
            more = significance.pairs_needed(median, spread) - len(gains)
            decision = significance.verdict(gains + pairs(min(more, significance.MOST_MORE_PAIRS)))[0]
        claims["more"] += decision == "faster"
    assert claims.total() / 2_000 < 0.025
    assert claims["two"] / 2_000 < 0.002


def row(speed: float | None, **fields: Any) -> Trial:
    known: dict[str, Any] = {"side": "a", "repeat": 1, "run": "01-a", "outcome": "ok", "samples_per_second": speed}
    return Trial(**known | fields)


@pytest.mark.parametrize(
    ("figures", "settings", "per_epoch"),
    [
        ({"train_samples": 100, "global_batch_size": 32}, (), 4),
        ({"train_samples": 100, "global_batch_size": 32}, ("input.drop_remainder=true",), 3),
        ({"train_samples": 100, "global_batch_size": 32}, ("train.steps_per_epoch=7",), 7),
        ({"train_samples": 100, "global_batch_size": None}, (), None),
    ],
)
def test_a_trial_is_diagnosed_as_the_real_run_with_what_the_proof_knows(
    figures: dict[str, Any], settings: tuple[str, ...], per_epoch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Measurements] = []

    def diagnose(known: Measurements) -> Diagnosis:
        seen.append(known)
        return diagnosis.diagnose(known)

    monkeypatch.setattr(proof_loop, "diagnose", diagnose)
    monkeypatch.setattr(collector, "read", lambda run: measured(steps_per_epoch=999, **figures))
    preset = presets.defaults(settings)
    diagnosed = proof_loop.of_trial(Run(Path("x")), preset, 0.25, 0.1)
    assert diagnosed["verdict"]
    assert (seen[0].steps_per_epoch, seen[0].ablation, seen[0].communication) == (per_epoch, 0.25, 0.1)
    assert seen[0].options == preset.options.values()
    assert seen[0].options["train.steps_per_epoch"] == preset.options.train.steps_per_epoch


def test_a_trial_names_who_trained_beside_it_at_its_beginning_or_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_self: ForkServer, preset: Preset, path: Path, _paths_from: Path) -> tuple[Run, Any]:
        run = create_at(path, as_text(preset))
        leave(run, preset.options, Planted())
        return run, lambda: False

    monkeypatch.setattr(ForkServer, "start", start)
    told: list[str] = []
    for first, last in (("a", ""), ("", "b"), ("a", "b"), ("", "")):
        answers = [first, last]

        def beside(_options: Options, given: list[str] = answers) -> str:
            return given.pop(0)

        folder_of = tmp_path / f"{first}-{last}"
        with TrialRunner(folder_of, folder_of, 1, 5.0, HERE, Stop(), beside) as bench:
            row = bench.measure(presets.defaults(), "a", 1)
        assert (row.run, row.outcome, row.seconds > 0) == ("01-a", "ok", True)
        told.append(row.disturbed)
    assert told == ["a", "b", "a", ""]


def test_each_disturbance_of_a_trial_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for throttled, said in ((0.1, ", its GPU was slowed down (heat)"), (0.09, "")):
        found = measured(throttled=throttled, throttle=("heat",), gpu_neighbours=("a", "b"), cpu=1.0, others_cpu=0.5)
        monkeypatch.setattr(collector, "read", lambda run, found=found: found)
        told = trial_runner.disturbed(Run(Path("x")), "a run")
        assert told == f"a run, other programs used 50 % of the CPU's cores, other programs on its GPU: a, b{said}"


def test_both_sides_are_compared_by_their_medians_after_the_samples_that_all_have_seen(tmp_path: Path) -> None:
    options = presets.defaults().options
    rows: list[Trial] = []

    def ran(side: str, *reports: tuple[int, float]) -> None:
        run = f"{len(rows) + 1:02}-{side}"
        (tmp_path / run).mkdir()
        writer = EventWriter(tmp_path / run / "events.jsonl", run)
        writer.emit(started(options, 10))
        for step, loss in reports:
            writer.emit(replace(progress(step, loss, Planted()), samples=10 * step))
        writer.close()
        rows.append(Trial(side=side, repeat=len(rows), run=run, outcome="ok"))

    assert comparing.compare("n", rows, tmp_path) == Learning(note="n")
    for end in (1.0, 1.5, 5.0):
        ran("a", (1, 2.0), (11, end))
        ran("b", (1, 2.0), (6, end / 2), (21, 0.1))
    ran("b", (1, 2.0), (21, 0.0))
    found = comparing.compare("n", rows, tmp_path)
    assert (found.note, found.samples) == ("n", 110)
    assert [row.loss_at_samples for row in rows[::2][:3]] == pytest.approx([1.0, 1.5, 5.0])
    b = [0.5 - 0.4 / 3, 0.75 - 0.65 / 3, 2.5 - 2.4 / 3, 1.0]
    assert [row.loss_at_samples for row in (*rows[1::2], rows[-1])] == pytest.approx(b)
    assert found.loss_a == pytest.approx(1.5)
    assert found.loss_b == pytest.approx((b[1] + b[3]) / 2)
    ran("a")
    assert comparing.compare("n", rows, tmp_path) == Learning(note="n"), "one has reported no loss"


@pytest.mark.parametrize(("visible", "trains_on"), [("free:1", "GPU-7"), ("all", "3")])
def test_all_trials_train_on_the_gpus_that_were_chosen_for_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, trains_on: str
) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    monkeypatch.setattr(signal, "signal", lambda *_given: None)
    monkeypatch.setattr(gpu_use, "inherited", lambda _given: [SimpleNamespace(name="GPU-7")])
    monkeypatch.setattr(gpu_use, "give_back", lambda _leases: [])
    asked = request.of_opened("ab", presets.defaults([f"device.visible={visible}"]))
    (tmp_path / "request.json").write_text(asked.to_json())
    seen: list[str] = []
    assert process.main(tmp_path, lambda _site: seen.append(os.environ[VARIABLE])) == 0
    assert seen == [trains_on]
    assert folder.read_record(tmp_path).state == "done"


def test_the_times_of_a_search_come_from_its_trials(home: Path) -> None:
    search = write_search(home)  # trials of 12.4 s before the pairs, with 2 s measured
    times = duration.trial_times("cnn")
    assert times.source == f"as in {search.id}"
    assert times.seconds(2.0) == pytest.approx(12.4, abs=1.0)


def test_the_time_of_a_trial_is_estimated_from_the_steps_of_the_run(home: Path) -> None:
    fast = recorded.write(home, name="20260921-100000-fast", seconds=30, gpus=0)  # 12 s to start, 6.1 of them to import
    step = (fast.result or {})["step_ms"]["p50"] / 1000
    asked = request.of_run(fast)
    assert duration.of_request(asked) == pytest.approx(12 - 6.1 + 1.5 + 20 * step + plan.expected_seconds(5.0, step))


def test_a_proof_that_cannot_start_leaves_no_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(proof: folder.Proof, *_more: object) -> None:
        assert proof.path.is_dir()
        raise request.ProofError("no GPU is free")

    monkeypatch.setattr(folder, "start", refuse)
    with pytest.raises(request.ProofError, match="no GPU is free"):
        folder.launch(request.of_opened("ab", presets.defaults()))
    assert folder.proofs() == []
    assert list((home / "proofs").iterdir()) == []
