"""The commands `gputui ab` and `gputui proof`, which only follow the proof's folder. Ctrl-C requests the proof to stop
and shows its results so far; a second ends it at once. Losing the terminal (SIGHUP) ends the command only."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...engine.files.values import to_json
from ...engine.files.writing import used_bytes
from ...engine.job import this_machine
from ...engine.job.machine_gpus import Machine
from ...engine.plan import LEAST_STEPS
from ...engine.profile import reports
from ...engine.profile.reports import ProfileError
from ...engine.proof import duration, folder, improved_preset, proof_start, request
from ...engine.proof.folder import Proof
from ...engine.proof.markdown import as_markdown, without_private
from ...engine.proof.request import ProofError, Request
from ...engine.runs import Run
from ...engine.runs.run import WAITING
from ...engine.trials import proof_sentences, sweep_sentences
from ...engine.trials.record import Record
from ...engine.tune import tune_request
from ...engine.tune.report import markdown
from ...engine.units import counted, seconds
from ..base import glyphs
from ..base.errors import (
    DONE,
    FAILED,
    INTERRUPTED,
    NOT_WRITTEN,
    OUT_OF_MEMORY,
    WRONG,
    OutputFault,
    Refused,
    complain,
    discard_output,
)
from ..base.terminal import draws_again
from ..printing import diagnosis
from ..printing import proof as proof_tables
from ..printing import tune as search_tables
from ..printing.plain_tables import console
from ..printing.proof import LiveProof, ProofLines, trials
from . import runs
from .train import Presses

POLL_SECONDS = 0.1
MOST_WIDTH = 100  # of a printed chart
# Why no preset is saved with -o, by the kind of the proof, if it is not about speed.
NOTHING = {
    "rate": "no other rate was proved to learn better",
    "sweep": "the sweep has not ended with a best setting",
    "scaling": "no number of runs on one GPU was proved to pay",
}
NOUNS = {"tune": "search", "rate": "range test", "sweep": "sweep"}  # what a kind is called, if it is not a proof


def measure_change(
    preset: str,
    settings: Sequence[str],
    repeats: int,
    measure_seconds: float,
    as_json: bool,
    anyway: bool,
    wait: bool,
    queue: bool,
    after: str | None,
) -> int:
    """Measure the preset with and without the settings (KEY=VALUE), for the command `gputui ab`."""
    asked = request.of_change(preset, settings, repeats=repeats, measure_seconds=measure_seconds)
    return run_proof(asked, as_json=as_json, anyway=anyway, wait=wait, queue=queue, after=after)


def run_proof(
    asked: Request,
    *,
    as_json: bool,
    anyway: bool,
    wait: bool = False,
    output: str | None = None,
    report: bool = False,
    queue: bool = False,
    after: str | None = None,
    trains_on: Machine | None = None,
) -> int:
    """Start the proof that `asked` describes, follow it and print its result: as tables, as JSON, or only as a `report`
    in Markdown. `output` is the file for the improved preset. `queue` puts it in the queue instead, after the run or
    measurement `after`. `trains_on` is the machine of the trials, None for this one."""
    quiet = as_json or report
    _refuse_with_queue(queue, after, quiet or wait or output is not None)
    if queue:
        from . import queue as queue_command  # only for a queued proof

        return queue_command.add_proof(asked, after, anyway)
    if output is not None:
        improved_preset.refuse(Path(output))
    presses = Presses(asked.stop_signal)  # from here on Ctrl-C is for the proof
    if wait and not _waited(asked, presses, quiet):
        return INTERRUPTED
    proof, process = proof_start.begin(asked, anyway, trains_on)
    for remark in request.remarks(asked, trains_on or this_machine.read()):
        complain(remark)
    begun = f"{NOUNS.get(asked.kind, 'proof')} {proof.id}: {budget(asked)}"
    return _to_its_end(proof, process, presses, begun, as_json, output, report)


def _refuse_with_queue(queue: bool, after: str | None, follows: bool) -> None:
    if queue and follows:
        raise Refused(
            "--queue measures nothing now: leave out --json, --markdown, --wait and -o; gputui proof ID "
            "shows the result, and -o FILE there saves the improved preset"
        )
    if after is not None and not queue:
        raise Refused("--after RUN needs --queue")


def _waited(asked: Request, presses: Presses, as_json: bool) -> bool:
    proof_start.wait(asked, lambda what: _say(what, as_json), lambda: presses.count > 0)
    return presses.count == 0


def go_on(
    proof: Proof,
    start: Callable[[], subprocess.Popen[bytes]],
    resumed: Callable[[], Request],
    *,
    anyway: bool,
    as_json: bool,
    wait: bool,
    output: str | None,
    report: bool = False,
    queue: bool = False,
    after: str | None = None,
) -> int:
    """Resume a proof that has ended before its time, follow it and print its result. Return the exit code. `start`
    starts and returns its process. `resumed` returns the request with which the queue resumes it. The other parameters
    are those of `run_proof`."""
    quiet = as_json or report
    _refuse_with_queue(queue, after, quiet or wait or output is not None)
    if queue:
        from . import queue as queue_command  # only for a queued proof

        return queue_command.add_resumed_proof(proof, resumed(), after, anyway)
    if output is not None:
        improved_preset.refuse(Path(output))
    presses = Presses(proof.request.stop_signal)
    if wait and not _waited(proof.request, presses, quiet):
        return INTERRUPTED
    process = start()
    begun = f"{NOUNS.get(proof.request.kind, 'proof')} {proof.id} goes on"
    return _to_its_end(proof, process, presses, begun, as_json, output, report)


def _to_its_end(
    proof: Proof,
    process: subprocess.Popen[bytes],
    presses: Presses,
    begun: str,
    as_json: bool,
    output: str | None,
    report: bool,
) -> int:
    quiet = as_json or report
    try:
        if not quiet:
            print(begun, flush=True)
        _follow(proof, process, presses, quiet)
    except OutputFault as fault:
        is_active = f"{proof.id} goes on; show it with: gputui proof {proof.id}"
        complain(f"standard output cannot be written ({fault})\n{is_active}")
        discard_output()
        return NOT_WRITTEN
    data = proof.record
    answers_first = data.kind == "tune" and not quiet
    if as_json:
        print(to_json(shareable(proof.data), indent=1))
    elif report:
        print(as_markdown(data), end="")
    elif answers_first:
        print()
        proof_tables.show_answer(data)
    else:
        _show_rates(data)
        proof_tables.show_result(data, was_followed=True)
    saved = output is not None and bool(proof_sentences.to_take(data))
    if output is not None and saved:
        improved_preset.save(proof, Path(output))
        _say(_saved(output, data), quiet)
    elif output is not None:
        _say(f"{output} is not written: {_why_nothing(data)}", quiet)
    if data.kind == "tune":
        if not as_json:
            search_tables.show_next(data, saved)
        if answers_first and not proof_sentences.only_predicts(data):
            print()
            proof_tables.show_result(data, was_followed=True)
    elif data.kind in ("sweep", "scaling") and data.state in ("stopped", "crashed"):
        _say(f"gputui {data.kind} --resume {proof.id} goes on with it", quiet)
    elif data.changes_kept and not saved:
        _say(f"gputui proof {proof.id} -o improved.yaml saves the improved preset", quiet)
    return _code(data, presses)


def _why_nothing(data: Record) -> str:
    if data.state == "failed":
        return f"the {NOUNS.get(data.kind, 'proof')} failed"
    if data.kind == "tune" and proof_sentences.learns_worse(data):
        return "what is faster learns clearly worse"
    return NOTHING.get(data.kind, "nothing was proved to be faster")


def _saved(output: str, data: Record) -> str:
    marked = ", with settings that are not proved, as its first line says" if proof_sentences.unproved(data) else ""
    return f"{output} is saved{marked}; gputui --preset {output} trains with it"


def _show_rates(data: Record) -> None:
    if data.rate is None:
        return
    from ..drawing import rate  # only for a range test

    for row in rate.chart(data.rate, min(console().width, MOST_WIDTH), rate.TALL, glyphs.suited()):
        print("".join(text for text, _ in row).rstrip())


def show_profile(run: Run) -> None:
    """Print the run's profile as lines, or the reason why it cannot be read."""
    try:
        lines = diagnosis.lines(reports.read(run))
    except ProfileError as fault:
        lines = str(fault).splitlines()
    print("\n".join(lines))


def budget(asked: Request) -> str:
    """Return the expected duration of the proof in words, estimated from its request before the start."""
    if asked.rate is not None:
        trainings = f"a ramp of {asked.rate.steps} steps, then {2 * asked.repeats} trainings on new seeds"
        return f"{trainings}, at most {_minutes(60 * asked.rate.minutes)}"
    if asked.sweep is not None:
        return sweep_sentences.plan(asked.sweep)
    if asked.search is not None:
        buys = tune_request.plan_of(asked.search, asked.preset_name, asked.repeats, asked.measure_seconds).in_words()
        if asked.search.dry_run:
            return f"at most 2 trials of about {duration.of_request(asked):.0f} s; a whole search: {buys}"
        return f"{buys}; Ctrl-C ends it, gputui tune --resume goes on with it"
    times = duration.times_of(asked)
    count, each = duration.sure_trials(asked), times.seconds(asked.measure_seconds)
    whole = _minutes(times.first + count * each)
    text = f"{counted(count, 'trials')} of about {each:.0f} s ({times.source}): about {whole}"
    if not times.step:
        text += f" (longer where {LEAST_STEPS} steps take more than {asked.measure_seconds:g} s)"
    if asked.kind == "loop":
        more = 2 * asked.repeats
        text = f"at first {text}; {more} trials ({_minutes(more * each)}) for each further remedy"
        limit = f"; none is begun that would end after {_minutes(asked.limit_seconds)}" if asked.limit_seconds else ""
        return text + limit
    return text


def _minutes(time_seconds: float) -> str:
    return f"{seconds(time_seconds)} minutes" if 60 <= time_seconds < 3600 else seconds(time_seconds)


def _follow(proof: Proof, process: subprocess.Popen[bytes], presses: Presses, as_json: bool) -> None:
    view = None if as_json else _view()
    asked = 0
    try:
        while process.poll() is None:
            if presses.count > asked and _ask_to_stop(proof, presses.asked[asked]):
                asked += 1
                _say(f"stopping{presses.more}", as_json)
            if view is not None and (data := proof.record).is_read:
                view.show(data)
            time.sleep(POLL_SECONDS)
        if view is not None:
            view.show(proof.record)
    finally:
        if view is not None:
            view.close()


def _view() -> ProofLines:
    live = draws_again(console().is_dumb_terminal)
    return LiveProof(console()) if live else ProofLines(console())


def _ask_to_stop(proof: Proof, numbers: Sequence[int]) -> bool:
    # Fails if the proof has not recorded its process id yet.
    try:
        folder.request_stop(proof, numbers)
    except ProofError:
        return False
    return True


def _say(text: str, quiet: bool) -> None:
    # With `quiet`, stdout has only JSON or a report.
    if quiet:
        complain(text)
    else:
        print(text, flush=True)


def _code(data: Record, presses: Presses) -> int:
    if data.state == "stopped" or presses.count:
        return INTERRUPTED
    unusable = data.kind == "ab" and any(comparison.decision == "failed" for comparison in data.comparisons[:1])
    unusable = unusable or (data.kind == "scaling" and data.gain_total is None)
    if data.state == "done" and not unusable:
        return DONE
    decisive = [trial for _, trial in trials(data)][-1:]
    return OUT_OF_MEMORY if decisive and decisive[0].outcome == "oom" else FAILED


def show_proofs(as_json: bool) -> None:
    """Print all proofs as a table, or as one JSON object per line."""
    listed = folder.proofs()
    if as_json:
        for proof in listed:
            size = used_bytes(proof.path)
            print(to_json({"id": proof.id, "path": str(proof.path), **_head(proof), "bytes": size}))
    elif not listed:
        print(f"no proofs so far; {folder.MAKERS}")
    else:
        records = {proof.id: proof.record for proof in listed}
        if lost := [name for name, data in records.items() if not data.is_read]:
            complain(f"left out, as proof.json is damaged: {', '.join(lost)}")
        sizes = {proof.id: used_bytes(proof.path) for proof in listed}
        proof_tables.show_list([data for data in records.values() if data.is_read], sizes)


def shareable(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of proof.json without the private options of its presets, which may hold secrets."""
    texts = {name: without_private(data[name]) for name in ("preset_before", "preset_after") if data.get(name)}
    return {**data, **texts}


def _head(proof: Proof) -> dict[str, object]:
    data = proof.data
    names = ("kind", "state", "preset_name", "started_t", "seconds", "gain_total", "changes_kept", "error")
    return {name: data.get(name) for name in names}


def remove_proofs(names: Sequence[str], yes: bool) -> int:
    """Delete the named proofs with their trials permanently. Return WRONG if a proof was not deleted, else DONE. Unless
    `yes` is set, asks first on the terminal. Raises Refused without names, for the name `latest`, and if there is no
    terminal for the question."""
    if not names:
        raise Refused("name the proofs to delete; gputui proof lists them")
    if "latest" in names:
        raise Refused("latest may be another proof by now, and is not deleted; name the proof")
    proofs = list(dict.fromkeys(folder.find(name) for name in names))
    if not yes:
        lines = [f"{proof.id}  {proof.record.kind}" for proof in proofs]
        runs.ask_before_deleting(proofs, lines, "proof", "all its trials" if len(proofs) == 1 else "all their trials")
    return WRONG if runs.delete(proofs, "proofs", folder.reserved) else DONE


def show_proof(name: str, form: str, output: str | None, stop: bool) -> None:
    """Print the named proof. `form` is table, markdown or json. With `output`, save its improved preset to this file
    instead. With `stop`, ask the proof to stop instead. Raises ProofError if there is no such proof or no improved
    preset."""
    proof = folder.find(name)
    if stop and proof.queue_file.exists():
        from ...engine.queue import entry_changes, slurm_queue  # only for a queued proof

        entry_changes.wait_for_start(proof.id)
        if proof.state == WAITING:
            entry_changes.remove(proof.id)
            print(f"{proof.id} is taken out of the queue")
            return
        if slurm_queue.stop(proof.id):
            print(f"{proof.id} is asked to stop by Slurm; repeat the command to end its trial at once")
            return
    if stop:
        folder.request_stop(proof)
        print(f"{proof.id} is stopping; repeat the command to end its trial at once")
        return
    if output is not None:
        improved_preset.refuse(Path(output))
        improved_preset.save(proof, Path(output))
        print(_saved(output, proof.record))
        return
    data = proof.record
    if not data.is_read:
        raise ProofError(f"{proof.path / 'proof.json'} cannot be read")
    if form == "table":
        if data.kind == "tune":
            proof_tables.show_answer(data)
            search_tables.show_next(data, saved=False)
            print()
        proof_tables.show_trials(data)
        _show_rates(data)
        if not proof_sentences.only_predicts(data):
            proof_tables.show_result(data)
    elif form == "json":
        print(to_json(shareable(proof.data), indent=1))
    else:
        print(as_markdown(data, markdown.sections(data) if data.kind == "tune" else ()), end="")
