"""How long the workers of a training on several machines take to exchange the gradients of a step, beside its time.

The trainer times the exchange alone, between two executions (trainer/measure/communication.py). Within a step a GPU
may compute meanwhile, so that it costs this much or less.
"""

from __future__ import annotations

from typing import Any

from ..runs.events import GradientExchange, Started
from ..text import rate, size


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
