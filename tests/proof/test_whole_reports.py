"""The whole reports of proofs of each kind, and whole comparisons of runs: `__snapshots__` holds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.compare.baseline import LineUp
from gputui.engine.compare.comparison import compare
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.trials.record import Record
from gputui.engine.tune.report.markdown import sections

from tests.support import recorded
from tests.support.recorded_proof import PROOF
from tests.support.recorded_search import write_search
from tests.support.typed import typed

RATE = "train.learning_rate"
BEGAN = {"started_t": 1_790_000_000.0, "seconds": 262.0, "repeats": 3, "measure_seconds": 5.0, "state": "done"}
MACHINE = {"system": "Linux", "processor": "Xeon", "cpus": 8, "memory_bytes": 2**36, "gpus": ["a GPU"] * 2,
           "no_gpu_reason": None, "gputui": "1.0"}  # fmt: skip
KNOWN = BEGAN | {
    "machine": MACHINE,
    "versions": {"tensorflow": "2.21", "keras": "3.15"},
    "id": "p",
    "preset_name": "cnn",
}
PRESET = "description: ''\nnotify:\n  url: https://example.org/secret\ntrain: {epochs: 3}\n"


def row(side: str, repeat: int, speed: float | None, **more: Any) -> dict[str, Any]:
    known = {"side": side, "repeat": repeat, "run": f"{repeat:02}-{side}", "outcome": "ok", "seconds": 9.0}
    return known | {"samples_per_second": speed, "step_ms": speed and 64_000 / speed, "input_wait": 0.1} | more


def of_scaling(copies: bool) -> dict[str, Any]:
    points: list[dict[str, Any]] = []
    for count, speed in ((1, 100.0), (2, 180.0), (4, 240.0)):
        trials = [row(f"c{count}" if copies else str(count), n, speed + n) for n in (1, 2, 3)]
        point = {"replicas": 1 if copies else count, "copies": count if copies else 1, "trials": trials}
        points.append(point | {
            "global_batch_size": 64, "samples_per_second": speed, "step_ms": 640.0 * count, "input_wait": 0.1 * count,
            "speedup": speed / 100, "efficiency": speed / 100 / count, "spread": 0.01, "xla": count == 1,
            "decision": "measured", "changes": {},
        })  # fmt: skip
    points.append({"replicas": 8, "trials": [row("8", 1, None, outcome="oom", error="no room")], "decision": "failed",
                   "why": "oom: no room", "changes": {}})  # fmt: skip
    return {"kind": "scaling", "scaling": {"keep": "per-replica", "points": points, "rounds": 3}}


def of_rate() -> dict[str, Any]:
    trials = [row(side, n, None, loss_at_samples=loss) for n in (2, 3) for side, loss in (("a", 0.5), ("b", 0.25))]
    trials.append(row("a", 4, None, outcome="error", error="weights are not finite"))
    test = {"settings": {}, "before": 0.001, "suggested": 0.01, "reason": "it falls fastest there", "trials": trials,
            "ramp": [row("r", 1, None)], "decision": "better", "why": "lower in 3 of 3 pairs"}  # fmt: skip
    return {"kind": "rate", "rate": test, "changes_kept": {RATE: 0.01}}


def of_sweep() -> dict[str, Any]:
    def trial(number: int, rate: float, value: float | None, **more: Any) -> dict[str, Any]:
        state = "failed" if value is None else "done"
        return {"run": f"s-{number:03}", "changes": {RATE: rate}, "seed": number, "state": state, "value": value,
                "seconds": 60.0 + number, "ended_t": 1.0} | more  # fmt: skip

    trials = [
        trial(1, 0.001, 0.5), trial(2, 0.001, 0.6), trial(3, 0.01, 0.3), trial(4, 0.01, 0.4),
        trial(5, 0.1, None, error="val_loss is not a finite number after the last epoch", cause="nan"),
        trial(6, 0.1, None, state="dropped", rungs=[0.9], error="", on="node2"),
        *(trial(10 + n, rate, 0.3 + n / 10, part="proof") for n, rate in enumerate((0.01, 0.001))),
    ]  # fmt: skip
    settings = {"axes": [{"key": RATE, "values": [0.001, 0.01, 0.1]}], "metric": "val_loss", "seeds": 2, "rungs": [1],
                "minutes": 60.0}  # fmt: skip
    rival = {"changes": {RATE: 0.001}, "differences": [0.1, 0.2, 0.15], "mean": 0.15, "half_width": 0.05,
             "mean_of_rival": 0.45, "decision": "better"}  # fmt: skip
    sweep = {"settings": settings, "trials": trials, "best": {RATE: 0.01}, "winner": {RATE: 0.01}, "searched": 0.35,
             "proved": 0.4, "rivals": [rival], "compared": 3, "seconds_saved": 600.0}  # fmt: skip
    return {"kind": "sweep", "sweep": sweep, "changes_kept": {RATE: 0.01}, "ended_because": "the time was used up"}


def of_change() -> dict[str, Any]:
    trials = [row(side, n, speed) for n in (1, 2, 3) for side, speed in (("a", 100.0 + n), ("b", 150.0))]
    trials[1] |= {"disturbed": "other programs used 50 % of the CPU's cores", "peak_memory_bytes": 2**30}
    made = {"changes": {"compile.xla": True, "input.cache": "memory"}, "trials": trials, "gain": 0.48, "spread": 0.01,
            "decision": "faster", "why": "+48.0 %, spread of the repeats 1.0 %", "reason": "asked for"}  # fmt: skip
    sides = {"before": {"samples_per_second": 102.0, "step_ms": 627.0}, "after": {"samples_per_second": 150.0}}
    return {"kind": "ab", "comparisons": [made], "gain_total": 1.48, "changes_kept": made["changes"], **sides}


def of_input() -> dict[str, Any]:
    trials = [row("a", 1, 100.0), row("b", 1, 500.0), row("b", 2, None, outcome="oom", error="no room")]
    stages = [{"name": "load", "op": "Map", "ms_per_batch": 12.3, "parallelism": 4}, {"name": "batch"}]
    diagnosis = {"verdict": "input_bound", "sentence": "Input-bound: steps wait", "confidence": 0.8, "steps": 200,
                 "evidence": [{"signal": "input_wait", "value": 0.8, "unit": "share", "threshold": 0.2, "text": "waits",
                               "source": "XProf"}],
                 "others": ["low_clocks"],
                 "remedies": [{"changes": {"input.cache": "memory"}, "reason": "again and again", "expected_gain": 4.0},
                              {"changes": {}, "reason": "do less", "changes_learning": True}]}  # fmt: skip
    ablation = {"trials": trials, "input_cost": 0.8, "input_wait": 0.75, "stages": stages}
    return {"kind": "diagnosis", "ablation": ablation, "diagnosis": diagnosis, "repeats": 1}


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "change": of_change, "input": of_input, "rate": of_rate, "sweep": of_sweep, "loop": lambda: PROOF,
    "replicas": lambda: of_scaling(copies=False), "copies": lambda: of_scaling(copies=True),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_report_of_a_proof(kind: str, snapshot: Any) -> None:
    report = as_markdown(typed(Record, KNOWN | {"preset_before": PRESET} | KINDS[kind]()))
    assert "secret" not in report
    assert report == snapshot


def test_the_whole_report_of_a_search(home: Path, snapshot: Any) -> None:
    record = write_search(home).record
    assert as_markdown(record, sections(record)) == snapshot


def test_the_whole_comparison_of_runs(home: Path, snapshot: Any) -> None:
    """Repeats with two seeds, another batch size, a run that goes on, and one whose result is damaged."""
    given: list[tuple[str, dict[str, Any]]] = [
        ("a", {"settings": ("train.seed=1",)}),
        ("b", {"settings": ("train.seed=2",), "samples_per_second": 1020.0}),
        ("c", {"settings": ("input.batch_size=128", "compile.xla=true")}),
        ("d", {"outcome": None}),
        ("e", {"outcome": "oom", "gpus": 0}),
    ]
    runs = [recorded.write(home, name=f"20260921-11000{n}-{name}", seconds=30, **{"gpus": 1} | settings)
            for n, (name, settings) in enumerate(given)]  # fmt: skip
    runs[4].file("result.json").write_text("{")
    plain = compare(LineUp(tuple(runs), "given", "the pinned baseline is lost")).as_dict()
    rows = [f"{name}: {json.dumps(_rounded(each))}" for name, value in plain.items()
            for each in (value if isinstance(value, tuple | list) else [value])]  # fmt: skip
    assert "\n".join(rows) == snapshot


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(each) for each in value]
    return round(value, 6) if isinstance(value, float) else value


def test_a_text_with_a_bar_or_several_lines_breaks_no_cell_and_no_line() -> None:
    """Names and messages are those of users, of their code and of TensorFlow."""
    text = "a|b\nc"
    trials = [row("a", 1, None, outcome="error", error=text), row("b", 1, 100.0, disturbed=text)]
    evidence = {"signal": "input_wait", "value": 0.8, "unit": "share", "threshold": 0.2, "text": text, "source": text}
    diagnosis = {"verdict": "input_bound", "sentence": text, "confidence": 0.8, "steps": 200, "evidence": [evidence],
                 "others": [], "remedies": [{"changes": {}, "reason": text}]}  # fmt: skip
    compared = {"changes": {RATE: 0.1}, "reason": text, "why": text, "decision": "failed", "trials": trials,
                "learning": {"note": text}}  # fmt: skip
    ablation = {"trials": trials, "why": text, "stages": [{"name": text, "op": text}]}
    data = KNOWN | {
        "kind": "loop", "preset_name": text, "preset_before": PRESET, "diagnosis": diagnosis, "comparisons": [compared],
        "ablation": ablation, "profile_trial": trials[0] | {"side": "p"}, "profile_missing": text,
        "ended_because": text, "final_verdict": {"verdict": "healthy", "sentence": text},
    }  # fmt: skip
    report = as_markdown(typed(Record, data))
    assert "a|b" not in report
    assert "b\nc" not in report
    assert report.startswith("# Faster, one change at a time: a\\|b c\n\n**")
    assert report.count("a\\|b c") == 18
