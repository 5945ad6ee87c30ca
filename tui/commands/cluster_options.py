"""The options that name the workers of a training on several machines (strategy.kind=multi_worker).

Deferred imports: only a command that is given them pays for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..base.errors import Refused

Command = Callable[..., Any]


def given(command: Command) -> Command:
    """Declare --cluster and --worker for a command, which gets them as `workers` and `worker`."""
    of_which = click.option(
        "--worker",
        type=click.IntRange(min=0),
        metavar="N",
        help="With --cluster: which of its addresses is this worker's, counted from 0.",
    )
    named = click.option(
        "--cluster",
        "workers",
        metavar="HOST:PORT,...",
        help="The workers of strategy.kind=multi_worker, the same list on each machine; the first is the chief.",
    )
    return named(of_which(command))


def join(workers: str | None, worker: int | None) -> None:
    """This process belongs to that cluster from here on."""
    if workers is None and worker is not None:
        raise Refused("--worker needs --cluster HOST1:PORT,HOST2:PORT, the addresses of all workers")
    if workers is not None:
        from ...engine.job import start_worker

        start_worker.use_command_line(workers, worker)
