"""Starts the processes of sweeps again that a restart of the machine has ended, for the runner of the queue.

After a restart the runner continues with the trials that wait, but a sweep also has to add the next ones. A sweep whose
process was killed while the machine kept running is left to its user.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from ..files.places import proofs_folder
from ..files.reading import read_object
from ..runs import part_of_sweep
from ..system import locks
from ..system.identity import Place
from . import entries
from .entries import Entry


def interrupted(listed: Iterable[Entry]) -> dict[Path, str]:
    """Return the folders of the sweeps to which the entries in `listed` belong and whose process a restart of this
    machine has ended, each with the id of one of its runs.
    """
    here = Place.here()
    ended: dict[Path, str] = {}
    for entry in listed:
        sweep = part_of_sweep.sweep_of(entry.folder)
        path = proofs_folder() / sweep
        if not sweep or path in ended:
            continue
        place = Place.read(record := read_object(path / "proof.json").value)
        is_of_here = place is not None and place.host == here.host and place.boot_id != here.boot_id
        if record.get("state") == "running" and is_of_here:
            ended[path] = entry.run
    return ended


def go_on(listed: Iterable[Entry]) -> list[Path]:
    """Start the process of each sweep in `interrupted`, in the environment of its run, and return the folders of those
    that were started.
    """
    begun = []
    for path, run in interrupted(listed).items():
        from ..proof import folder  # the runner, which stays in memory for days, does without it
        from ..proof.request import ProofError  # the same

        environment, directory = entries.environment_of(run)
        try:
            folder.start(folder.Proof(path), environment=environment, directory=directory or "/")
        except locks.Taken:  # its user has resumed it
            continue
        except (ProofError, OSError) as fault:
            print(f"{time.strftime('%F %T')} the sweep {path.name} does not go on: {fault}", flush=True)
            continue
        print(f"{time.strftime('%F %T')} the sweep {path.name} goes on after a restart of the machine", flush=True)
        begun.append(path)
    return begun
