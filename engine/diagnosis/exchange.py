"""The exchange of gradients between the workers of several machines: its share of a step's time, and its remedies.

The trainer times the exchange alone, between two executions (trainer/measure/communication.py). Within a step a
GPU may compute meanwhile, so that the exchange costs this much or less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..files.values import whole
from ..runs.events import GradientExchange, Started
from ..units import rate, size
from .measurements import Measurements
from .remedy import ROOM_FOR_BATCH, Remedy, gain


def figures(exchange: GradientExchange | None, started: Started | None, step_ms: float | None) -> dict[str, Any]:
    """Its time and its share of the step, and between whom how much is exchanged; nothing where it was not timed."""
    if exchange is None or not exchange.ms or not step_ms:
        return {}
    hosts = list(dict.fromkeys(str(one.get("host")) for one in started.workers)) if started else []
    return {
        "worker_exchange": min(1.0, exchange.ms / step_ms),
        "exchange_ms": exchange.ms,
        "exchanged": f"{size(exchange.bytes)} of gradients",
        "exchange_rate": rate(1000 * exchange.bytes / exchange.ms),
        "hosts": tuple(hosts),
    }


# ---- remedies ----------------------------------------------------------------------------------


def for_exchange(s: Measurements) -> Iterator[Remedy]:
    yield from _fewer(s)
    yield Remedy(step="gpus", reason=_faster(s))


def _fewer(s: Measurements) -> Iterator[Remedy]:
    """Gradients are exchanged once in a step, however many samples and parts it has."""
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


def _faster(s: Measurements) -> str:
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
