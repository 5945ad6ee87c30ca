"""The commands `gputui ab` and `gputui proof`: start a proof and follow it, list proofs, show one.

They only follow the proof's folder. Ctrl-C asks the proof to stop and shows its results so far; a second one ends it at
once. Losing the terminal (SIGHUP) ends the command and not the proof.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ...engine.files.values import to_json
from ...engine.plan import LEAST_STEPS
from ...engine.profile import reports
from ...engine.profile.reports import ProfileError
from ...engine.proof import estimate, folder, improved_preset, request, sharing
from ...engine.proof.folder import Proof
from ...engine.proof.markdown import as_markdown
from ...engine.proof.request import ProofError, Request
from ...engine.runs import Run
from ...engine.telemetry import machine
from ...engine.text import seconds
from ..base.errors import DONE, FAILED, INTERRUPTED, OUT_OF_MEMORY, complain
from ..printing import profile
from ..printing import proof as proof_tables
from ..printing.console import console
from ..printing.proof_progress import LiveProof, ProofLines, trials
from .train import Presses

POLL_SECONDS = 0.1


def measure_change(
    preset: str, settings: Sequence[str], repeats: int, measure_seconds: float, as_json: bool, anyway: bool
) -> int:
    """`gputui ab`: the preset against itself with the settings; returns the exit code."""
    asked = request.of_change(preset, settings, repeats=repeats, measure_seconds=measure_seconds)
    return run_proof(asked, as_json=as_json, anyway=anyway)


def run_proof(asked: Request, *, as_json: bool, anyway: bool, output: str | None = None) -> int:
    """Start, follow and show a proof; save the improved preset where that is wanted. The exit code."""
    if output is not None:
        improved_preset.refuse(Path(output))
    presses = Presses()  # from here on Ctrl-C is for the proof
    proof, process = sharing.begin(asked, anyway)
    for remark in request.remarks(asked, machine.read()):
        complain(remark)
    if not as_json:
        print(f"proof {proof.id}: {budget(asked)}", flush=True)
    _follow(proof, process, presses, as_json)
    data = proof.data
    if as_json:
        print(to_json(data, indent=1))
    else:
        proof_tables.show_result(data)
    if output is not None and data.get("changes_kept"):
        improved_preset.save(proof, Path(output))
        _say(f"{output} is saved; gputui --preset {output} trains with it", as_json)
    elif data.get("changes_kept"):
        _say(f"gputui proof {proof.id} -o improved.yaml saves the improved preset", as_json)
    return _code(data, presses)


def show_profile(run: Run) -> None:
    """The run's profile as lines, or why it cannot be read."""
    try:
        told = profile.lines(reports.read(run))
    except ProfileError as fault:
        told = str(fault).splitlines()
    print("\n".join(told))


def budget(asked: Request) -> str:
    """How long it will take, as far as that is known before it starts."""
    count, each = estimate.sure_trials(asked), estimate.of_request(asked)
    told = f"{count} trials of about {each:.0f} s: about {_minutes(count * each)}"
    if asked.run is None:
        told += f" (longer where {LEAST_STEPS} steps take more than {asked.measure_seconds:g} s)"
    if asked.kind == "loop":
        more = 2 * asked.repeats
        told = f"at first {told}; {more} trials ({_minutes(more * each)}) for each further remedy"
        return told + (f", at most {_minutes(asked.limit_seconds)} in total" if asked.limit_seconds else "")
    return told


def _minutes(time_seconds: float) -> str:
    return f"{seconds(time_seconds)} minutes" if 60 <= time_seconds < 3600 else seconds(time_seconds)


def _follow(proof: Proof, process: subprocess.Popen[bytes], presses: Presses, as_json: bool) -> None:
    view = None if as_json else _view()
    asked = 0
    try:
        while process.poll() is None:
            if presses.count > asked and _ask_to_stop(proof):
                asked += 1
                _say("stopping; press Ctrl-C again to end the trial at once", as_json)
            if view is not None and (data := proof.data):
                view.show(data)
            time.sleep(POLL_SECONDS)
        if view is not None:
            view.show(proof.data)
    finally:
        if view is not None:
            view.close()


def _view() -> ProofLines:
    live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return LiveProof(console()) if live else ProofLines(console())


def _ask_to_stop(proof: Proof) -> bool:
    """False in the moment before the proof has told its process id."""
    try:
        folder.request_stop(proof)
    except ProofError:
        return False
    return True


def _say(text: str, as_json: bool) -> None:
    """Where the output is for a machine, people read stderr."""
    if as_json:
        complain(text)
    else:
        print(text)


def _code(data: dict[str, object], presses: Presses) -> int:
    if data.get("state") == "stopped" or presses.count:
        return INTERRUPTED
    comparisons = data.get("comparisons")
    assert isinstance(comparisons, list)
    unusable = data["kind"] == "ab" and comparisons and comparisons[0]["decision"] == "failed"
    if data.get("state") == "done" and not unusable:
        return DONE
    decisive = [trial for _, trial in trials(data)][-1:]
    return OUT_OF_MEMORY if decisive and decisive[0]["outcome"] == "oom" else FAILED


def show_proofs(as_json: bool) -> None:
    """A table of all proofs, or one JSON object a line."""
    found = folder.proofs()
    if as_json:
        for proof in found:
            print(to_json({"id": proof.id, "path": str(proof.path), **_head(proof)}))
    elif not found:
        print("No proofs so far; gputui ab and gputui diagnose --apply make them.")
    else:
        known = {proof.id: proof.data for proof in found}
        if lost := [name for name, data in known.items() if not data]:
            complain(f"left out, as proof.json is damaged: {', '.join(lost)}")
        proof_tables.show_list([data for data in known.values() if data])


def _head(proof: Proof) -> dict[str, object]:
    data = proof.data
    known = ("kind", "state", "preset_name", "started_t", "seconds", "gain_total", "changes_kept", "error")
    return {name: data.get(name) for name in known}


def show_proof(name: str, form: str, output: str | None, stop: bool) -> None:
    """One proof as a table, Markdown or JSON; or save what it has arrived at, or stop it."""
    proof = folder.find(name)
    if stop:
        folder.request_stop(proof)
        print(f"{proof.id} is stopping; repeat the command to end its trial at once")
        return
    if output is not None:
        improved_preset.refuse(Path(output))
        improved_preset.save(proof, Path(output))
        print(f"{output} is saved; gputui --preset {output} trains with it")
        return
    data = proof.data
    if not data:
        raise ProofError(f"{proof.path / 'proof.json'} cannot be read")
    if form == "table":
        proof_tables.show_trials(data)
        proof_tables.show_result(data)
    else:
        print(to_json(data, indent=1) if form == "json" else as_markdown(data), end="\n" if form == "json" else "")

