"""A search for the fastest settings as its process leaves it, written by hand: for the screens that show it."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

from tests.doors.engine import Process, Proof, presets, steady
from tests.doors.engine import identity_Place as Place
from tests.support import recorded, recorded_proof
from tests.support.recorded_proof import trials

GIB = recorded.GIB
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
DECIDING: dict[str, Any] = recorded_proof.PROOF["comparisons"][0] | {
    "changes": KEPT, "reason": "", "gain": 2.57, "spread": 0.037, "decision": "kept",
}  # fmt: skip
ENDED: dict[str, Any] = copy.deepcopy(recorded_proof.PROOF) | {
    "id": "20260921-130000-cnn", "kind": "tune", "preset_name": "cnn", "diagnosis": None, "final_verdict": None,
    "baseline_trials": trials(("a", 412.0)), "comparisons": [DECIDING], "gain_total": 3.57, "changes_kept": KEPT,
    "after": recorded_proof.PROOF["after"] | {"samples_per_second": 1471.0},
    "search": SEARCH, "ended_because": "every option has been tried", "seconds": 402.0,
}  # fmt: skip


def write_search(home: Path, name: str = ENDED["id"], **changes: Any) -> Proof:
    """A search's folder under `home`; give fields of proof.json by name."""
    after = presets.defaults(tuple(f"{key}={value}" for key, value in KEPT.items())).to_yaml()
    data = copy.deepcopy(ENDED) | {"id": name, "preset_after": after} | changes
    proof = Proof(home / "proofs" / name)
    proof.path.mkdir(parents=True)
    (proof.path / "request.json").write_text("{}")
    recorded_proof.rewrite(proof, data)
    return proof


def running(elapsed_seconds: float = 200.0, **changes: Any) -> dict[str, Any]:
    """Fields of a search whose process seems to be this one, while it tries XLA."""
    pid = os.getpid()
    search = copy.deepcopy(SEARCH) | {
        "stage": "xla", "candidates": copy.deepcopy(CANDIDATES[:7]), "best": BATCH | POLICY, "best_speed": 412.0,
        "ceiling": 655.0, "learning": "", "losses": [],
    }  # fmt: skip
    search["candidates"][6] |= {
        "decision": "running", "why": "", "trials": [], "samples_per_second": None, "gain": None, "spread": None,
        "peak_bytes": None, "predicted_bytes": int(3.4 * GIB),
    }  # fmt: skip
    return {
        "state": "running", **Place.here().as_fields(), **Process.of(pid).as_fields(), "search": search,
        "doing": "XLA: trial 7 with xla=true", "comparisons": [], "gain_total": None, "changes_kept": {},
        "preset_after": None, "after": None, "ended_because": "", "started_mark": steady() - elapsed_seconds,
    } | changes  # fmt: skip


def write_trial(proof: Proof, name: str, **more: Any) -> Path:
    """The folder of one of its trials, with a recorded run in it."""
    run = recorded.write(proof.path / "made", name=name, gpus=0, **more)
    (proof.path / "trials").mkdir(exist_ok=True)
    return run.path.rename(proof.path / "trials" / name)
