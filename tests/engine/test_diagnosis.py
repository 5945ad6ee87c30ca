"""The verdicts of a diagnosis and their limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.doors.engine import (
    RULES,
    SUPPORTING,
    VERDICTS,
    Collector,
    Diagnosis,
    Gpu,
    GradientExchange,
    Measurements,
    Started,
    WorkerReadings,
    diagnose,
    recalled,
    stragglers,
    symptoms,
)
from tests.support.judged import STAGES, gpu, measured, waits

OWN = {"workload.entry": "mine.py:build"}
CASES: tuple[tuple[str, Measurements], ...] = (
    ("input_bound", measured(**waits(0.6))),
    ("input_bound", measured(input_wait=None, compute_share=None, ablation=0.5)), ("transfer_bound", gpu(transfer=0.4)),
    ("transfer_bound", gpu(transfer=0.95, device_batches=2, input_wait=0.6, compute_share=0.3)),
    ("python_overhead", measured(python_share=0.4, compute_share=0.59)), ("stalls", measured(pauses=0.5)),
    ("retracing", measured(traces=30, python_share=0.5, compute_share=0.49)),
    ("throttled", gpu(throttled=0.6, throttle=("hardware thermal",))),
    ("memory_growing", measured(host_memory_growth=0.2)), ("imbalance", gpu(gpus=2, busy_gap=0.7, busy_mean=0.6)),
    ("slow_worker", gpu(worker_gap=0.4, slow_worker="worker 1 (h1:1)", slow_worker_wait=0.42)),
    ("underfilled", gpu(busy_mean=0.3, busy_p95=0.4)),
    ("memory_limit", gpu({"precision.policy": "mixed_bfloat16", "compile.xla": True}, memory_peak=0.99)),
    ("communication_bound", gpu(gpus=4, communication=0.3)),
    ("communication_bound", gpu(gpus=4, worker_exchange=0.421, exchange_ms=12.0)),
    ("low_clocks", gpu(clock_share=0.3, sm_clock_mhz=600.0, max_sm_clock_mhz=1980.0)),
    ("bandwidth_bound", gpu(sm_active=0.9, tensor_active=0.1, dram_active=0.75)),
    ("compute_bound", gpu(sm_active=0.9, tensor_active=0.01, dram_active=0.2)), ("compute_bound", gpu()),
    ("healthy", gpu({"precision.policy": "mixed_bfloat16", "compile.xla": True})), ("undecided", measured(steps=5)),
    ("undecided", measured({"train.deterministic": True}, input_wait=None, python_share=None, compute_share=None)),
)  # fmt: skip


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


def test_every_verdict_of_the_table_has_a_case_and_words() -> None:
    verdicts = {rule.verdict for rule in RULES}
    assert verdicts <= {verdict for verdict, _ in CASES}, "figures that lead to a new verdict are entered in CASES"
    assert verdicts <= set(VERDICTS)


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
        ([(2.3, 0.1), (1.9, 0.3), (1.2, 0.6)], {}, ""),
        ([(2.31, 0.1), (2.3, 0.1), (2.31, 0.1)], {"workload.data": "synthetic", "workload.classes": 10}, ""),
        ([(210.0, None), (180.0, None), (90.0, None)], OWN, ""),
    ],
)  # fmt: skip
def test_a_training_that_has_diverged_or_learns_nothing_is_named_by_its_figures(
    epochs: list[tuple[float, float | None]], options: dict[str, Any], said: str
) -> None:
    for steps, sentence in ((50, said), (10, said * said.startswith("Diverged"))):  # too few have not learnt yet
        collector = Collector({"workload.data": "digits", "workload.entry": None} | options)
        collector.feed(
            recalled({"t": 100.0 + number, "type": "epoch", "epoch": number, "step": steps * number,
                      "metrics": {"loss": loss, "accuracy": accuracy}})
            for number, (loss, accuracy) in enumerate(epochs, 1)
        )  # fmt: skip
        assert diagnose(collector.measurements()).learning == sentence


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
    parallel = [stage | {"parallelism": 200.0} if stage["name"] == "load" else stage for stage in STAGES]
    assert "load" not in diagnose(measured(**waits(0.6), stages=parallel)).sentence, "200 of its calls run at a time"


@pytest.mark.parametrize(
    ("rule", "applies", "not_yet"),
    [
        ("python_share", gpu(busy_mean=None, python_share=0.15), gpu(busy_mean=None, python_share=0.149)),
        ("transfer", gpu(transfer=0.9, device_batches=2), gpu(transfer=0.89, device_batches=2)),
        ("pauses", measured(pauses=0.2, pauses_counted=2), measured(pauses=0.2, pauses_counted=1)),
        ("uneven", measured(uneven=4.0, windows=200), measured(uneven=4.0, windows=199)),
        ("busy_gap", gpu(gpus=2, busy_gap=0.6), gpu(gpus=1, busy_gap=0.6)),
        ("clock_gap", gpu(gpus=2, clock_gap=0.3), gpu(gpus=1, clock_gap=0.3)),
        ("busy_p5", gpu(busy_p5=0.05, busy_p95=0.7), gpu(busy_p5=0.05, busy_p95=0.69)),
        ("busy_mean", gpu(busy_mean=0.3), measured(busy_mean=0.3)),
        ("sm_active", gpu(sm_active=0.3), gpu(sm_active=0.3, busy_mean=0.3)),
        ("dram_active", gpu(dram_active=0.7, tensor_active=0.49), gpu(dram_active=0.7, tensor_active=0.5)),
        ("tensor_active", gpu(tensor_active=0.01), gpu({"precision.policy": "mixed_bfloat16"}, tensor_active=0.01)),
        ("compute_share", gpu(), gpu(busy_mean=0.3)),
        ("io_wait", measured(io_wait=0.6), measured(io_wait=0.6, read_bytes_per_second=0.0)),
    ],
)
def test_a_rule_counts_only_if_its_figure_can_mean_what_it_says(
    rule: str, applies: Measurements, not_yet: Measurements
) -> None:
    assert rule in [found.rule.measurement for found in symptoms(applies)]
    assert rule not in [found.rule.measurement for found in symptoms(not_yet)]


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


# ---- the GPU and the worker that the others wait for -------------------------------------------------


def readings(busy: float, clock: float | None = None, count: int = 5, **more: Any) -> list[dict[str, Any]]:
    return [{"busy": busy, "sm_clock_mhz": clock, **more}] * count


@pytest.mark.parametrize(
    ("first", "second", "slow"),
    [
        (readings(0.75), readings(0.5), 0), (readings(0.625), readings(0.5), None),
        (readings(0.9, 899.0), readings(0.9, 1000.0), 0), (readings(0.9, 901.0), readings(0.9, 1000.0), None),
        (readings(0.5, 500.0), readings(0.9, 1000.0), 0), (readings(0.49, 500.0), readings(0.9, 1000.0), 1),
    ],
)  # fmt: skip
def test_the_slow_gpu_is_that_of_the_low_clock_or_else_the_busiest(first: Any, second: Any, slow: int | None) -> None:
    gpus = [[Gpu(index, **reading) for reading in of] for index, of in enumerate((first, second))]
    assert stragglers.gpu_figures(gpus).get("slow_gpu") == slow
    elsewhere = [[replace(gpu, index=7 - gpu.index) for gpu in of] for of in gpus]
    assert stragglers.gpu_figures(elsewhere).get("slow_gpu") == (None if slow is None else 7 - slow), "not its place"


@pytest.mark.parametrize(("hot", "named"), [(2, True), (1, False)])
def test_a_cause_is_what_the_slow_gpu_has_in_a_tenth_more_of_its_readings(hot: int, named: bool) -> None:
    """The other GPU is hot in a tenth of its readings."""

    def of(often: int, clock: float) -> list[Gpu]:
        throttle = [("hardware thermal",)] * often + [()] * (10 - often)
        return [Gpu(busy=0.9, sm_clock_mhz=clock, throttle=each) for each in throttle]

    causes = stragglers.gpu_figures([of(1, 1000.0), of(hot, 500.0)])["slow_gpu_causes"]
    assert causes == (("it is slowed down in 20 % of its readings (hardware thermal)",) if named else ())


# ---- verdicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "confidence"),
    [
        ({"input_wait": 0.4}, 0.9), ({"input_wait": 0.225}, 0.72), ({"input_wait": 0.4, "seconds": 5.0}, 0.68),
        ({"input_wait": 0.4, "outcome": "ok", "steps": 100}, 0.68), ({"input_wait": 0.4, "cpu": 0.9}, 0.99),
        ({"input_wait": 0.4, "ablation": 0.51}, 0.45),
        ({"input_wait": 0.0, "compute_share": 0.5, "python_share": 0.02}, 0.3),
    ],
)  # fmt: skip
def test_the_confidence_of_a_verdict(figures: dict[str, Any], confidence: float) -> None:
    assert diagnose(measured({"compile.xla": True}, **{"compute_share": 0.5} | figures)).confidence == confidence


def test_in_a_short_run_only_findings_that_decide_count_and_no_limit_beside_a_faint_loss() -> None:
    """Within a second, 10 % of waiting may be chance."""
    short: dict[str, Any] = {"seconds": 1.0, "outcome": "ok"}
    assert diagnose(measured(cpu_bfloat16=True, **waits(0.1), **short)).verdict == "undecided"
    assert diagnose(measured(cpu_bfloat16=True, **short)).verdict == "compute_bound"
    both = diagnose(measured(cpu_bfloat16=True, input_wait=0.1, python_share=0.2, compute_share=0.9, **short))
    assert (both.verdict, both.others) == ("python_overhead", [])
    idle = {"compile.xla": True, "precision.policy": "mixed_bfloat16"}
    assert diagnose(gpu(idle, busy_mean=0.69, compute_share=0.9)).verdict == "underfilled"
    assert diagnose(measured(idle, input_wait=0.1, compute_share=0.85, **short)).verdict == "undecided"
