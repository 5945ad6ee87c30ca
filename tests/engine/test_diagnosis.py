"""The verdict on figures of every kind, and what is told of it; the figures of real trainings are in test_cases.py."""

from __future__ import annotations

import ast
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.diagnosis import RULES, SUPPORTING, VERDICTS, diagnose, stragglers
from gputui.engine.diagnosis import verdict as verdict_module
from gputui.engine.diagnosis.collector import Collector
from gputui.engine.diagnosis.measurements import Measurements
from gputui.engine.diagnosis.rules import findings
from gputui.engine.runs.events import Diagnosis, GradientExchange, Started, WorkerReadings
from gputui.engine.runs.parsing import recalled
from gputui.tui.printing.diagnosis import show, show_stages

from tests.support.judged import PARALLEL, STAGES, gpu, measured, waits

OWN = {"workload.entry": "mine.py:build"}
CASES: tuple[tuple[str, Measurements], ...] = (
    ("input_bound", measured(**waits(0.6))),
    ("input_bound", gpu(**waits(0.25, busy_mean=0.6))),
    ("input_bound", measured(input_wait=None, compute_share=None, ablation=0.5)),
    ("transfer_bound", gpu(transfer=0.4)),
    ("transfer_bound", gpu(transfer=0.95, device_batches=2, input_wait=0.6, compute_share=0.3)),
    ("python_overhead", measured(python_share=0.4, compute_share=0.59)),
    ("python_overhead", gpu(python_share=0.4, compute_share=0.59, busy_mean=0.3, busy_p95=0.4)),
    ("stalls", measured(pauses=0.5)),
    ("stalls", gpu({"precision.policy": "mixed_bfloat16", "compile.xla": True}, busy_p5=0.02, busy_mean=0.8)),
    ("retracing", measured(traces=30, python_share=0.5, compute_share=0.49)),
    ("throttled", gpu(throttled=0.6, throttle=("hardware thermal",))),
    ("memory_growing", measured(host_memory_growth=0.2)),
    ("memory_growing", gpu(memory_growth=0.2)),
    ("imbalance", gpu(gpus=2, busy_gap=0.7, busy_mean=0.6)),
    ("imbalance", gpu(gpus=2, clock_gap=0.3)),
    ("slow_worker", gpu(worker_gap=0.4, slow_worker="worker 1 (h1:1)", slow_worker_wait=0.42)),
    ("underfilled", gpu(busy_mean=0.3, busy_p95=0.4)),
    ("underfilled", gpu(sm_active=0.3)),
    ("memory_limit", gpu({"precision.policy": "mixed_bfloat16", "compile.xla": True}, memory_peak=0.99)),
    ("communication_bound", gpu(gpus=4, communication=0.3)),
    ("communication_bound", gpu(gpus=4, worker_exchange=0.421, exchange_ms=12.0)),
    ("low_clocks", gpu(clock_share=0.3, sm_clock_mhz=600.0, max_sm_clock_mhz=1980.0)),
    ("low_clocks", gpu(clock_share=0.8, power_capped=0.9, power_limit_w=300.0, power_limit_default_w=700.0)),
    ("bandwidth_bound", gpu(sm_active=0.9, tensor_active=0.1, dram_active=0.75)),
    ("compute_bound", gpu(sm_active=0.9, tensor_active=0.01, dram_active=0.2)),
    ("compute_bound", measured(cpu_bfloat16=True)),
    ("compute_bound", gpu()),
    ("healthy", gpu({"precision.policy": "mixed_bfloat16", "compile.xla": True})),
    ("healthy", measured({"compile.xla": True})),
    ("undecided", measured(steps=5)),
    ("undecided", measured({"train.deterministic": True}, input_wait=None, python_share=None, compute_share=None)),
)


@pytest.mark.parametrize(("verdict", "known"), CASES, ids=[f"{i}-{verdict}" for i, (verdict, _) in enumerate(CASES)])
def test_each_verdict_from_its_figures(verdict: str, known: Measurements) -> None:
    found = diagnose(known)
    assert found.verdict == verdict, found
    assert found.sentence.startswith(VERDICTS[verdict].label)
    assert len(found.sentence) <= 100
    assert 0.0 <= found.confidence <= 1.0
    if verdict not in ("undecided", "healthy"):
        decisive = found.evidence[0]
        assert decisive["source"]
        assert decisive["threshold"] is not None
        assert decisive["text"]
        assert found.confidence >= 0.5


def test_what_is_printed_of_each_verdict(capsys: pytest.CaptureFixture[str], snapshot: Any) -> None:
    for _verdict, known in CASES:
        show(asdict(diagnose(known)))
        print()
    show_stages([*PARALLEL, {"name": "batch", "op": "BatchV2", "ms_per_batch": None}])
    assert capsys.readouterr().out == snapshot


def test_every_verdict_of_the_table_has_a_case_and_words() -> None:
    verdicts = {rule.verdict for rule in RULES}
    assert verdicts <= {verdict for verdict, _ in CASES}, "figures that lead to a new verdict are entered in CASES"
    assert verdicts <= set(VERDICTS)


def test_each_verdict_that_the_code_names_is_declared() -> None:
    compared = [
        part
        for node in ast.walk(ast.parse(Path(verdict_module.__file__).read_text()))
        if isinstance(node, ast.Compare) and "verdict" in ast.unparse(node.left)
        for part in ast.walk(node)
    ]
    words = {part.value for part in compared if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    assert len(words) > 8
    assert words | set(verdict_module.HOST_VIEWED) <= set(VERDICTS)


# From which value on a figure counts, and decides: changing one is a decision, which is taken here, too.
THRESHOLDS = {
    ("retracing", "traces"): (5, 5), ("throttled", "throttled"): (0.1, 0.2),
    ("memory_growing", "memory_growth"): (0.05, 0.05), ("memory_growing", "host_memory_growth"): (0.05, 0.05),
    ("input_bound", "input_wait"): (0.05, 0.2), ("input_bound", "ablation"): (0.05, 0.2),
    ("input_bound", "io_wait"): (0.3, 0.5), ("input_bound", "cpu"): (0.9, 0.9),
    ("transfer_bound", "transfer"): (0.05, 0.2), ("python_overhead", "python_share"): (0.03, 0.15),
    ("communication_bound", "communication"): (0.03, 0.15), ("communication_bound", "worker_exchange"): (0.03, 0.15),
    ("stalls", "pauses"): (0.15, 0.3), ("stalls", "busy_p5"): (0.1, 0.1), ("stalls", "uneven"): (3, 6),
    ("imbalance", "busy_gap"): (0.2, 0.5), ("imbalance", "clock_gap"): (0.1, 0.2),
    ("slow_worker", "worker_gap"): (0.1, 0.3), ("underfilled", "busy_mean"): (0.7, 0.5),
    ("low_clocks", "clock_share"): (0.75, 0.6), ("low_clocks", "power_capped"): (0.3, 0.5),
    ("bandwidth_bound", "dram_active"): (0.6, 0.7), ("compute_bound", "tensor_active"): (0.1, 0.05),
    ("underfilled", "sm_active"): (0.4, 0.4), ("memory_limit", "memory_peak"): (0.9, 0.97),
    ("compute_bound", "compute_share"): (0.8, 0.8),
}  # fmt: skip


def test_the_thresholds_are_those_that_were_decided_on() -> None:
    declared = {(rule.verdict, rule.measurement): (rule.notable, rule.strong) for rule in RULES}
    assert declared == THRESHOLDS, "a new or changed threshold is also entered in THRESHOLDS"


DECIDING = [rule for rule in RULES if rule.rank != SUPPORTING]


@pytest.mark.parametrize("rule", DECIDING, ids=lambda rule: f"{rule.verdict}-{rule.measurement}")
def test_each_rule_counts_at_its_threshold_and_not_before(rule: Any) -> None:
    just = -1e-6 if rule.below else 1e-6
    several = rule.measurement in ("busy_gap", "busy_p5", "clock_gap")
    base = gpu(gpus=2, busy_p95=0.95) if several else measured(cpu_bfloat16=True)
    of_chip = rule.measurement in ("clock_share", "power_capped", "dram_active", "tensor_active")
    if of_chip:
        base = replace(base, compute_capability=(9, 0), power_limit_w=300.0, power_limit_default_w=700.0)
    on_gpu = of_chip or rule.measurement in ("busy_mean", "busy_p5", "busy_gap", "clock_gap", "sm_active")
    base = replace(base, on_gpu=on_gpu, input_wait=0.0, compute_share=0.5)
    counts = replace(base, **{rule.measurement: rule.notable + just})
    not_yet = replace(base, **{rule.measurement: rule.notable - just})

    def named(known: Measurements) -> list[str]:
        found = diagnose(known)
        return [found.verdict, *found.others]

    assert rule.verdict in named(counts)
    assert rule.verdict not in named(not_yet)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.rank == SUPPORTING], ids=lambda rule: rule.measurement)
def test_a_rule_beside_confirms_another_and_finds_nothing_alone(rule: Any) -> None:
    figure = {rule.measurement: rule.notable + 1e-6}
    alone = diagnose(measured(**figure))
    assert rule.verdict not in (alone.verdict, *alone.others)
    without, confirmed = diagnose(measured(**waits(0.3))), diagnose(measured(**waits(0.3), **figure))
    piece = next(row for row in confirmed.evidence if row["signal"] == rule.measurement)
    assert confirmed.evidence[0]["signal"] == "input_wait"
    assert piece["threshold"] == rule.notable
    assert confirmed.confidence > without.confidence
    faint = diagnose(measured(**waits(0.3), **{rule.measurement: rule.notable - 1e-6}))
    assert rule.source not in [row["source"] for row in faint.evidence]


def test_the_sentence_names_busy_cores_and_a_disk_that_is_waited_for() -> None:
    def sentence(**figures: Any) -> str:
        return diagnose(measured(**waits(0.6), stages=STAGES, **figures)).sentence

    assert sentence(cpu=0.95).endswith("mostly in load; all CPU cores are busy")
    assert sentence(cpu=0.95, others_cpu=0.06).endswith("mostly in load"), "the training itself uses less"
    crowded = diagnose(measured(**waits(0.6), stages=({"name": "map", "ms_per_batch": 4.0},), cpu=0.95, others_cpu=0.3))
    assert crowded.sentence.endswith("mostly in map; other programs also use the CPU")
    assert sentence(cpu=0.95, others_cpu=0.3).endswith("mostly in load"), "the line has 100 characters at most"
    assert sentence(io_wait=0.4, read_bytes_per_second=9e7).endswith("and it waits for the disk")
    assert sentence(io_wait=0.4, read_bytes_per_second=0.0).endswith("mostly in load")


def test_a_strong_rule_beside_does_not_speak_for_a_weak_one() -> None:
    found = diagnose(measured(input_wait=0.1, compute_share=0.7, cpu=0.99))
    assert found.sentence.startswith("Input-bound: steps wait 10 % of their time for input")
    assert found.evidence[0]["signal"] == "input_wait"


@pytest.mark.parametrize(
    ("epochs", "options", "said"),
    [
        ([(2.9e11, 0.1), (297.0, 0.1)], {},
         "Diverged: the loss of epoch 2 is 297; guessing one of 10 classes has 2.3"),
        ([(2.1, None), (900.0, None)], OWN, "Diverged: the loss is 900 in epoch 2, and was 2.1 in epoch 1"),
        ([(2.31, 0.1), (2.3, 0.1), (2.3, 0.1)], {},
         "Nothing is learnt: the accuracy of epoch 3 is 0.1; guessing one of 10 classes has 0.1"),
        ([(2.3, None), (2.1, None), (2.31, None)], OWN,
         "Nothing is learnt: the loss is 2.31 in epoch 3, and was 2.3 in epoch 1"),
        # No statement: it learns, there is nothing to learn, there were too few epochs, or the loss is another one.
        ([(2.3, 0.1), (1.9, 0.3), (1.2, 0.6)], {}, ""),
        ([(2.31, 0.1), (2.3, 0.1), (2.31, 0.1)], {"workload.data": "synthetic", "workload.classes": 10}, ""),
        ([(2.3, 0.1), (2.31, 0.1)], {}, ""),
        ([(210.0, None), (180.0, None), (90.0, None)], OWN, ""),
        ([(-1.0, None), (-2.0, None), (-3.0, None)], OWN, ""),
        ([], {}, ""),
    ],
)  # fmt: skip
def test_a_training_that_has_diverged_or_learns_nothing_is_named_by_its_figures(
    epochs: list[tuple[float, float | None]], options: dict[str, Any], said: str
) -> None:
    collector = Collector({"workload.data": "digits", "workload.entry": None} | options)
    collector.feed(
        recalled({"t": 100.0 + number, "type": "epoch", "epoch": number, "step": 50 * number,
                  "metrics": {"loss": loss, "accuracy": accuracy}})
        for number, (loss, accuracy) in enumerate(epochs, 1)
    )  # fmt: skip
    assert diagnose(collector.measurements()).learning == said


def test_a_busy_gpu_loses_nothing_while_the_host_is_in_python() -> None:
    found = diagnose(gpu(python_share=0.5, compute_share=0.49, busy_mean=0.98))
    assert "python_overhead" not in (found.verdict, *found.others)


def test_a_gpu_that_is_busy_on_few_of_its_multiprocessors_acquits_nobody() -> None:
    low = diagnose(gpu(python_share=0.2, compute_share=0.79, sm_active=0.2))
    assert (low.verdict, low.others) == ("python_overhead", ["underfilled"])
    full = diagnose(gpu(python_share=0.2, compute_share=0.79, sm_active=0.85))
    assert (full.verdict, full.others) == ("undecided", [])


LOW: dict[str, Any] = {"clock_share": 0.3, "sm_clock_mhz": 600.0, "max_sm_clock_mhz": 1980.0}
LIMITED: dict[str, Any] = {"power_capped": 0.9, "power_limit_w": 300.0, "power_limit_default_w": 700.0}


@pytest.mark.parametrize(
    ("figures", "sentence", "remedy"),
    [
        (LOW | LIMITED, "Low clocks: the GPU runs at 30 % of its highest clock (power limit 300 W of 700 W)",
         "as root nvidia-smi -i 0,2 -pl 700"),
        (LOW | {"clocks_set_by": ("application clocks",)}, "of its highest clock (set: application clocks)", "-rac"),
        (LOW, "Low clocks: the GPU runs at 30 % of its highest clock", "-rgc releases locked clocks"),
        ({"clock_share": 0.8} | LIMITED, "a lowered power limit holds the GPU's clock down 90 % of", "-pl 700"),
    ],
)  # fmt: skip
def test_a_low_clock_has_its_cause_and_what_to_do_about_it(figures: dict[str, Any], sentence: str, remedy: str) -> None:
    found = diagnose(gpu(gpu_indexes=(0, 2), **figures))
    assert (found.verdict, found.others) == ("low_clocks", ["compute_bound"])
    assert sentence in found.sentence
    assert remedy in found.remedies[0]["reason"] + found.remedies[-1]["reason"]
    if "sm_clock_mhz" in figures:
        assert "its clock is 600 MHz of at most 1,980 MHz" in [row["text"] for row in found.evidence]


def test_a_clock_at_the_default_power_limit_or_one_that_heat_holds_down_is_no_low_clock() -> None:
    usual = diagnose(gpu(**LOW, power_capped=0.9, power_limit_w=72.0, power_limit_default_w=72.0))
    assert (usual.verdict, usual.others) == ("compute_bound", [])
    assert any("power limit of 72 W, the default, holds it there" in str(row["text"]) for row in usual.evidence)
    hot = diagnose(gpu(**LOW, throttled=0.4, throttle=("heat",)))
    assert (hot.verdict, hot.others) == ("throttled", ["compute_bound"])
    idle = diagnose(gpu(**LOW, busy_mean=0.3, busy_p95=0.4))
    assert "low_clocks" not in (idle.verdict, *idle.others), "a GPU with little to do lowers its clock"


def test_a_gpu_that_waits_for_its_memory_needs_smaller_numbers_and_fewer_kernels() -> None:
    found = diagnose(gpu(sm_active=0.9, tensor_active=0.1, dram_active=0.75))
    assert (found.verdict, found.others) == ("bandwidth_bound", ["compute_bound"])
    changes = [dict(remedy["changes"]) for remedy in found.remedies]
    assert changes == [{"precision.policy": "mixed_bfloat16"}, {"compile.xla": True}, {}]
    computes = diagnose(gpu(sm_active=0.9, tensor_active=0.6, dram_active=0.75))
    assert "bandwidth_bound" not in (computes.verdict, *computes.others)


def test_idle_tensor_cores_are_named_only_where_another_precision_would_use_them() -> None:
    found = diagnose(gpu(sm_active=0.9, tensor_active=0.01))
    assert found.sentence == "Compute-bound: the tensor cores work 1 % of the time, and 16 bits would use them"
    mixed = diagnose(gpu({"precision.policy": "mixed_bfloat16"}, sm_active=0.9, tensor_active=0.01))
    assert "tensor_active" not in [row["signal"] for row in mixed.evidence if row["threshold"] is not None]


def test_where_the_driver_tells_no_utilization_the_multiprocessors_decide() -> None:
    for active, verdicts in (
        (0.85, ["compute_bound"]),
        (0.6, ["compute_bound", "python_overhead"]),
        (0.3, ["underfilled", "python_overhead"]),
    ):
        found = diagnose(gpu(busy_mean=None, busy_p5=None, busy_p95=None, sm_active=active, python_share=0.05,
                             compute_share=0.94))  # fmt: skip
        assert [found.verdict, *found.others] == verdicts, active


def test_what_is_the_hosts_view_alone_is_said_so_and_is_less_sure() -> None:
    def unseen(python: float) -> Diagnosis:
        return diagnose(gpu(busy_mean=None, busy_p5=None, busy_p95=None, python_share=python, compute_share=1 - python))

    for python, verdict, others in ((0.1, "compute_bound", []), (0.2, "python_overhead", ["compute_bound"])):
        found = unseen(python)
        assert (found.verdict, found.others) == (verdict, others)
        assert any("measured on the host alone" in str(row["text"]) for row in found.evidence)
        assert found.confidence <= 0.5
    seen = diagnose(gpu())
    assert not any("measured on the host alone" in str(row["text"]) for row in seen.evidence)
    assert seen.confidence > 0.5


def test_of_lost_time_the_most_decides_and_the_rest_is_named() -> None:
    found = diagnose(measured(input_wait=0.3, python_share=0.5, compute_share=0.2))
    assert found.verdict == "python_overhead"
    assert found.others == ["input_bound"]


def test_the_slowest_stage_is_named_with_its_time() -> None:
    found = diagnose(measured(**waits(0.6), stages=STAGES, buffer_fill=0.0, trainer_cores=1.1))
    assert "load" in found.sentence
    stage = next(row for row in found.evidence if row["signal"] == "stage")
    assert stage["value"] == 40.0
    assert "load" in stage["text"]


def test_the_slowest_stage_is_the_one_that_the_others_wait_for() -> None:
    found = diagnose(measured({"input.cache": "off"}, **waits(0.6), stages=PARALLEL))
    assert "mostly in load" in found.sentence
    cache = next(remedy for remedy in found.remedies if remedy["changes"] == {"input.cache": "memory"})
    assert cache["expected_gain"] == 2.5


def test_the_table_of_stages_marks_the_same_stage(capsys: pytest.CaptureFixture[str]) -> None:
    show_stages([*PARALLEL, {"name": "batch", "op": "BatchV2", "ms_per_batch": None}])
    marked = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.rstrip().endswith("slowest")]
    assert marked == ["load"]
    show_stages([{"name": name, "op": name, "ms_per_batch": None} for name in ("map", "batch")])
    assert "slowest" not in capsys.readouterr().out, "no stage was measured"


def test_confidence_grows_with_time_and_by_a_second_way_that_agrees() -> None:
    early, late = (diagnose(measured(**waits(0.6), seconds=seconds)).confidence for seconds in (3.0, 20.0))
    confirmed, contradicted = (diagnose(measured(**waits(0.5), ablation=share)).confidence for share in (0.52, 0.1))
    assert early < late
    assert contradicted < diagnose(measured(**waits(0.5))).confidence < confirmed


@pytest.mark.parametrize(
    ("rule", "applies", "not_yet"),
    [
        # Where the GPU's utilization is unknown it may hide Python's time, so that only a large share counts.
        ("python_share", gpu(busy_mean=None, python_share=0.15), gpu(busy_mean=None, python_share=0.149)),
        ("python_share", gpu(busy_mean=0.85, python_share=0.04), gpu(busy_mean=0.97, python_share=0.04)),
        # Copies ahead of the steps take no time from them until they take all of it.
        ("transfer", gpu(transfer=0.9, device_batches=2), gpu(transfer=0.89, device_batches=2)),
        ("transfer", gpu(transfer=0.06), gpu(transfer=0.06, device_batches=1)),
        ("pauses", measured(pauses=0.2, pauses_counted=2), measured(pauses=0.2, pauses_counted=1)),
        (
            "pauses",
            measured(pauses=0.2, pauses_counted=1, seconds=50.0),
            measured(pauses=0.2, pauses_counted=1, seconds=49.0),
        ),
        ("uneven", measured(uneven=4.0, windows=200), measured(uneven=4.0, windows=199)),
        ("uneven", measured(uneven=4.0, input_wait=0.049), measured(uneven=4.0, input_wait=0.05)),
        (
            "uneven",
            measured(uneven=4.0, cpu=0.95, others_cpu=0.0),
            measured(uneven=4.0, cpu=0.95, others_cpu=0.5),
        ),
        ("busy_gap", gpu(gpus=2, busy_gap=0.6), gpu(gpus=1, busy_gap=0.6)),
        ("clock_gap", gpu(gpus=2, clock_gap=0.3), gpu(gpus=1, clock_gap=0.3)),
        ("busy_p5", gpu(busy_p5=0.05, busy_p95=0.7), gpu(busy_p5=0.05, busy_p95=0.69)),
        ("busy_mean", gpu(busy_mean=0.3), measured(busy_mean=0.3)),
        ("sm_active", gpu(sm_active=0.3), gpu(sm_active=0.3, busy_mean=0.3)),
        ("dram_active", gpu(dram_active=0.7, tensor_active=0.49), gpu(dram_active=0.7, tensor_active=0.5)),
        ("dram_active", gpu(dram_active=0.7), gpu(dram_active=0.7, busy_mean=0.3)),
        ("tensor_active", gpu(tensor_active=0.01), gpu(tensor_active=0.01, busy_mean=0.3)),
        ("tensor_active", gpu(tensor_active=0.01), gpu({"precision.policy": "mixed_bfloat16"}, tensor_active=0.01)),
        ("compute_share", gpu(), gpu(busy_mean=0.3)),
        ("io_wait", measured(io_wait=0.6), measured(io_wait=0.6, read_bytes_per_second=0.0)),
    ],
)
def test_a_rule_counts_only_if_its_figure_can_mean_what_it_says(
    rule: str, applies: Measurements, not_yet: Measurements
) -> None:
    assert rule in [found.rule.measurement for found in findings(applies)]
    assert rule not in [found.rule.measurement for found in findings(not_yet)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.verdict}-{rule.measurement}")
def test_a_figure_at_the_threshold_counts_unless_it_is_to_be_below(rule: Any) -> None:
    assert rule.passes(rule.notable, rule.notable) is not rule.below
    assert rule.passes(rule.notable - 1e-6, rule.notable) is rule.below


@pytest.mark.parametrize(
    ("ms", "step_ms", "share"), [(10.0, 50.0, 0.2), (80.0, 50.0, 1.0), (0.0, 50.0, None), (10.0, None, None)]
)
def test_the_exchange_between_workers_is_a_share_of_the_step(
    ms: float, step_ms: float | None, share: float | None
) -> None:
    workers = [{"host": "h0"}, {"host": "h1"}, {"host": "h0"}]
    begun = recalled({"t": 1.0, "type": "started", "workers": workers})
    assert isinstance(begun, Started)
    timed = GradientExchange(ms=ms, bytes=20_000_000, step=9)
    figures = stragglers.figures(timed, begun, step_ms)
    if share is None:
        assert figures == {}
        return
    assert (figures["worker_exchange"], figures["exchange_ms"], figures["hosts"]) == (share, ms, ("h0", "h1"))
    assert figures["exchange_rate"] == ("1.9 GiB/s" if ms == 10.0 else "238 MiB/s")
    assert stragglers.figures(timed, None, step_ms)["hosts"] == ()


@pytest.mark.parametrize(("waits_of", "named"), [((0.10, 0.12, 0.5), True), ((0.1, 0.3), True), ((0.1, 0.19), False)])
def test_a_worker_that_waits_a_tenth_longer_than_the_median_of_the_others_is_named(
    waits_of: tuple[float, ...], named: bool
) -> None:
    readings = [
        WorkerReadings(workers=[{"index": i, "input_wait": wait, "address": f"h{i}:1"}], slowest=None)
        for i, wait in enumerate(waits_of)
        for wait in (wait - 0.05, wait + 0.05)
    ]
    figures = stragglers.worker_figures(readings)
    *others, last = waits_of
    assert figures["worker_gap"] == pytest.approx(last - sum(others) / len(others))
    assert (figures.get("slow_worker"), figures.get("slow_worker_wait")) == (
        (f"worker {len(others)} (h{len(others)}:1)", pytest.approx(last)) if named else (None, None)
    )
