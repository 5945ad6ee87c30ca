"""Starts or resumes a measurement, follows it and prints its result, for all commands that measure; and `gputui proof`.
Ctrl-C requests it to stop and shows its results so far; a second ends it at once. SIGHUP ends the command only."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from ...engine.trials import LEAST_REPEATS, RESUMABLE
from ...engine.trials.kinds import KINDS, MAKERS, kind
from ..base import errors
from ..base.errors import Refused, complain
from . import completion, is_called
from .shared_options import NEEDS_QUEUE, Command, given, one_of, preset_option, queue_options, settings_option, together

if is_called():
    from ...engine.files.values import to_json
    from ...engine.files.writing import used_bytes
    from ...engine.job import this_machine
    from ...engine.job.machine_gpus import Machine
    from ...engine.plan import LEAST_STEPS
    from ...engine.presets import PresetError
    from ...engine.proof import duration, folder, improved_preset, proof_start, request
    from ...engine.proof.folder import Proof
    from ...engine.proof.request import ProofError, Request
    from ...engine.queue import adding
    from ...engine.trials import proof_sentences, search_results, sweep_record
    from ...engine.trials.record import Record
    from ...engine.trials.report import as_markdown, titled, without_private
    from ...engine.tune import tune_request
    from ...engine.units import counted, estimate
    from ..base import glyphs
    from ..base.glyphs import draws_again
    from ..printing import proof as proof_tables
    from ..printing.plain_tables import console
    from ..printing.proof import ProofLines
    from . import queue as in_queue
    from . import runs
    from .stopping import Presses, stop_in_queue

MOST_WIDTH = 100  # of a printed chart
DETAILS_HELP = "Also print the tables and the reasons behind the answer."
WAIT_HELP = "Wait until no other training uses these devices, then begin."
ANYWAY_HELP = (
    "Measure even if another gputui run uses the same devices; the result says which trials were disturbed. With "
    "--queue: wait for GPUs, but not for trainings outside of the queue that use the CPU."
)


@dataclass(frozen=True)
class FollowOptions:
    """How a measurement is followed: what is printed (else tables) and saved, and what it waits for. The fields are the
    options that all commands share which measure; see their help in `follow_options`."""

    json: bool = False
    markdown: bool = False
    output: str | None = None
    details: bool = False
    wait: bool = False
    anyway: bool = False
    queue: bool = False
    after: str | None = None

    @property
    def quiet(self) -> bool:
        """True if stdout has only JSON or a report."""
        return self.json or self.markdown

    def say(self, text: str) -> None:
        if self.quiet:
            complain(text)
        else:
            print(text, flush=True)


FOLLOWING = {field.name for field in fields(FollowOptions)}


def follow_options(
    *, json: str, markdown: str = "", output: str = "", wait: bool = True, anyway: str = ANYWAY_HELP
) -> Callable[[Command], Command]:
    """Declare the options of FollowOptions for a command, which gets them as `how`. The texts are their help; without a
    text the command does not have the option."""

    def declare(command: Command) -> Command:
        @functools.wraps(command)
        def followed(*arguments: Any, **options: Any) -> Any:
            how = FollowOptions(**{name: options.pop(name) for name in FOLLOWING & options.keys()})
            if how.json and how.markdown:
                raise Refused("--json and --markdown do not go together")
            return command(*arguments, how=how, **options)

        waits = WAIT_HELP if wait else ""
        flags = [
            ("json", json), ("markdown", markdown), ("details", DETAILS_HELP), ("wait", waits), ("anyway", anyway)
        ]  # fmt: skip
        named = [click.option(f"--{name}", is_flag=True, help=text) for name, text in flags if text]
        saved = [click.option("-o", "--output", metavar="FILE", help=output)] if output else []
        together(*saved, *named, queue_options)(followed)
        return followed

    return declare


def resume_option(
    kind: str, again: Collection[str] = FOLLOWING, asks_for: str = "--preset NAME"
) -> Callable[[Command], Command]:
    """Under `follow_options`: declare --resume for a command of this kind, if it is resumed. It goes with the options
    `again` alone; without it, --preset must be given. `asks_for` is what starts a measurement."""
    declared, more = KINDS[kind], "minutes" in again
    if not declared.resumes:
        return lambda command: command
    noun = declared.full_noun.removeprefix("a ")
    also = f"; with --minutes also {declared.full_noun} that has ended" if more else ""

    def declare(command: Command) -> Command:
        @click.option("--resume", metavar=f"[{declared.noun.upper()}]", is_flag=False, flag_value="latest",
            help=f"Continue {declared.full_noun} that was stopped or killed (default: the latest){also}.")  # fmt: skip
        @click.pass_context
        @functools.wraps(command)
        def begun(context: click.Context, /, *, resume: str | None, how: FollowOptions, **options: Any) -> Any:
            named = given(context)
            if resume is None and options["preset"] is None:
                begins = f"gputui {context.info_name} {asks_for}"
                raise Refused(f"name a preset: {begins}, or --resume for the latest {noun}")
            if resume is None:
                return command(how=how, **options)
            if not {"resume", *again}.issuperset(named):
                but = ", but for --minutes" if more else ""
                raise Refused(f"a resumed {noun} keeps its preset and options{but}: leave them out with --resume")
            minutes = options["minutes"] if more and "minutes" in named else None
            proof = folder.find(resume) if resume != "latest" else _latest(kind, minutes is not None)
            if proof is None:
                raise ProofError(f"there is no {noun} to go on with; gputui {kind} {asks_for} starts one")
            return measure(tune_request.resumed(proof, kind, minutes), how, proof)

        return begun

    return declare


def _latest(kind: str, any_ended: bool) -> Proof | None:
    """The latest proof of this kind that can go on (`any_ended`: or has ended), else the newest, refused later."""
    newest, passed_over = None, ("running", "waiting") if any_ended else ("done", "running", "waiting")
    for proof in folder.proofs():
        with suppress(ProofError, PresetError):  # a proof that cannot be read is skipped
            asked = proof.request
            if asked.kind == kind and not (asked.search and asked.search.dry_run):
                if proof.state not in passed_over:
                    return proof
                newest = newest or proof
    return newest


def measure(asked: Request, how: FollowOptions, resumes: Proof | None = None, trains_on: Machine | None = None) -> int:
    """Start the measurement `asked`, or go on with the one that it `resumes`; follow it and print its result. Return
    the exit code. `trains_on` is the machine of the trials, None for this one."""
    if how.queue and (how.quiet or how.wait or how.output is not None):
        raise Refused(
            "--queue measures nothing now: leave out --json, --markdown, --wait and -o; gputui proof ID "
            "shows the result, and -o FILE there saves the improved preset"
        )
    if how.after is not None and not how.queue:
        raise Refused(NEEDS_QUEUE)
    if how.queue and resumes is not None:
        return in_queue.added(adding.queue_resumed_proof(resumes, asked, in_queue.first(how.after), how.anyway))
    if how.queue:
        entry = adding.queue_proof(asked, in_queue.first(how.after), how.anyway)
        for remark in request.remarks(asked, adding.machine()):
            complain(remark)
        return in_queue.added(entry)
    if how.output is not None:
        improved_preset.refuse(Path(how.output))
    presses = Presses(asked.preset_options.run.stop_signal)  # from here on Ctrl-C is for the measurement
    if how.wait:
        proof_start.wait(asked, how.say, lambda: presses.count > 0)
        if presses.count:
            return errors.INTERRUPTED
    noun = kind(asked.kind).noun
    if resumes is not None:
        proof = resumes
        process = proof_start.start_again(proof, asked, how.anyway)
        begun = f"{noun} {proof.id} goes on"
    else:
        proof, process = proof_start.begin(asked, how.anyway, trains_on)
        for remark in request.remarks(asked, trains_on or this_machine.read()):
            complain(remark)
        begun = f"{noun} {proof.id}: {budget(asked)}"
    try:
        if not how.quiet:
            print(begun, flush=True)
        presses.ask(lambda numbers: folder.request_stop(proof, numbers), lambda: process.poll() is None)
        view = None if how.quiet else ProofLines(console(), draws_again(console().is_dumb_terminal))
        try:
            for _ in presses.rounds(lambda: process.poll() is None, lambda more: how.say(f"stopping{more}")):
                if view is not None and (data := proof.record).is_read:
                    view.show(data)
            if view is not None:
                view.show(proof.record)
        finally:
            if view is not None:
                view.close()
    except errors.OutputFault as fault:
        return errors.unheard(fault, f"{proof.id} goes on; show it with: gputui proof {proof.id}")
    _show_end(proof, how)
    return _code(proof.record, presses)


def _show_end(proof: Proof, how: FollowOptions) -> None:
    """Print the result of a measurement that has ended, save its preset, and say what can be done next."""
    data = proof.record
    saved = how.output is not None and bool(proof_sentences.to_take(data))
    if how.output is not None and saved:
        improved_preset.save(proof, Path(how.output))
    if how.json:
        print(to_json(shareable(proof.data), indent=1))
    elif how.markdown:
        print(as_markdown(data), end="")
    else:
        _show_answer(data, how.details, how.output if saved else None, was_followed=True)
    if how.output is not None and not saved:
        failed, worse = data.state == "failed", data.kind == "tune" and proof_sentences.learns_worse(data)
        why = "what is faster learns clearly worse" if worse else kind(data.kind).nothing
        how.say(f"{how.output} is not written: {f'the {kind(data.kind).noun} failed' if failed else why}")
    elif how.output is not None and how.quiet:
        how.say(saved_text(how.output, data))


def _show_answer(data: Record, details: bool, output: str | None = None, was_followed: bool = False) -> None:
    """Print the answer in at most ten lines, after the details if they are asked for. `output` is the saved preset."""
    if details:
        show_rates(data)
        proof_tables.show_details(data, was_followed)
        if data.kind == "tune" and (steps := search_results.next_steps(data)):
            proof_tables.show(["What can follow:", steps])
            print()
    more, proposed = [], "fastest.yaml" if data.kind == "tune" else "improved.yaml"
    if proof_sentences.to_take(data) and data.state != "running":
        mark = ", marked as not proved" if proof_sentences.unproved(data) else ""
        saved = f"{output} is saved" if output else f"gputui proof {data.id} -o {proposed} saves it"
        more += [("preset", f"{saved}{mark}"), ("train", f"gputui --preset {output or proposed}")]
    if kind(data.kind).resumes and data.state in (RESUMABLE if data.kind == "tune" else ("stopped", "crashed")):
        more.append(("go on", f"gputui {data.kind} --resume {data.id}"))
    if not details and data.state not in ("running", "waiting"):
        more.append(("details", f"gputui proof {data.id} --details"))
    if was_followed:
        print()
    proof_tables.show_answer(data, more)


def saved_text(output: str, data: Record) -> str:
    marked = ", with settings that are not proved, as its first line says" if proof_sentences.unproved(data) else ""
    return f"{output} is saved{marked}; gputui --preset {output} trains with it"


def show_rates(data: Record) -> None:
    if data.rate is None:
        return
    from ..drawing import rate  # only for a range test

    for row in rate.chart(data.rate, min(console().width, MOST_WIDTH), rate.TALL, glyphs.suited()):
        print("".join(text for text, _ in row).rstrip())


def shareable(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of proof.json without the private options of its presets, which may hold secrets."""
    texts = {name: without_private(data[name]) for name in ("preset_before", "preset_after") if data.get(name)}
    return {**data, **texts}


def budget(asked: Request) -> str:
    """Return the expected duration of the proof in words, estimated from its request before the start."""
    if asked.rate is not None:
        trainings = f"a ramp of {asked.rate.steps} steps, then {2 * asked.repeats} trainings on new seeds"
        return f"{trainings}, at most {estimate(60 * asked.rate.minutes)}"
    if asked.sweep is not None:
        return sweep_record.plan(asked.sweep)
    if asked.search is not None:
        buys = tune_request.plan_of(asked.search, asked.preset_name, asked.repeats, asked.measure_seconds).in_words()
        if asked.search.dry_run:
            return f"at most 2 trials of about {duration.of_request(asked):.0f} s; a whole search: {buys}"
        return f"{buys}; Ctrl-C ends it, gputui tune --resume goes on with it"
    if kind(asked.kind).learns:
        return f"{counted(duration.sure_trials(asked), 'whole trainings')} of {asked.preset_name}"
    times = duration.times_of(asked)
    count, each = duration.sure_trials(asked), times.seconds(asked.measure_seconds)
    whole = estimate(times.first + count * each)
    text = f"{counted(count, 'trials')} of about {each:.0f} s ({times.source}): about {whole}"
    if not times.step:
        text += f" (longer where {LEAST_STEPS} steps take more than {asked.measure_seconds:g} s)"
    if asked.kind == "loop":
        more = 2 * asked.repeats
        text = f"at first {text}; {more} trials ({estimate(more * each)}) for each further remedy"
        limit = f"; none is begun that would end after {estimate(asked.limit_seconds)}" if asked.limit_seconds else ""
        return text + limit
    return text


def _code(data: Record, presses: Presses) -> int:
    if data.state == "stopped" or presses.count:
        return errors.INTERRUPTED
    unusable = data.kind == "ab" and any(comparison.decision == "failed" for comparison in data.comparisons[:1])
    unusable = unusable or (data.kind == "scaling" and data.gain_total is None)
    if data.state == "done" and not unusable:
        return errors.DONE
    decisive = [trial for _, trial in titled(data)][-1:]
    return errors.OUT_OF_MEMORY if decisive and decisive[0].outcome == "oom" else errors.FAILED


def command_of_kind(name: str) -> click.Command:
    """Return the command of a kind with a `purpose`, which has no options but the preset and the number of repeats."""
    declared = KINDS[name]

    @preset_option("The preset to measure.", required=not declared.resumes)
    @settings_option()
    @click.option("--repeats", type=click.IntRange(min=LEAST_REPEATS), metavar="N", default=LEAST_REPEATS,
        show_default=True, help=f"Number of {declared.extent.partition(' ')[0]}.")  # fmt: skip
    @follow_options(json="Print the measurement as one JSON object, at the end.",
        markdown="Print a report in Markdown, at the end.")  # fmt: skip
    @resume_option(name)
    def begun(preset: str, settings: Sequence[str], repeats: int, how: FollowOptions) -> int:
        return measure(request.of_preset(name, preset, settings, repeats=repeats), how)

    method = f"{declared.method[:1].upper()}{declared.method[1:]}."
    return click.command(name, help=f"{method}\n\n\b\ngputui {name} --preset quickstart --repeats 5")(begun)


# For the table of cli.py, which names this module for them.
globals().update({name: command_of_kind(name) for name, declared in KINDS.items() if declared.purpose})


@click.command(
    "proof",
    help=f"""Each measurement is a proof: {MAKERS}.

    \b
    gputui proof latest              show the latest
    gputui proof rm 20260921-1405    delete proofs for good, with their trials
    """,
)
@click.argument("names", metavar="[PROOF | rm PROOF...]", nargs=-1, shell_complete=completion.proof)
@one_of(json="Print one JSON object.", markdown="Print a report in Markdown.")
@click.option("--details", is_flag=True, help=DETAILS_HELP)
@click.option("-o", "--output", metavar="FILE", help="Save the improved preset to FILE.")
@click.option("--stop", is_flag=True, help="Stop the proof and its current trial gracefully; a second time, at once.")
@click.option("--yes", is_flag=True, help="With rm: delete without asking.")
def proof(names: Sequence[str], form: str | None, details: bool, output: str | None, stop: bool, yes: bool) -> int:
    if names[:1] == ("rm",):
        if form or output or stop:
            raise Refused("rm goes only with --yes")
        return _remove(names[1:], yes)
    if yes or len(names) > 1:
        raise Refused("--yes goes only with rm" if yes else "show one proof at a time; rm takes several")
    if not names and (form == "markdown" or output or stop):
        raise Refused("name a proof; gputui proof lists them")
    if sum(map(bool, (form, output, stop))) > 1:
        raise Refused("use only one of --json, --markdown, -o and --stop")
    if not names:
        _list(as_json=form == "json")
        return errors.DONE
    named = folder.find(names[0])
    if stop:
        if not stop_in_queue(named, named.id, "its trial"):
            folder.request_stop(named)
            print(f"{named.id} is stopping; repeat the command to end its trial at once")
    elif output is not None:
        improved_preset.refuse(Path(output))
        improved_preset.save(named, Path(output))
        print(saved_text(output, named.record))
    else:
        _show(named, form, details)
    return errors.DONE


def _list(as_json: bool) -> None:
    """Print all proofs as a table, or as one JSON object per line."""
    listed = folder.proofs()
    if as_json:
        for proof in listed:
            names = ("kind", "state", "preset_name", "started_t", "seconds", "gain_total", "changes_kept", "error")
            data = proof.data
            head = {name: data.get(name) for name in names}
            print(to_json({"id": proof.id, "path": str(proof.path), **head, "bytes": used_bytes(proof.path)}))
    elif not listed:
        print(f"no proofs so far; {MAKERS}")
    else:
        records = {proof.id: proof.record for proof in listed}
        if lost := [name for name, data in records.items() if not data.is_read]:
            complain(f"left out, as proof.json is damaged: {', '.join(lost)}")
        sizes = {proof.id: used_bytes(proof.path) for proof in listed}
        proof_tables.show_list([data for data in records.values() if data.is_read], sizes)


def _remove(names: Sequence[str], yes: bool) -> int:
    """Delete the named proofs with their trials permanently. Raises Refused without a terminal for the question."""
    if not names:
        raise Refused("name the proofs to delete; gputui proof lists them")
    if "latest" in names:
        raise Refused("latest may be another proof by now, and is not deleted; name the proof")
    proofs = list(dict.fromkeys(folder.find(name) for name in names))
    if not yes:
        lines = [f"{proof.id}  {proof.record.kind}" for proof in proofs]
        runs.ask_before_deleting(proofs, lines, "proof", "all its trials" if len(proofs) == 1 else "all their trials")
    return errors.WRONG if runs.delete(proofs, "proofs", folder.reserved) else errors.DONE


def _show(proof: Proof, form: str | None, details: bool) -> None:
    data = proof.record
    if not data.is_read:
        raise ProofError(f"{proof.path / 'proof.json'} cannot be read")
    if form is None:
        _show_answer(data, details)
    elif form == "json":
        print(to_json(shareable(proof.data), indent=1))
    else:
        print(as_markdown(data), end="")
