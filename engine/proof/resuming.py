"""Goes on with what has ended before its time: a search, or a measurement of scaling."""

from __future__ import annotations

import subprocess

from ..files.writing import write_atomically
from ..system import locks
from ..telemetry import machine
from ..trials.record import earlier_trials
from . import starting
from .folder import Proof, start
from .request import ProofError, Request


def refuse(proof: Proof, kind: str, what: str, command: str, with_more: str = "", has_more: bool = False) -> None:
    """Raises ProofError for a proof that is not of this kind, goes on, has ended, or cannot be read.

    One that has ended goes on where it has got more time (`has_more`); `with_more` says how it gets that.
    """
    asked, data = proof.request, proof.data
    if asked.kind != kind:
        raise ProofError(f"{proof.id} is not {what}; only what {command} has started can be resumed")
    if data.get("state") == "running":
        raise ProofError(f"{proof.id} is running; gputui proof {proof.id} shows it")
    if data.get("state") == "done" and not has_more:
        because = f" ({data['ended_because']})" if data.get("ended_because") else ""
        raise ProofError(f"{proof.id} has ended{because}; {with_more or f'gputui proof {proof.id} shows it'}")
    try:
        if not data:
            raise ValueError("it lacks the fields of a proof")
        earlier_trials(data)
    except ValueError as fault:
        raise ProofError(
            f"{proof.path / 'proof.json'} is damaged ({fault}), so that nothing is known of its trials; "
            f"start anew with {command} --preset NAME"
        ) from None


def start_again(proof: Proof, anyway: bool = False, changed: Request | None = None) -> subprocess.Popen[bytes]:
    """Its process; raises ProofError where something else trains on its devices, unless `anyway`.

    `changed` takes the place of its request.
    """
    here = machine.read()
    if not anyway and (what := starting.beside(starting.of_request(proof.request, here), here, proof.path)):
        raise ProofError(f"{what}: figures taken beside it would be worthless; wait for it (--wait), or give --anyway")
    if changed is not None:
        write_atomically(proof.path / "request.json", changed.to_json())
    try:
        return start(proof)
    except locks.Taken:
        raise ProofError(f"{proof.id} is running; gputui proof {proof.id} shows it") from None
