"""Sends the notice that the queue has become empty, for its runner."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..notify import notice, sending, targets
from .jobs import FAILED, Job

MOST_NAMES = 5  # of failed runs in a notice


def send(ended: Sequence[Job]) -> None:
    """Send the notice about the jobs that have ended since the runner began; none without a job. A failure is printed
    to the runner's log. Raises no exception.
    """

    def make() -> notice.Notice:
        failed = [job.path.name for job in ended if job.end_of().state in FAILED]
        names = ", ".join(failed[:MOST_NAMES]) + (" ..." if len(failed) > MOST_NAMES else "")
        result = f"the queue is empty: {len(ended)} ended" + (
            f", {len(failed)} of them failed: {names}" if failed else ""
        )
        return notice.Notice("queue", "failed" if failed else "ok", bool(failed), result=result)

    if ended:
        for line in sending.send_to(lambda: targets.of_options({}), make):
            print(f"{time.strftime('%F %T')} {line}", flush=True)
