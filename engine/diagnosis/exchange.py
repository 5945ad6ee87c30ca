"""The exchange of gradients between GPUs or workers: its share of a step's time, and its remedies.

The trainer times the exchange between workers alone, between two executions (trainer/measure/communication.py). Within
a step a GPU may compute meanwhile, so that the exchange costs this much or less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..files.values import whole
from ..plan import MULTI_WORKER
from ..runs.events import GradientExchange, Started
from ..units import rate, size
from .measurements import Measurements
from .remedies import Remedy, gain, larger_batch
from .thresholds import ROOM_FOR_BATCH


def figures(exchange: GradientExchange | None, started: Started | None, step_ms: float | None) -> dict[str, Any]:
    """The figures of the gradient exchange: its time in ms, its share of the step, its size and rate, and the workers'
    hosts. Empty if the exchange was not timed.
    """
    if exchange is None or not exchange.ms or not step_ms:
        return {}
    hosts = list(dict.fromkeys(str(worker.get("host")) for worker in started.workers)) if started else []
    return {
        "worker_exchange": min(1.0, exchange.ms / step_ms),
        "exchange_ms": exchange.ms,
        "exchanged": f"{size(exchange.bytes)} of gradients",
        "exchange_rate": rate(1000 * exchange.bytes / exchange.ms),
        "hosts": tuple(hosts),
    }


# ---- remedies ---------------------------------------------------------------------------------


def remedies(s: Measurements) -> Iterator[Remedy]:
    """Remedies for a slow exchange of gradients: exchange them less often, or faster."""
    if s.option("strategy.kind") == MULTI_WORKER:
        yield from _twice_the_batch(s)
        yield Remedy(step="gpus", reason=_faster_network(s))
        return
    if s.option("strategy.communication") in ("auto", "nccl") and s.nvlink is False:
        yield Remedy(
            step="gpus",
            changes={"strategy.communication": "hierarchical_copy"},
            reason="these GPUs exchange nothing over NVLink: hierarchical copies can be faster than NCCL",
        )
    yield from larger_batch(s)
    yield Remedy(
        step="gpus",
        reason="gradients are exchanged once per step: with a larger batch for each GPU they are exchanged less often; "
        "train.gradient_accumulation cannot do this: it works only with strategy.kind=single",
    )
    yield Remedy(
        step="gpus",
        reason="set NCCL_DEBUG=INFO in the environment: engine.log then shows how NCCL copies: P2P directly between "
        "GPUs, SHM through the host's memory",
    )


def _twice_the_batch(s: Measurements) -> Iterator[Remedy]:
    """A remedy that doubles the batch: gradients are exchanged once in a step, however many samples and parts
    it has.
    """
    batch, parts = whole(s.option("input.batch_size")), whole(s.option("train.micro_batches")) or 1
    if batch is None or (s.global_batch_size or 0) * 4 > (s.train_samples or 0):
        return
    fits = not s.on_gpu if s.memory_peak is None else s.memory_peak <= ROOM_FOR_BATCH
    in_parts = {} if fits else {"train.micro_batches": 2 * parts}
    so = "" if fits else "; computed in twice as many parts it needs no more memory"
    yield Remedy(
        step="gpus",
        changes={"input.batch_size": 2 * batch} | in_parts,
        reason=f"gradients are exchanged once per step: with twice the batch on each worker half as often{so}",
        expected_gain=gain((s.worker_exchange or 0.0) / 2),
        changes_learning=True,
    )


def _faster_network(s: Measurements) -> str:
    if len(s.hosts) < 2:
        where = s.hosts[0] if s.hosts else "one machine"
        return f"all workers run on {where}: a single process with strategy.kind=mirrored exchanges without a network"
    between = " and ".join(s.hosts) if len(s.hosts) == 2 else f"{len(s.hosts)} machines"
    done = f"{s.exchanged} pass between {between} at {s.exchange_rate}: a faster network would help"
    if s.on_gpu:
        return (
            f"{done}, or NCCL's choice of another: NCCL_DEBUG=INFO writes it into engine.log, NCCL_SOCKET_IFNAME and "
            "NCCL_IB_HCA name the one to use"
        )
    return f"{done}; the addresses of the workers (--cluster, TF_CONFIG) choose the network"
