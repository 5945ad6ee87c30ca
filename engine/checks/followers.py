"""Checks that the libraries of the targets in run.follow are installed in gputui's own Python, where followers run."""

from __future__ import annotations

from collections.abc import Iterator

from ..job.machine_gpus import Machine
from ..options import Options
from .option_finding import Finding, error

KEY = "run.follow"


def follow_targets(options: Options, _machine: Machine) -> Iterator[Finding]:
    if not options.run.follow:
        return
    from ..follow import start  # not for the first paint of the form

    for name in options.run.follow:
        if line := start.missing([name]):
            what, _, change = line[0].partition("; ")
            yield error(KEY, what, change)
