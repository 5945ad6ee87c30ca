"""The verdict on figures of every kind, and what is told of it; the figures of real trainings are in test_cases.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from gputui.engine import signals as signal_files
from gputui.engine.diagnosis import RULES, WORDS, diagnose
from gputui.engine.events import Diagnosis
from gputui.engine.presets import defaults
from gputui.engine.remedies import ORDER, remedies
from gputui.engine.signals import Collector, Signals

OPTIONS = {
    f"{group}.{name}": value
    for group, values in defaults([]).options.model_dump(mode="json").items()
    for name, value in values.items()
}
STAGES = (
    {"name": "read", "op": "Range", "ms_per_batch": 0.1},
    {"name": "load", "op": "Map", "ms_per_batch": 40.0},
    {"name": "batch", "op": "BatchV2", "ms_per_batch": 0.4},
)


def signals(changes: Mapping[str, Any] = {}, **figures: Any) -> Signals:
    """A training that computes 97 % of the time, with these figures instead."""
    known: dict[str, Any] = {
        "options": OPTIONS | dict(changes),
        "cpus": 4,
        "train_samples": 4096,
        "sample_bytes": 4 * 32 * 32 * 3,
        "global_batch_size": 64,
        "steps_per_epoch": 64,
        "steps": 400,
        "seconds": 20.0,
        "step_ms": 50.0,
        "uneven": 1.2,
        "input_wait": 0.01,
        "python_share": 0.02,
        "compute_share": 0.97,
        "host_memory_free_bytes": 10**10,
    }
    return Signals(**known | figures)


def gpu(changes: Mapping[str, Any] = {}, **figures: Any) -> Signals:
    """The same on a GPU that is busy."""
    known: dict[str, Any] = {"on_gpu": True, "gpus": 1, "compute_capability": (9, 0), "busy_mean": 0.97}
    known |= {"busy_p5": 0.9, "busy_p95": 1.0, "memory_peak": 0.3}
    return signals(changes, **known | figures)


def waits(share: float, **more: Any) -> dict[str, Any]:
    return {"input_wait": share, "compute_share": 1 - share - 0.02} | more


CASES: tuple[tuple[str, Signals], ...] = (
    ("input_bound", signals(**waits(0.6))),
    ("input_bound", gpu(**waits(0.25, busy_mean=0.6))),
    ("input_bound", signals(input_wait=None, compute_share=None, ablation=0.5)),
    ("python_overhead", signals(python_share=0.4, compute_share=0.59)),
    ("python_overhead", gpu(python_share=0.4, compute_share=0.59, busy_mean=0.3, busy_p95=0.4)),
    ("stalls", signals(pauses=0.5)),
    ("stalls", gpu({"precision.policy": "mixed_bfloat16", "compile.xla": True}, busy_p5=0.02, busy_mean=0.8)),
    ("retracing", signals(traces=30, python_share=0.5, compute_share=0.49)),
    ("throttled", gpu(throttled=0.6, throttle=("hardware thermal",))),
    ("memory_growing", signals(memory_growth=0.2)),
    ("imbalance", gpu(gpus=2, busy_gap=0.7, busy_mean=0.6)),
    ("underfilled", gpu(busy_mean=0.3, busy_p95=0.4)),
    ("memory_limit", gpu({"precision.policy": "mixed_bfloat16", "compile.xla": True}, memory_peak=0.99)),
    ("communication_bound", gpu(gpus=4, communication=0.3)),
    ("compute_bound", signals(cpu_bfloat16=True)),
    ("compute_bound", gpu()),
    ("healthy", gpu({"precision.policy": "mixed_bfloat16", "compile.xla": True})),
    ("healthy", signals({"compile.xla": True})),
    ("undecided", signals(steps=5)),
    ("undecided", signals({"train.deterministic": True}, input_wait=None, python_share=None, compute_share=None)),
)


@pytest.mark.parametrize(("verdict", "known"), CASES, ids=[f"{i}-{verdict}" for i, (verdict, _) in enumerate(CASES)])
def test_each_verdict_from_its_figures(verdict: str, known: Signals) -> None:
    found = diagnose(known)
    assert found.verdict == verdict, found
    assert found.sentence.startswith(WORDS[verdict])
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
    assert verdicts <= {verdict for verdict, _ in CASES}
    assert verdicts <= set(WORDS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.verdict}-{rule.signal}")
def test_each_rule_counts_at_its_threshold_and_not_before(rule: Any) -> None:
    just = -1e-6 if rule.below else 1e-6
    base = gpu(gpus=2, busy_p95=0.95) if rule.signal in ("busy_gap", "busy_p5") else signals(cpu_bfloat16=True)
    base = replace(base, on_gpu=rule.signal in ("busy_mean", "busy_p5", "busy_gap"), input_wait=0.0, compute_share=0.5)
    counts = replace(base, **{rule.signal: rule.notable + just})
    not_yet = replace(base, **{rule.signal: rule.notable - just})

    def named(known: Signals) -> list[str]:
        found = diagnose(known)
        return [found.verdict, *found.others]

    assert rule.verdict in named(counts)
    assert rule.verdict not in named(not_yet)


def test_a_busy_gpu_loses_nothing_while_the_host_is_in_python() -> None:
    found = diagnose(gpu(python_share=0.5, compute_share=0.49, busy_mean=0.98))
    assert "python_overhead" not in (found.verdict, *found.others)


def test_of_lost_time_the_most_decides_and_the_rest_is_named() -> None:
    found = diagnose(signals(input_wait=0.3, python_share=0.5, compute_share=0.2))
    assert found.verdict == "python_overhead"
    assert found.others == ["input_bound"]


def test_the_slowest_stage_is_named_with_its_time() -> None:
    found = diagnose(signals(**waits(0.6), stages=STAGES, buffer_fill=0.0, trainer_cores=1.1))
    assert "load" in found.sentence
    stage = next(row for row in found.evidence if row["signal"] == "stage")
    assert stage["value"] == 40.0
    assert "load" in stage["text"]


def test_confidence_grows_with_time_and_by_a_second_way_that_agrees() -> None:
    early, late = (diagnose(signals(**waits(0.6), seconds=seconds)).confidence for seconds in (3.0, 20.0))
    confirmed, contradicted = (diagnose(signals(**waits(0.5), ablation=share)).confidence for share in (0.52, 0.1))
    assert early < late
    assert contradicted < diagnose(signals(**waits(0.5))).confidence < confirmed


def _changes(found: Diagnosis) -> list[dict[str, Any]]:
    return [dict(remedy["changes"]) for remedy in found.remedies if remedy["changes"]]


def test_remedies_of_an_input_that_does_nothing_ahead() -> None:
    changes = {"input.cache": "off", "input.parallel_calls": "off", "input.prefetch": "off"}
    found = diagnose(signals(changes, **waits(0.6), stages=STAGES))
    assert _changes(found) == [{"input.cache": "memory"}, {"input.parallel_calls": "auto"}, {"input.prefetch": "auto"}]
    cache, parallel, prefetch = (remedy["expected_gain"] for remedy in found.remedies)
    assert cache == pytest.approx(1 / (1 - 0.6 * 40.1 / 40.5), abs=0.01)
    assert parallel == pytest.approx(1 / (1 - 0.6 * 40.0 / 40.5 * 3 / 4), abs=0.01)
    assert prefetch == pytest.approx(1 / (1 - 0.4), abs=0.01)


def test_no_remedy_for_what_is_in_use_or_cannot_help() -> None:
    changes = {"input.cache": "memory", "input.parallel_calls": "auto", "input.prefetch": "auto"}
    assert _changes(diagnose(signals(changes, **waits(0.6), stages=STAGES))) == []
    once = diagnose(signals({"train.epochs": 1, "input.cache": "off"}, **waits(0.6), stages=STAGES))
    assert {"input.cache": "memory"} not in _changes(once)


def test_a_cache_that_does_not_fit_is_advice() -> None:
    found = diagnose(signals({"input.cache": "off"}, **waits(0.6), stages=STAGES, host_memory_free_bytes=10**7))
    assert {"input.cache": "memory"} not in _changes(found)
    assert any(not remedy["changes"] and "do not fit" in remedy["reason"] for remedy in found.remedies)


def test_precision_follows_what_the_device_is_made_for() -> None:
    def policies(known: Signals) -> list[Any]:
        return [change["precision.policy"] for change in _changes(diagnose(known)) if "precision.policy" in change]

    assert policies(gpu()) == ["mixed_bfloat16"]
    assert policies(gpu(compute_capability=(7, 5))) == ["mixed_float16"]
    assert policies(gpu(compute_capability=(6, 1))) == []
    assert policies(signals(cpu_bfloat16=True)) == ["mixed_bfloat16"]
    assert policies(signals()) == []


def test_larger_batches_only_where_memory_and_data_allow() -> None:
    low: dict[str, Any] = {"busy_mean": 0.3, "busy_p95": 0.4}
    assert {"input.batch_size": 128} in _changes(diagnose(gpu(**low)))
    assert {"input.batch_size": 128} not in _changes(diagnose(gpu(**low, memory_peak=0.6)))
    assert {"input.batch_size": 128} not in _changes(diagnose(gpu(**low, train_samples=100)))


def test_remedies_come_in_the_order_of_the_guide_and_each_once() -> None:
    found = remedies(gpu({"input.prefetch": "off"}, idle_gpus=3), ["compute_bound", "underfilled", "input_bound"])
    steps = [ORDER.index(remedy.step) for remedy in found]
    assert steps == sorted(steps)
    changes = [json.dumps(dict(remedy.changes)) for remedy in found if remedy.changes]
    assert len(changes) == len(set(changes)) >= 5


# ---- from events to signals -------------------------------------------------------------------


def _fed(*events: dict[str, Any], options: Mapping[str, Any] = OPTIONS) -> Signals:
    collector = Collector(options)
    collector.feed({"t": float(i)} | event for i, event in enumerate(events))
    return collector.signals()


def _progress(step: int, **more: Any) -> dict[str, Any]:
    return {"type": "progress", "step": step, "step_ms_p50": 10.0, "step_ms_p95": 12.0} | more


def test_signals_of_a_run_that_goes_on_are_of_its_last_moments() -> None:
    old = [_progress(step, input_wait=0.9) for step in range(30)]
    new = [_progress(30 + step, input_wait=0.2, python_share=0.1) for step in range(signal_files.RECENT)]
    found = _fed({"type": "phase", "phase": "training"}, *old, *new)
    assert found.input_wait == pytest.approx(0.2)
    assert found.compute_share == pytest.approx(0.7)
    assert found.uneven == pytest.approx(1.2)


def test_signals_of_a_finished_run_are_of_the_whole() -> None:
    summary = {"input_wait": 0.5, "python_share": 0.1, "measured_steps": 77, "step_ms": {"p50": 20.0, "p95": 30.0}}
    found = _fed(_progress(1, input_wait=0.1), {"type": "finished", "summary": summary | {"outcome": "ok"}})
    assert (found.input_wait, found.steps, found.step_ms) == (0.5, 77, 20.0)


def test_evaluation_and_checkpoints_are_pauses() -> None:
    found = _fed(
        *({"t": t, "type": "phase", "phase": name} for t, name in ((0, "training"), (6, "evaluating"), (9, "saving"))),
        {"t": 10.0, "type": "phase", "phase": "training"},
        {"t": 20.0} | _progress(5),
    )
    assert found.pauses == pytest.approx(4 / 20)


def test_only_the_gpus_of_the_run_count_and_only_while_it_trains() -> None:
    def reading(mine: float, **more: Any) -> dict[str, Any]:
        gpus = [{"uuid": "GPU-a", "busy": mine, "memory_total_bytes": 100} | more, {"uuid": "GPU-b", "busy": 0.0}]
        return {"type": "gpu", "gpus": gpus}

    started = {"type": "started", "gpus": ["GPU-a"], "devices": ["/device:GPU:0"]}
    training = {"type": "phase", "phase": "training"}
    throttled = [reading(0.8, throttle=["hardware thermal", "power cap"])] * 5
    allocator = {"type": "allocator", "devices": {"GPU:0": {"current_bytes": 50, "peak_bytes": 95}}}
    found = _fed(started, reading(0.0), training, *[reading(0.8)] * 15, *throttled, allocator)
    assert found.on_gpu
    assert found.gpus == 1
    assert found.idle_gpus == 1
    assert found.busy_mean == pytest.approx(0.8)
    assert found.throttled == pytest.approx(0.25)
    assert found.throttle == ("hardware thermal",)
    assert found.memory_peak == pytest.approx(0.95)


def test_memory_that_grows_after_the_first_epoch_counts() -> None:
    def host(share: float) -> dict[str, Any]:
        return {"type": "host", "trainer_bytes": share * 1000, "memory_total_bytes": 1000, "memory_used_bytes": 500}

    training, epoch = {"type": "phase", "phase": "training"}, {"type": "epoch", "epoch": 1}
    filling = [host(0.1 + i / 100) for i in range(30)]
    assert _fed(training, *filling).memory_growth == pytest.approx(0.2)
    assert _fed(training, *filling, epoch, *[host(0.4)] * 40).memory_growth == pytest.approx(0.0)


def test_unknown_and_missing_figures_are_none_and_no_error() -> None:
    gpu_event: dict[str, Any] = {"type": "gpu", "gpus": [None, {"uuid": 5}]}
    others = [{"type": name} for name in ("host", "progress", "what")]
    found = _fed({"type": "phase", "phase": "training"}, gpu_event, *others, options={})
    assert found.step_ms is None
    assert found.cpu is None
    assert found.busy_mean is None
    assert diagnose(found).verdict == "undecided"
