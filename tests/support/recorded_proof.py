"""Proofs, and searches for the fastest settings, as their processes leave them: for the screens that show them."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from tests.doors.engine import UNREAD, Process, Proof, Record, presets, steady
from tests.doors.engine import identity_Place as Place
from tests.doors.engine import typed as typed_files
from tests.support import recorded
from tests.support.recorded import DIAGNOSIS, GIB, HEALTHY

UNKNOWN = dict.fromkeys((
    "python_share", "first_step_memory_bytes", "gpu_power_mean_w", "sm_clock_mean_mhz", "slowed_by_power",
    "slowed_by_heat", "sample_energy_j", "sample_energy_estimated_j", "loss_at_samples", "peak_process_bytes",
    "peak_address_space_bytes",
))  # fmt: skip


def trials(*speeds: tuple[str, float | None], first: int = 1, outcome: str = "ok") -> list[dict[str, Any]]:
    """Pairs of trials from (side, samples a second); None stands for one that ended with `outcome`."""
    rows = []
    for number, (side, speed) in enumerate(speeds):
        row: dict[str, Any] = {
            "side": side, "repeat": number // 2 + 1, "run": f"{first + number:02}-{side}", "seconds": 12.4,
            "samples_per_second": speed, "gpu_speed": 1.0, "disturbed": "", "key": "", "replicas": 1,
            "global_batch_size": 64,
        }  # fmt: skip
        if speed is None:
            known = dict.fromkeys(("step_ms", "input_wait", "peak_memory_bytes", "gpu_busy_mean"))
            row |= {"outcome": outcome, "error": "out of memory at batch size 256: \x1b[2Jkilled"} | known
        else:
            row |= {"outcome": "ok", "error": None, "step_ms": 64_000 / speed, "input_wait": 0.62}
            row |= {"peak_memory_bytes": int(1.4 * GIB), "gpu_busy_mean": 0.31}
        rows.append(UNKNOWN | row)
    return rows


def six(first: int, *speeds: float) -> list[dict[str, Any]]:
    return trials(*zip("abbaab", speeds, strict=True), first=first)


def comparison(changes: dict[str, Any], reason: str, expected: float | None, step: str, before: str,
               rows: list[dict[str, Any]], gain: float | None, spread: float | None, decision: str,
               why: str, **more: Any) -> dict[str, Any]:  # fmt: skip
    return {
        "changes": changes, "reason": reason, "expected_gain": expected, "step": step, "verdict_before": before,
        "trials": rows, "gain": gain, "spread": spread, "decision": decision, "why": why, "learning": None,
    } | more  # fmt: skip


LEARNING = {"note": "the batch size changes what is learnt", "samples": 4096, "loss_a": 0.61, "loss_b": 0.72}
COMPARISONS = [
    comparison({"input.cache": "memory"}, "read once", 3.9, "input", "input_bound",
               six(1, 411.0, 1466.0, 1502.0, 414.0, 412.0, 1471.0),
               2.57, 0.037, "kept", "+257.0 %, spread of the repeats 3.7 %"),
    comparison({"compile.xla": True}, "joins operations", None, "xla", "compute_bound",
               six(7, 1480.0, 1302.0, 1466.0, 1491.0, 1475.0, 1331.0),
               -0.098, 0.021, "rejected", "-9.8 %, spread of the repeats 2.1 %"),
    comparison({"input.batch_size": 256}, "fills the device", 1.3, "device", "compute_bound",
               trials(("a", 1479.0), ("b", None), first=13, outcome="oom"),
               None, None, "failed", "oom: out of memory at batch size 256"),
    comparison({"compile.steps_per_execution": 16}, "less Python", 1.05, "device", "python_overhead",
               six(15, 1477.0, 1533.0, 1536.0, 1482.0, 1479.0, 1529.0),
               0.037, 0.004, "kept", "+3.7 %, spread of the repeats 0.4 %", learning=LEARNING),
]  # fmt: skip
MEANS = ("samples_per_second", "step_ms", "input_wait", "peak_memory_bytes", "gpu_busy_mean")
NONE = ("limit_seconds", "pid", "start_ticks", "host", "boot_id", "pid_namespace", "budget_seconds",
        "budget_most_seconds", "ablation", "profile_trial", "profile", "preset_after", "search", "scaling", "rate",
        "sweep", "error")  # fmt: skip
PROOF: dict[str, Any] = dict.fromkeys(NONE) | {
    "id": "20260921-130000-input-heavy", "kind": "loop", "preset_name": "input-heavy", "repeats": 3,
    "measure_seconds": 5.0, "preset_before": "schema_version: 1\n", "state": "done", "started_t": recorded.BEGAN,
    "started_mark": 0.0, "seconds": 262.0, "doing": "ended", "machine": {}, "versions": {}, "baseline_trials": [],
    "profile_missing": "", "diagnosis": DIAGNOSIS, "comparisons": COMPARISONS,
    "before": dict(zip(MEANS, (412.0, 155.0, 0.62, int(1.4 * GIB), 0.31), strict=True)),
    "after": dict(zip(MEANS, (1533.0, 41.7, 0.03, int(1.5 * GIB), 0.93), strict=True)),
    "gain_total": 3.7, "final_verdict": {"verdict": "healthy", "sentence": HEALTHY["sentence"]}, "advice": [],
    "changes_kept": {"input.cache": "memory", "compile.steps_per_execution": 16}, "earlier": [],
    "ended_because": "no remedy is left",
}  # fmt: skip


def write_proof(home: Path, name: str = PROOF["id"], **changes: Any) -> Proof:
    """A proof folder under `home`; give fields of proof.json by name."""
    return _written(home, copy.deepcopy(PROOF) | {"id": name} | changes)


def _written(home: Path, data: dict[str, Any]) -> Proof:
    settings = [f"{key}={value}" for key, value in (ENDED if data["kind"] == "tune" else PROOF)["changes_kept"].items()]
    proof = Proof(home / "proofs" / data["id"])
    proof.path.mkdir(parents=True)
    (proof.path / "request.json").write_text("{}")
    rewrite(proof, {"preset_after": presets.defaults(settings).to_yaml()} | data)
    return proof


def rewrite(proof: Proof, data: dict[str, Any]) -> None:
    """As the proof's process does it."""
    (proof.path / "proof.json").write_text(json.dumps(data))


def running(**changes: Any) -> dict[str, Any]:
    """Fields of a proof whose process seems to be this one, in the middle of its second comparison."""
    second = copy.deepcopy(COMPARISONS[1]) | {"decision": "running", "gain": None, "spread": None, "why": ""}
    second["trials"] = second["trials"][:3]
    return here() | {
        "budget_seconds": 240.0, "doing": "repeat 2 of 3: without xla=true", "comparisons": [COMPARISONS[0], second],
        "final_verdict": None, "gain_total": 3.57, "changes_kept": {"input.cache": "memory"},
        "after": PROOF["after"] | {"samples_per_second": 1471.0},
    } | changes  # fmt: skip


def here() -> dict[str, Any]:
    """What is written of this process as long as it measures."""
    process = Place.here().as_fields() | Process.of(os.getpid()).as_fields()
    return {"state": "running", "ended_because": ""} | process


# ---- a search -----------------------------------------------------------------------------------

BATCH = {"input.batch_size": 256}
POLICY = {"precision.policy": "mixed_bfloat16"}
CACHE = {"input.cache": "memory"}
THREADS = {"input.private_threads": 8}
KEPT = BATCH | POLICY | CACHE


def candidate(
    stage: str, tried: dict[str, Any], speed: float | None, gain: float | None, **more: Any
) -> dict[str, Any]:
    """A candidate with one trial, whose number is that of `run`."""
    number, outcome = more.pop("run", 1), more.pop("outcome", "oom")
    return {
        "stage": stage, "settings": tried, "tried": tried, "reason": "", "without_input": False,
        "trials": trials(("b", speed), first=number, outcome=outcome), "samples_per_second": speed, "gain": gain,
        "spread": None if gain is None else 0.021, "predicted_bytes": None, "peak_bytes": None,
        "decision": "kept", "why": "",
    } | more  # fmt: skip


CANDIDATES = [
    candidate("baseline", {}, 412.0, None, run=1, reason="the preset as it is", peak_bytes=int(1.7 * GIB)),
    candidate("ceiling", {}, 655.0, None, run=2, reason="on one repeated batch",
              without_input=True, peak_bytes=int(1.7 * GIB)),
    candidate("batch_size", {"input.batch_size": 128}, 702.0, 0.7, run=3, without_input=True, spread=0.03,
              peak_bytes=int(3.1 * GIB), predicted_bytes=int(3.0 * GIB), why="+70.0 %, spread 3.0 %"),
    candidate("batch_size", BATCH, 1205.0, 0.72, run=4, without_input=True, spread=0.04,
              peak_bytes=int(5.9 * GIB), predicted_bytes=int(5.8 * GIB), why="+72.0 %, spread 4.0 %"),
    candidate("batch_size", {"input.batch_size": 1024}, None, None, run=5, without_input=True,
              predicted_bytes=int(22.6 * GIB), decision="failed", why="oom: out of memory at batch size 1024"),
    candidate("precision", POLICY, 1490.0, 0.24, run=6, without_input=True, settings=BATCH | POLICY,
              peak_bytes=int(3.3 * GIB), why="+24.0 %, spread 2.1 %"),
    candidate("xla", {"compile.xla": True}, 1391.0, -0.067, run=7, without_input=True,
              settings=BATCH | POLICY | {"compile.xla": True}, decision="rejected", peak_bytes=int(3.4 * GIB),
              why="-6.7 %, spread 2.1 %: slower"),
    candidate("input", THREADS, None, None, run=8, settings=BATCH | POLICY | THREADS,
              decision="failed", outcome="timeout", why="no step within \x1b[31m30 s"),
    candidate("input", CACHE, 1466.0, 2.55, run=9, settings=KEPT, peak_bytes=int(3.5 * GIB),
              why="+255 %, spread 2.1 %", reason="the prepared samples fit in memory"),
]  # fmt: skip
MEMORY: dict[str, Any] = {
    "of": "allocator", "limit_bytes": int(14.6 * GIB), "base_bytes": 0.25 * GIB, "bytes_per_sample": 0.0218 * GIB,
    "largest_batch": 658, "fits": 256, "too_large": 1024, "batch_size": 64, "predicted_bytes": None,
    "points": [
        {"batch_size": 64, "peak_bytes": int(1.7 * GIB), "predicted_bytes": None},
        {"batch_size": 128, "peak_bytes": int(3.1 * GIB), "predicted_bytes": int(3.0 * GIB)},
        {"batch_size": 256, "peak_bytes": int(5.9 * GIB), "predicted_bytes": int(5.8 * GIB)},
        {"batch_size": 1024, "peak_bytes": None, "predicted_bytes": int(22.6 * GIB)},
    ],
}  # fmt: skip
SEARCH: dict[str, Any] = {
    "limits": {
        "minutes": 10.0, "only": ["batch_size", "precision", "xla", "steps_per_execution", "threads", "input"],
        "leave": ["input.shuffle"], "memory_bytes": None, "largest_batch": None, "precisions": None,
        "learning_rate": "keep", "warmup_steps": None, "allow_worse_loss": False,
    },
    "stage": "deciding", "candidates": CANDIDATES, "best": KEPT, "best_speed": 1466.0, "before_speed": 412.0,
    "ceiling": 1490.0, "noise": 0.012, "memory": MEMORY,
    "losses": [{
        "settings": KEPT, "of": "validation", "samples": 8085, "passes": 5,
        "trials": trials(("a", 411.0), ("b", 1466.0)),
        "loss_a": 0.61, "loss_b": 0.64, "worse_from": 0.66, "decision": "no worse", "why": "",
    }],
    "learning": "",
}  # fmt: skip
DECIDING = comparison(KEPT, "", 3.9, "input", "input_bound", COMPARISONS[0]["trials"], 2.57, 0.037, "kept",
                      COMPARISONS[0]["why"])  # fmt: skip
ENDED: dict[str, Any] = copy.deepcopy(PROOF) | {
    "id": "20260921-130000-cnn", "kind": "tune", "preset_name": "cnn", "diagnosis": None, "final_verdict": None,
    "baseline_trials": trials(("a", 412.0)), "comparisons": [DECIDING], "gain_total": 3.57, "changes_kept": KEPT,
    "after": PROOF["after"] | {"samples_per_second": 1471.0},
    "search": SEARCH, "ended_because": "every option has been tried", "seconds": 402.0,
}  # fmt: skip


def write_search(home: Path, name: str = ENDED["id"], **changes: Any) -> Proof:
    """A search's folder under `home`; give fields of proof.json by name."""
    return _written(home, copy.deepcopy(ENDED) | {"id": name} | changes)


def searching(elapsed_seconds: float = 200.0, **changes: Any) -> dict[str, Any]:
    """Fields of a search whose process seems to be this one, while it tries XLA."""
    search = copy.deepcopy(SEARCH) | {
        "stage": "xla", "candidates": copy.deepcopy(CANDIDATES[:7]), "best": BATCH | POLICY, "best_speed": 412.0,
        "ceiling": 655.0, "learning": "", "losses": [],
    }  # fmt: skip
    nothing = dict.fromkeys(("samples_per_second", "gain", "spread", "peak_bytes"))
    search["candidates"][6] |= nothing | {"decision": "running", "why": "", "trials": [],
                                          "predicted_bytes": int(3.4 * GIB)}  # fmt: skip
    return here() | {
        "search": search, "doing": "XLA: trial 7 with xla=true", "comparisons": [], "gain_total": None,
        "changes_kept": {}, "preset_after": None, "after": None, "started_mark": steady() - elapsed_seconds,
    } | changes  # fmt: skip


# ---- records of plain values, as tests write them down: a needed field that they lack is empty ----

Declared = TypeVar("Declared")
_EMPTY: Mapping[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, Path: Path()}


def typed(declared: type[Declared], plain: Any) -> Declared:
    """An instance of the dataclass, with those that it contains; other values are left out."""
    if isinstance(plain, declared):
        return plain
    made: Any = declared
    hints = get_type_hints(declared)
    values = {}
    for field in fields(made):
        hint = hints[field.name]
        given = plain.get(field.name)
        if given is not None or (field.name in plain and NoneType in get_args(hint)):
            values[field.name] = _value(hint, given)
        elif field.default is MISSING and field.default_factory is MISSING:
            values[field.name] = _empty(hint)
    return declared(**values)


def _value(hint: Any, given: Any) -> Any:
    inner: Any = next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
    if inner is None or given is None:
        return given
    return [typed(inner, item) for item in given] if isinstance(given, list | tuple) else typed(inner, given)


def _empty(hint: Any) -> Any:
    if hint in _EMPTY:
        return _EMPTY[hint]
    if NoneType in get_args(hint):
        return None
    origin = get_origin(hint)
    if is_dataclass(hint):
        return typed(hint, {})  # type: ignore[arg-type]
    return {} if isinstance(origin, type) and issubclass(origin, Mapping) else []


def as_read(plain: Mapping[str, Any]) -> Record:
    """The record that a reader of a proof.json with these values gets."""
    try:
        return typed_files.convert({**plain, "path": Path("proof.json")}, Record)
    except typed_files.Damaged:
        return UNREAD
