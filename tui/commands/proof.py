"""The commands that measure, from `gputui ab` to `gputui proof`, which only follow the proof's folder. Ctrl-C requests
the proof to stop and shows its results so far; a second ends it at once. SIGHUP ends the command only."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ...engine import diagnosis
from ...engine import runs as run_folders
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
from ...engine.queue import adding
from ...engine.runs import Run, event_reading, run_cluster
from ...engine.runs.events import Diagnosis
from ...engine.runs.run import WAITING
from ...engine.scaling import scaling_request
from ...engine.sweep import sweep_request, swept_values
from ...engine.trials import LEAST_REPEATS, SAMPLERS, STAGES, TRIAL_SECONDS, proof_sentences, sweep_sentences
from ...engine.trials.record import Limits, RateSettings, Record
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
    clean,
    complain,
    discard_output,
    error_text,
)
from ..base.glyphs import draws_again
from ..printing import diagnosis as diagnosis_tables
from ..printing import proof as proof_tables
from ..printing import proof as search_sentences
from ..printing.plain_tables import console
from ..printing.proof import LiveProof, ProofLines, trials
from ..wording.run import next_step
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


def _to_resume(name: str, kind: str, noun: str, asks_for: str, any_ended: bool = False) -> Proof:
    if name != "latest":
        return folder.find(name)
    return proof_start.latest_to_resume(
        lambda asked: asked.kind == kind and not (asked.search and asked.search.dry_run),
        ("running", "waiting") if any_ended else ("done", "running", "waiting"),
        f"there is no {noun} to go on with; gputui {kind} {asks_for} starts one",
    )


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
            search_sentences.show_next(data, saved)
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
        lines = diagnosis_tables.lines(reports.read(run))
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
            search_sentences.show_next(data, saved=False)
            print()
        proof_tables.show_trials(data)
        _show_rates(data)
        if not proof_sentences.only_predicts(data):
            proof_tables.show_result(data)
    elif form == "json":
        print(to_json(shareable(proof.data), indent=1))
    else:
        print(as_markdown(data, markdown.sections(data) if data.kind == "tune" else ()), end="")


FOLLOWING = {"output", "as_json", "wait", "anyway", "queue", "after"}
# Options that are allowed together with --resume, and with --learning-rate-test.
OF_RESUMED_SEARCH = FOLLOWING | {"resume", "minutes"}
OF_TEST = FOLLOWING | {"rate_test", "rates", "ramp_steps", "preset", "settings", "minutes", "repeats"}


def tune(preset: str | None, settings: Sequence[str], options: dict[str, Any], given: Collection[str]) -> int:
    """Start a search, or resume one with --resume. Return the exit code. `options` are the command's options by name,
    and `given` are the names of those that are on the command line. Raises Refused without a preset, and for options
    that a resumed search cannot change."""
    following = {name: options.pop(name) for name in FOLLOWING}
    is_test, ramp = options.pop("rate_test", False), {name: options.pop(name, None) for name in ("rates", "ramp_steps")}
    if is_test:
        return _test_rates(preset, settings, options, given, ramp, following)
    if any(value is not None for value in ramp.values()):
        raise Refused("--rates and --ramp-steps go with --learning-rate-test")
    if options["dry_run"] and following["output"] is not None:
        raise Refused("--dry-run only predicts the memory: there is nothing to save with -o")
    again = options.pop("resume")
    if again is not None:
        if set(given) - OF_RESUMED_SEARCH:
            raise Refused("a resumed search keeps its preset and limits, but for --minutes: leave them out")
        minutes = options["minutes"] if "minutes" in given else None
        return _resume(again, minutes, **following)
    if preset is None:
        raise Refused("name what to tune: gputui tune --preset NAME, or --resume for the latest search")
    repeats, seconds = options.pop("repeats"), options.pop("seconds")
    asked = tune_request.of_preset(preset, settings, limits(**options), repeats=repeats, measure_seconds=seconds)
    return run_proof(asked, **following)


def _test_rates(
    preset: str | None,
    settings: Sequence[str],
    options: Mapping[str, Any],
    given: Collection[str],
    ramp: Mapping[str, Any],
    following: dict[str, Any],
) -> int:
    """Start a learning-rate range test. Raises Refused for options of a search."""
    if others := [name for name in given if name not in OF_TEST]:
        raise Refused(f"--{others[0].replace('_', '-')} does not go with --learning-rate-test")
    if preset is None:
        raise Refused("name what to test: gputui tune --preset NAME --learning-rate-test")
    values = {"low": None, "high": None} if ramp["rates"] is None else rates(ramp["rates"])
    values |= {"steps": ramp["ramp_steps"], "minutes": options["minutes"]}
    test = RateSettings(**{name: value for name, value in values.items() if value is not None})
    asked = tune_request.range_test(preset, settings, test, repeats=options["repeats"])
    return run_proof(asked, **following)


def rates(text: str) -> dict[str, Any]:
    """Return the lowest and the highest rate in a text such as `1e-6:10`. Raises Refused for another text."""
    low, _, high = text.partition(":")
    try:
        return {"low": float(low), "high": float(high)}
    except ValueError:
        raise Refused(f"--rates takes two rates such as 1e-6:10, not {text!r}") from None


def limits(
    *, only: Sequence[str], leave: Sequence[str], memory_gb: float | None, precisions: Sequence[str], **more: Any
) -> Limits:
    """Return the requested limits of the search: `only` these stages, and `leave` these options; `memory_gb` in GB."""
    return Limits(
        only=list(only) or list(STAGES),
        leave=list(leave),
        memory_bytes=None if memory_gb is None else round(memory_gb * 1e9),
        precisions=list(precisions) or None,
        **more,
    )


def _resume(name: str, minutes: float | None, *, anyway: bool, **more: Any) -> int:
    proof = _to_resume(name, "tune", "search", "--preset NAME", minutes is not None)
    if proof.record.kind == "rate":
        raise Refused(f"{proof.id} is a learning-rate test, which is not resumed: start it again")
    start, resumed = lambda: tune_request.resume(proof, anyway, minutes), lambda: tune_request.resumed(proof, minutes)
    return go_on(proof, start, resumed, anyway=anyway, **more)


GRID = SAMPLERS[0]
OF_RESUMED_SWEEP = {"resume", "minutes", "json", "markdown", "output", "queue", "after"}


def sweep(preset: str | None, settings: Sequence[str], options: dict[str, Any], given: Collection[str]) -> int:
    """Start a sweep, or resume one with --resume. Return the exit code. `options` are the command's options by name,
    and `given` are the names of those that are on the command line. Raises Refused without a preset, and for options
    that a resumed sweep cannot change."""
    again, form = options.pop("resume"), options.pop("form")
    following = {
        "as_json": form == "json", "report": form == "markdown", "anyway": options["anyway"],
    } | {name: options.pop(name) for name in ("output", "queue", "after")}  # fmt: skip
    if again is not None:
        if set(given) - OF_RESUMED_SWEEP:
            raise Refused("a resumed sweep keeps its preset and settings, but for --minutes: leave them out")
        minutes = options["minutes"] if "minutes" in given else None
        proof = _to_resume(again, "sweep", "sweep", "--preset NAME --over KEY=VALUES", minutes is not None)
        start, resumed = lambda: sweep_request.resume(proof, minutes), lambda: sweep_request.resumed(proof, minutes)
        return go_on(proof, start, resumed, wait=False, **following)
    if preset is None:
        raise Refused("name what to sweep: gputui sweep --preset NAME --over KEY=VALUES, or --resume for the latest")
    block = swept_values.parameters(preset)
    if options["sampler"] == GRID and "sampler" in given:
        block.pop("most_trials", None)  # of the block's sampler
    options |= {name: value for name, value in block.items() if name not in given}
    asked = sweep_request.of_preset(preset, settings, **options)
    return run_proof(asked, trains_on=adding.machine(), **following)


MOST_REPLICAS, MOST_COPIES = 1024, 16
OF_RESUMED_SCALING = {"resume", "json", "markdown", "wait", "anyway", "queue", "after"}


def scaling(preset: str | None, settings: Sequence[str], options: dict[str, Any], given: Collection[str]) -> int:
    """Start a measurement of scaling, or resume one with --resume. Return the exit code. `options` are the command's
    options by name, and `given` are the names of those that are on the command line. Raises Refused without a preset,
    and for options that a resumed measurement cannot change."""
    again = options.pop("resume")
    form = options.pop("form")
    following = {name: options.pop(name) for name in ("anyway", "wait", "queue", "after")}
    following |= {"as_json": form == "json", "report": form == "markdown"}
    if again is not None:
        if set(given) - OF_RESUMED_SCALING:
            raise Refused("a resumed measurement keeps its preset and replicas: leave them out with --resume")
        proof = _to_resume(again, "scaling", "measurement of scaling", "--preset NAME")
        start = partial(scaling_request.resume, proof, following["anyway"])
        resumed = partial(scaling_request.resumed, proof)
        return go_on(proof, start, resumed, output=None, **following)
    if preset is None:
        raise Refused("name what to measure: gputui scaling --preset NAME, or --resume for the latest measurement")
    seconds, output = options.pop("seconds"), options.pop("output")
    replicas, copies = (counts(options.pop(name), name) for name in ("replicas", "copies"))
    if copies and {"replicas", "keep"} & set(given):
        raise Refused("--copies trains several copies of one training on one device: leave out --replicas and --keep")
    if output is not None and not copies:
        raise Refused("-o saves the preset with the number of runs on a GPU that pays: it needs --copies")
    asked = scaling_request.of_preset(preset, settings, replicas, measure_seconds=seconds, copies=copies, **options)
    if output is not None and asked.scaling is not None and asked.scaling.shared:
        raise Refused("-o saves the number of runs on a GPU that pays, and this preset trains on the CPU: leave it out")
    return run_proof(asked, output=output, **following)


def counts(text: str | None, name: str = "replicas") -> list[int]:
    """Return the numbers in a text such as `1,2,4`, the value of the option `name`: of replicas or copies. The list is
    empty without a text. Raises Refused for other texts, and for numbers outside 1 to 1024 (copies: 16)."""
    try:
        numbers = [int(word) for word in text.split(",")] if text else []
    except ValueError:
        numbers = [0]
    most = MOST_COPIES if name == "copies" else MOST_REPLICAS
    if any(count < 1 or count > most for count in numbers):
        raise Refused(f"--{name} takes numbers of {name} from 1 to {most}, such as 1,2,4, not {text!r}")
    return numbers


OF_TRIALS = ("repeats", "seconds", "minutes", "anyway", "wait", "queue")
OF_APPLY = ("minutes", "output")


def diagnose(run: str | None, preset: str | None, settings: Sequence[str], options: Mapping[str, Any]) -> int:
    """Diagnose a run or a preset, and return the exit code. `options` are the command line's options by name. Exactly
    one of `run` and `preset` is given, else Refused is raised. It is also raised for options without an effect."""
    if (run is None) == (preset is None):
        raise Refused("name a run, such as gputui diagnose latest, or give --preset")
    if run is not None and settings:
        raise Refused("--set needs --preset; a run already has its settings")
    _refuse_idle(options, OF_APPLY, bool(options["apply"]), "--apply")
    _refuse_idle(options, ("profile",), preset is not None, "--preset; for a run, set run.profile")
    if run is not None and not options["apply"]:
        _refuse_idle(options, OF_TRIALS, False, "--apply or --preset, which measure")
        return _show_run(run_folders.find(run), options["as_json"])
    asked = _of_run(run_folders.find(run), options) if run is not None else _of_preset(str(preset), settings, options)
    names = ("as_json", "anyway", "wait", "output", "queue", "after")
    return run_proof(asked, **{name: options[name] for name in names})


def _refuse_idle(options: Mapping[str, Any], names: Sequence[str], useful: bool, with_what: str) -> None:
    for name in names:
        if options[name] and not useful:
            raise Refused(f"--{name} needs {with_what}")


def _show_run(run: Run, as_json: bool) -> int:
    """Print the diagnosis of a run, made from its recorded events, as text or as JSON (`as_json`)."""
    events = event_reading.read_events(run.path)
    for damage in events.damage:
        complain(f"{run.name}: {damage}")
    findings = diagnosis.of_run(run, events)
    if as_json:
        print(to_json(asdict(findings) | _profile(run), indent=1))
        return DONE
    diagnosis_tables.show(asdict(findings))
    if run.file("profile").is_dir():
        print()
        show_profile(run)
    if any(remedy["changes"] for remedy in findings.remedies) and request.can_be_trained(run):
        print(f"\n{how_to_try(run)}")
    elif _ended_too_soon(run, findings) and request.can_be_trained(run):
        print(f"\ngputui diagnose {run.name} --apply measures the same training for longer, and tries what could help")
    elif findings.verdict == "undecided" and (error := (run.result or {}).get("error")):
        print(clean(f"\n{error_text(error)}"))
    elif following := next_step(findings):
        print(f"\n{following}")
    return DONE


def _ended_too_soon(run: Run, findings: Diagnosis) -> bool:
    unknown = findings.verdict == "undecided" and not findings.evidence
    return unknown and run.result is not None and run.result["outcome"] == "ok" and run_cluster.of_run(run) is None


def how_to_try(run: Run) -> str:
    """Say how a run's remedies can be tried: by a command or, on several machines, by hand."""
    if run_cluster.of_run(run) is not None:
        return f"start all workers with one of them (--set), and compare the runs: gputui compare {run.name} NEW_RUN"
    return f"gputui diagnose {run.name} --apply measures them, and keeps what helps"


def _profile(run: Run) -> dict[str, Any]:
    if not run.file("profile").is_dir():
        return {"profile": None, "profile_missing": ""}
    try:
        return {"profile": asdict(reports.read(run)), "profile_missing": ""}
    except ProfileError as fault:
        return {"profile": None, "profile_missing": " ".join(str(fault).split())}


def _of_run(run: Run, options: Mapping[str, Any]) -> request.Request:
    return request.of_run(run, repeats=options["repeats"] or LEAST_REPEATS, **_limits(options))


def _of_preset(name: str, settings: Sequence[str], options: Mapping[str, Any]) -> request.Request:
    limits = _limits(options) | {"profile": options["profile"]}
    if options["apply"]:
        repeats = options["repeats"] or LEAST_REPEATS
        return request.of_preset("loop", name, settings, repeats=repeats, ablation_repeats=1, **limits)
    return request.of_preset("diagnosis", name, settings, ablation_repeats=options["repeats"] or 1, **limits)


def _limits(options: Mapping[str, Any]) -> dict[str, Any]:
    minutes = options["minutes"]
    return {
        "measure_seconds": options["seconds"] or TRIAL_SECONDS,
        "limit_seconds": None if minutes is None else 60 * minutes,
    }
