"""The commands about one run: watch and stop it, write a note and tags, and write its figures elsewhere."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from ...engine.follow_targets import FOLLOW_TARGETS
from ..base.errors import DONE, FAILED, INTERRUPTED, STDOUT, WRONG, Refused, clean, complain
from . import completion, is_called
from .shared_options import one_of

if is_called():
    from ...engine import runs as run_folders
    from ...engine.files import writing
    from ...engine.files.values import to_json
    from ...engine.files.writing import refuse_existing, write_new
    from ...engine.follow import following, to_tensorboard
    from ...engine.follow.following import FollowerState
    from ...engine.presets import SHIPPED
    from ...engine.runs import RunError, controls, event_reading, titles
    from ...engine.runs import history as run_history
    from ...engine.runs.events import ControlName
    from ...engine.runs.launched_with import options_of
    from ...engine.runs.parsing import line_of
    from ...engine.runs.run import STATE_LABELS, WAITING
    from ...engine.units import counted
    from ..show import show
    from .stopping import stop_in_queue


@click.command()
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option(
    "--replay", metavar="[SPEED]", is_flag=False, flag_value="1", help="Replay a recorded run, SPEED times as fast."
)
def watch(run: str, replay: str | None) -> int:
    followed = run_folders.find(run)
    try:
        speed = None if replay is None else float(replay)
    except ValueError:
        raise Refused(f"--replay takes a number such as --replay=10, not {replay!r}") from None
    if speed is not None and not 0 < speed < 1e6:
        raise Refused("--replay takes a number above 0")
    return show(opens=("live", followed, speed), instead=f"gputui logs {followed.name} prints the log")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="RUN...", shell_complete=completion.run)
def stop(names: Sequence[str]) -> int:
    """They finish their step and write their result. A second stop ends them at once."""
    code = DONE
    for name in dict.fromkeys(names):
        try:
            run = run_folders.find(name)
            if stop_in_queue(run, run.name, "it"):
                continue
            run_folders.request_stop(run)
        except RunError as fault:
            complain(fault)
            code = WRONG
            continue
        deadline = time.monotonic() + 2
        while (state := run.state) in ("running", "stopping") and time.monotonic() < deadline:
            time.sleep(0.1)
        stopping = "is stopping; repeat the command to end it at once"
        print(f"{run.name} {stopping if state in ('running', 'stopping') else STATE_LABELS.get(state, state)}")
    return code


@click.command()
@click.argument("run", shell_complete=completion.run)
@click.argument("control", type=click.Choice(("checkpoint", "evaluate", "rate", "end-epoch")))
@click.argument("factor", type=click.FloatRange(0, 1e6, min_open=True), required=False)
@click.option("--at-step", type=click.IntRange(min=1), metavar="N", help="After step N instead of the present one.")
def tell(run: str, control: ControlName, factor: float | None, at_step: int | None) -> int:
    """`checkpoint` writes one now, `evaluate` evaluates the model now, `rate 0.5` multiplies the learning rate, and
    `end-epoch` ends the training after this epoch. A resumed run has the same effects at the same steps.
    """
    if (control == "rate") != (factor is not None):
        raise Refused("give the factor of the learning rate: gputui tell RUN rate 0.5" if factor is None
                      else f"{control} takes no number")  # fmt: skip
    named = run_folders.find(run)
    if (answer := controls.tell(named, control, factor, at_step)) is None:
        when = f"step {at_step:,}" if at_step else "its present work"
        print(f"{named.name} does it after {when}; gputui watch {named.name} shows it")
        return DONE
    print(clean(f"{named.name} after step {answer.step:,}: {answer.message}"))
    return WRONG if answer.refused else DONE


@click.command()
@click.argument("run", shell_complete=completion.run)
@click.argument("text", nargs=-1)
@click.option("--name", metavar="NAME", help='Give the run this name in place of its preset\'s; "" takes it away.')
def note(run: str, text: Sequence[str], name: str | None) -> None:
    """Lists and screens show the note. Without TEXT it is printed; "" as the text removes it."""
    named = run_folders.find(run)
    if name is not None:
        titles.rename(named, name)
    if text:
        titles.write_note(named, " ".join(text))
    elif name is None:
        print(clean(titles.read_notes(named).note) or f"{clean(named.name)} has no note")


@click.command()
@click.argument("run", shell_complete=completion.run)
@click.argument("tags", nargs=-1, metavar="[TAG]...", shell_complete=completion.tag)
@click.option("-d", "--delete", "remove", is_flag=True, help="Remove these tags instead.")
def tag(run: str, tags: Sequence[str], remove: bool) -> None:
    """`gputui runs --tag` and the filter of the screens find runs by their tags. Without TAG the tags are printed."""
    named = run_folders.find(run)
    notes = titles.read_notes(named)
    if remove and not tags:
        raise Refused("name the tags to remove")
    if remove and (missing := [each for each in titles.tags_in(tags) if each not in notes.tags]):
        raise Refused(f"{named.name} has no tag {' or '.join(missing)}; gputui tag {named.name} prints its tags")
    if tags:
        notes = titles.retag(named, () if remove else tags, tags if remove else ())
    print(clean(" ".join(f"#{each}" for each in notes.tags)) or f"{clean(named.name)} has no tags")


POLL_SECONDS = 0.2


@click.command("history")
@click.argument("run", default="latest", shell_complete=completion.run)
@one_of("csv", csv="One row for each progress report (the default).",
    jsonl="The run's events, one JSON object per line.", tensorboard="A folder for TensorBoard.",
    schema="The JSON Schema of events and of result.json.")  # fmt: skip
@click.option("-o", "--output", metavar="PATH",
    help="The file (default, and -: stdout); with --tensorboard the folder (default: ./RUN, named "
    "after the run's id).")  # fmt: skip
@click.option("--since", metavar="PLACE", help="With --jsonl: the events after a place, from 0 on; the last line "
    "has the next place, as `since`, and the run's state.")  # fmt: skip
def history(run: str, form: str, output: str | None, since: str | None) -> None:
    """By default those of the latest run are exported."""
    if since is not None and form != "jsonl":
        raise Refused("--since needs --jsonl")
    if form == "schema":
        _write((SHIPPED / "run-schema.json").read_text(encoding="utf-8"), output)
        return
    named = run_folders.find(run)
    if output == STDOUT and form != "tensorboard":
        output = None
    if output is not None:
        refuse_existing(Path(output))
    if form == "tensorboard":
        folder = Path(output or named.id)
        refuse_existing(folder)
        if (path := to_tensorboard.write_all(named, folder)) is None:
            raise Refused(f"{named.name} has no figures")
        print(f"{clean(str(path))} written; tensorboard --logdir {clean(str(folder))} shows it")
        return
    state = named.state  # before its events: after a run's end, none is missed
    recorded = (
        event_reading.read_events(named.path, keep_lines=form == "jsonl")
        if since is None
        else event_reading.read_since(named, since)
    )
    for damage in recorded.damage:
        complain(f"{named.name}: {damage}")
    if form == "jsonl":
        lines = [line_of(event) for event in recorded.events]
        if since is not None:
            end = {"type": "place", "run": named.id, "since": recorded.place, "state": STATE_LABELS.get(state, state)}
            lines.append(to_json({"t": time.time(), **end}))
        _write("".join(f"{line}\n" for line in lines), output)
        return
    table = run_history.rows(recorded.events)
    if not table:
        goes_on = named.is_active or named.state == WAITING
        why = " so far" if goes_on else ": it ended before its first step"
        why = ": it is a command" if options_of(named).get("workload.command") else why
        raise Refused(f"{named.name} has no figures{'' if recorded.damage else why}")
    out = io.StringIO()
    writer = csv.DictWriter(out, run_history.columns(table), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    _write(out.getvalue(), output)


def _write(text: str, output: str | None) -> None:
    if output is None or output == STDOUT:
        sys.stdout.write(text)
    else:
        write_new(Path(output), text)
        print(f"{clean(output)} written")


@click.command("follow")
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option(
    "--to", "targets", type=click.Choice(FOLLOW_TARGETS), multiple=True, help="Where to write; may be repeated."
)
@click.option("--detach", is_flag=True, help="Return at once; the followers go on in the background.")
def follow(run: str, targets: Sequence[str], detach: bool) -> int:
    """It can be started before, during and after the run, and stopped at any time: it goes on from its place. Without
    --to, the followers of the run are listed.
    """
    followed, targets = run_folders.find(run), tuple(dict.fromkeys(targets))
    if not targets:
        if detach:
            raise Refused("--detach needs --to TARGET")
        states = following.states(followed.path)
        if not states:
            some = "--to tensorboard starts one, and gputui follow --help lists others"
            raise Refused(f"{followed.name} has no followers; {some}")
        for state in states:
            print(clean(f"{state.target}: {_line(state)}"))
        return DONE
    if lines := following.missing(targets):
        raise Refused("\n".join(lines))
    if full := writing.try_writing(followed.path):
        raise Refused(f"{full}; a follower notes there how far it is")
    followers = {target: following.start(followed.path, target) for target in targets}
    if detach:
        print(f"{followed.name} is followed in the background; gputui follow {followed.name} shows how far it is")
        return DONE
    code, problems = DONE, dict.fromkeys(followers, "")
    try:
        while followers:  # until all have ended; DONE if all have written everything
            time.sleep(POLL_SECONDS)
            for target, process in list(followers.items()):
                ended, state = process.poll() is not None, following.state(followed.path, target)
                if ended and process.returncode == 0 and state.is_alive:
                    continue  # another follower of this target goes on
                if ended:
                    del followers[target]
                    code = code if process.returncode == 0 else FAILED
                    print(clean(f"{target}: {_line(state)}"), flush=True)
                elif state.is_alive and state.place.problem != problems[target]:
                    problems[target] = state.place.problem
                    complain(f"{target}: {state.words}")
        return code
    except KeyboardInterrupt:
        for process in followers.values():
            process.terminate()
        complain(f"gputui follow {followed.name} {' '.join(f'--to {target}' for target in targets)} goes on from here")
        return INTERRUPTED


def _line(state: FollowerState) -> str:
    where = f" to {state.place.where}" if state.place.where else ""
    return f"{state.words}, {counted(state.place.number, 'rows')} written{where}"
