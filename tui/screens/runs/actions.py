"""The actions on a run, for every screen that shows one. All work with the disk runs in a thread.
Deferred imports: starting a run is needed only when a key asks for it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from textual import work
from textual.binding import BindingType

from ....engine import presets, runs
from ....engine.figures import at
from ....engine.files import typed
from ....engine.presets import PresetError
from ....engine.runs import Run, RunError, code_files, controls, titles
from ....engine.runs.event_reading import HEAD_BYTES, events_of
from ....engine.runs.events import Started
from ....engine.runs.launched_with import options_of
from ....engine.runs.titles import FILE, Notes, Origin, name_of, preset_of, with_name
from ....engine.units import clock, count
from ...base import keys
from ...base.base_app import Act
from ...base.errors import clean
from ...form.form_state import to_text
from ...reading.run_list import entry_of
from ..dialogs import Ask, AskText, Copyable, CopyScreen, TellScreen, UndoActions

if TYPE_CHECKING:
    from ....engine.proof.folder import Proof
    from ....engine.queue.entry_changes import Removed
    from ....engine.runs.events import ControlName
    from ...base.base_app import BaseApp
    from ...reading.queue_places import Waiting
    from ..starting import Start


STOP_NOW = (
    "This run has been asked to stop and finishes its step.\nStop it now? Everything after the last checkpoint is lost."
)
END_COMMAND = "This command has been asked to stop, and is ended by force 30 seconds later.\nEnd it now?"

NEW_CODE, COPIED_CODE = "Go on with the new code", "Use the run's copy"


TAKE_OUT, KEEP = "Take out", "Keep waiting"
ENDS = "It has not begun, and ends as stopped; its folder stays."
NOT_WAITING = "this run does not wait in the queue"
HELD = "this run is held, behind all others: release it first"
NO_CHECKPOINT = "there is no stopped run with a checkpoint here"
STAYS = "It has begun before: its result and its checkpoints stay."
TOLD = [
    Copyable("checkpoint", "write one now", lambda: "checkpoint"),
    Copyable("evaluate", "with the validation data, now", lambda: "evaluate"),
    Copyable("rate x 0.5", "half of the learning rate; gputui tell takes any factor", lambda: "rate 0.5"),
    Copyable("rate x 2", "twice the learning rate", lambda: "rate 2"),
    Copyable("end", "the training ends after this epoch", lambda: "end-epoch"),
]
BINDINGS: list[BindingType] = [
    keys.bind("queue_up", "move_waiting('up')"),
    keys.bind("queue_down", "move_waiting('down')"),
    keys.bind("queue_top", "move_waiting('top')"),
    keys.bind("hold", "hold_waiting", meaning="hold the waiting run, so that it is not started"),
    keys.bind("hold", "release_waiting", "Release", meaning="release the held run, so that it is started in its turn"),
    keys.bind("stop", "take_out", "Take out", meaning="take the waiting run out of the queue"),
]


class RunActions(UndoActions):
    """The actions on runs, also on waiting ones, for a screen. Subclasses name the runs in `runs_meant` and the place
    in the queue in `waiting_now`, and show the run again in `acted`."""

    PLACE = "runs"

    def taken_back(self, _act: Act) -> None:
        if (run := self.run_meant) is not None:
            self.acted(run)

    @property
    def runs_meant(self) -> list[Run]:
        """Return the runs to which the next action applies: tags to all of them, the others use `run_meant`."""
        raise NotImplementedError

    @property
    def run_meant(self) -> Run | None:
        """The run to which the next action applies: by default the first of `runs_meant`. None if there is none."""
        return next(iter(self.runs_meant), None)

    def acted(self, run: Run, resumed: bool = False) -> None:
        """Show the run again, which an action has changed. `resumed` is True if the run was resumed."""

    def say(self, text: str, severity: Any = "information") -> None:
        self.notify(clean(text), severity=severity, markup=False)

    # ---- copying --------------------------------------------------------------------------------

    def copyables(self) -> Iterator[Copyable]:
        """Yield further texts about the run that the user can copy. By default none."""
        yield from ()

    @work(group="choosing")
    async def action_copy(self) -> None:
        """Copy the text selected with the mouse, or let the user choose among texts about the run."""
        if selected := self.get_selected_text():
            self.app.copy(selected, "the selection")
        elif (run := self.run_meant) is not None:
            path = str(run.path)
            settings, preset = await asyncio.to_thread(_texts, run)
            offered = [
                Copyable("id of the run", run.id, lambda: run.id),
                Copyable("folder", path, lambda: path),
                Copyable("command", f"gputui --preset run:{run.name}", lambda: f"gputui --preset run:{run.name}"),
                Copyable("settings", settings, lambda: settings),
                Copyable("preset", "every option, as YAML", lambda: preset),
            ]
            chosen = await self.app.push_screen_wait(CopyScreen([*offered, *self.copyables()]))
            if chosen is not None:
                self.app.copy(chosen.text(), f"{chosen.name}: {chosen.preview}")

    # ---- stopping -------------------------------------------------------------------------------

    @work(group="stop")
    async def action_stop(self) -> None:
        """Ask the run to stop after its step; a second time, or if steps would be lost, ask the user first."""
        if (run := self.run_meant) is None:
            return
        already_stopped, lost = await asyncio.to_thread(_before_stopping, run)
        command = (await asyncio.to_thread(options_of, run)).get("workload.command")
        after_step = "" if command else " after this step"
        if already_stopped or await asyncio.to_thread(self.app.is_stopping, run):
            question = END_COMMAND if command else STOP_NOW
            answers, message = ("Stop now", "Keep waiting"), "stopping at once"
        else:
            question, answers = lost, ("Stop", "Keep running")
            message = f"stopping{after_step}; press {self.app.key('stop')} again to stop at once"
        if question and await self.app.push_screen_wait(Ask(question, answers, "stop")) != answers[0]:
            return
        self.app.stopping_runs[run.id] = await asyncio.to_thread(run.process, "engine")
        try:
            await asyncio.to_thread(request_stop, run, runs.request_stop)
        except (RunError, OSError) as reason:
            self.app.stopping_runs.pop(run.id, None)
            message = str(reason)
        self.say(message)
        self.acted(run)

    @work(group="tell")
    async def action_tell(self) -> None:
        """Let the user choose what the run does now, and say what it has done."""
        if (run := self.run_meant) is None or (chosen := await self.app.push_screen_wait(TellScreen(TOLD))) is None:
            return
        name, _, factor = chosen.text().partition(" ")
        try:
            control = cast("ControlName", name)
            answer = await asyncio.to_thread(controls.tell, run, control, float(factor) if factor else None)
        except (RunError, OSError) as reason:
            self.say(why(run, reason), "error")
        else:
            what = f"after step {answer.step:,}: {answer.message}" if answer else "it does it after its present work"
            self.say(what, "warning" if answer and answer.refused else "information")

    # ---- starting -------------------------------------------------------------------------------

    @work(group="start", exclusive=True)
    async def action_resume(self) -> None:
        """Resume the run in its folder. If the user's code has changed, ask first."""
        from ..starting import code_changed, resumed_run

        if (run := self.run_meant) is None:
            return
        answer: str | None = ""
        if changed := await asyncio.to_thread(code_changed, run):
            has_copy = await asyncio.to_thread(code_files.can_use_copy, run)
            answers = (NEW_CODE, *((COPIED_CODE,) if has_copy else ()), "Cancel")
            question = Ask(f"{changed}.\nGo on with the new code?", answers)
            if (answer := await self.app.push_screen_wait(question)) in (None, "Cancel"):
                return
        start = await asyncio.to_thread(resumed_run, run, answer == NEW_CODE, answer == COPIED_CODE)
        if await self._launched(run, start, "") is not None:
            self.app.stopping_runs.pop(run.id, None)
            self.say(f"{await asyncio.to_thread(with_name, run)} is resumed from its last checkpoint")
            self.acted(run, resumed=True)

    @work(group="start", exclusive=True)
    async def action_again(self) -> None:
        from ..starting import new_run

        if (run := self.run_meant) is None:
            return
        try:
            preset = await asyncio.to_thread(presets.resolve, str(run.file("preset.yaml")))
            if await _is_own_fit(self.app, run, "start"):
                return
            start = new_run(self.app, replace(preset, name=name_of(run)))
        except PresetError as reason:
            self.say(f"cannot run it again: {why(run, reason)}", "error")
            return
        if (again := await self._launched(run, start, "cannot run it again: ")) is not None:
            self.app.open_run(again)

    async def _launched(self, of: Run, start: Start, lead: str) -> Run | None:
        """Start a run. None if it waits or was cancelled, and after a message if it cannot be started."""
        from ..starting import ConflictError, ask_and_launch

        try:
            return cast("Run | None", await ask_and_launch(self.app, start))
        except (ConflictError, PresetError, RunError, OSError) as reason:
            self.say(f"{lead}{why(of, reason)}", "error")
            return None

    async def action_change(self) -> None:
        if (run := self.run_meant) is not None:
            await open_in_form(self.app, run)

    # ---- name, note and tags --------------------------------------------------------------------

    @work(group="noting")
    async def action_name(self) -> None:
        if (run := self.run_meant) is None:
            return
        before, named = await asyncio.to_thread(lambda: (titles.own_name(run), with_name(run)))
        name = await self.app.push_screen_wait(AskText(f"Name of {named}, empty for none", before, _no_name))
        if name is None or name == before:
            return
        try:
            await asyncio.to_thread(titles.rename, run, name)
        except (RunError, OSError) as reason:
            self.app.complain(f"not named: {why(run, reason)}")
        else:
            self.acted(run)
            self.did(f"named {await asyncio.to_thread(with_name, run)}", lambda: titles.rename(run, before), key=run.id)

    @work(group="noting")
    async def action_note(self) -> None:
        if (run := self.run_meant) is None:
            return
        before = await asyncio.to_thread(titles.read_notes, run)
        question = f"Note on {await asyncio.to_thread(with_name, run)}"
        note = await self.app.push_screen_wait(AskText(question, " ".join(before.note.split()), _too_long))
        if note is not None:
            await self._write([run], lambda each: titles.write_note(each, note), "changed the note of")

    @work(group="noting")
    async def action_tags(self) -> None:
        """Edit the tags that all of the chosen runs have; those of only some stay."""
        if not (meant := self.runs_meant):
            return
        have = [await asyncio.to_thread(titles.read_notes, run) for run in meant]
        common = [tag for tag in have[0].tags if all(tag in other.tags for other in have)]
        of = f"{len(meant)} runs" if len(meant) > 1 else await asyncio.to_thread(with_name, meant[0])
        asking = AskText(f"Tags of {of}, with blanks between them", " ".join(common), _no_tags)
        text = await self.app.push_screen_wait(asking)
        if text is not None:
            tags = titles.tags_in(text.replace(",", " ").split())
            gone = [tag for tag in common if tag not in tags]
            await self._write(meant, lambda each: titles.retag(each, tags, gone), "changed the tags of")

    async def _write(self, meant: list[Run], write: Any, did: str) -> None:
        """Call `write` for each of the runs; `did` are the words for this in the list of acts."""
        changes: dict[Run, tuple[Notes, Notes]] = {}
        for run in meant:
            try:
                before = await asyncio.to_thread(titles.read_notes, run)
                after = await asyncio.to_thread(write, run)
            except (RunError, OSError) as reason:
                self.app.complain(f"not written: {why(run, reason)}")
            else:
                changes |= {run: (before, after)} if after != before else {}
                self.acted(run)
        if changes:
            first = next(iter(changes))
            of = f"{len(changes)} runs" if len(changes) > 1 else await asyncio.to_thread(with_name, first)
            self.did(f"{did} {of}", partial(_restore, changes), key=first.id)

    # ---- in the queue -----------------------------------------------------------------------------

    @property
    def waiting_now(self) -> Waiting | None:
        """The place in the queue of the run to which the next action applies. None if it does not wait."""
        raise NotImplementedError

    def can(self, action: str) -> bool | str:
        """Actions of the queue need a waiting run, and a waiting run cannot be stopped or resumed."""
        now = self.waiting_now
        match action:
            case "move_waiting":
                if now is not None and now.held:
                    return HELD
                return (now is not None and now.place is not None) or NOT_WAITING  # Slurm orders its jobs
            case "hold_waiting" | "release_waiting":
                return (now is not None and now.held == (action == "release_waiting")) or NOT_WAITING
            case "take_out":
                return now is not None
            case "stop":
                return now is None
            case "resume":
                return now is None or NO_CHECKPOINT
        return super().can(action)

    @work(group="queue")
    async def action_move_waiting(self, where: Any) -> None:
        from ....engine.queue import entry_changes
        from ....engine.queue.entries import all_entries
        from ...reading.queue import places_of

        if (run := self.run_meant) is not None:
            name, before = await asyncio.to_thread(lambda: (with_name(run), entry_changes.places()))
            if await self._change(run, lambda: entry_changes.move(run.id, where)):
                after = await asyncio.to_thread(entry_changes.places)
                place = places_of(await asyncio.to_thread(all_entries)).get(run.id)
                moved = {entry: place for entry, place in before.items() if after.get(entry, place) != place}
                if moved:
                    take_back = partial(entry_changes.restore_places, moved)
                    self.did(f"moved {name} in the queue", take_back, key=run.id)
                self.say(f"{name} {'now has' if moved else 'stays at'} place {place} in the queue")

    @work(group="queue")
    async def action_hold_waiting(self, act: str = "hold") -> None:
        from ....engine.queue import entry_changes

        if (run := self.run_meant) is not None:
            await self._change(run, partial(getattr(entry_changes, act), run.id))

    def action_release_waiting(self) -> None:
        self.action_hold_waiting("release")

    @work(group="queue")
    async def action_take_out(self) -> None:
        from ....engine.queue import entry_changes

        if (run := self.run_meant) is None:
            return
        name, has_result = await asyncio.to_thread(lambda: (with_name(run), run.result is not None))
        question = f"Take {name} out of the queue?\n{STAYS if has_result else ENDS}"
        answer = await self.app.push_screen_wait(Ask(question, (TAKE_OUT, KEEP), "stop"))
        removed: list[Removed | None] = []
        if answer == TAKE_OUT and await self._change(run, lambda: removed.append(entry_changes.remove(run.id))):
            back = ""
            if removed[0] is not None:
                put_back, done = removed[0].put_back, f"{name} waits in the queue again"
                self.did(f"took {name} out of the queue", put_back, done, run.id)
                back = f"; {self.app.key('undo')} puts it back"
            self.say(f"{name} is taken out of the queue{back}")

    async def _change(self, run: Run, act: Callable[[], Any]) -> bool:
        """In a thread; then the run is shown again. False after a message with the error."""
        try:
            await asyncio.to_thread(act)
        except (RunError, OSError) as reason:
            self.say(str(reason), "error")
            return False
        finally:
            self.acted(run)
        return True


def _restore(changes: Mapping[Run, tuple[Notes, Notes]]) -> list[str]:
    reasons = []
    for run, (former, changed) in changes.items():
        try:
            titles.restore(run, former, changed)
        except (RunError, OSError) as reason:
            reasons.append(f"{run.name}: {reason}")
    return reasons


def _too_long(text: str) -> str:
    return f"give at most {titles.LONGEST_NOTE:,} characters" if len(text) > titles.LONGEST_NOTE else ""


def _no_tags(text: str) -> str:
    return _refused(lambda: titles.tags_in(text.replace(",", " ").split()))


def _no_name(text: str) -> str:
    return _refused(lambda: titles.name_in(text))


def _refused(read: Callable[[], object]) -> str:
    try:
        read()
    except RunError as fault:
        return str(fault)
    return ""


def why(run: Run, fault: Exception) -> str:
    """Say why something could not be done with the run: that it has been deleted, else the fault."""
    return str(fault) if run.path.exists() else _gone(run)


def _gone(run: Run) -> str:
    return f"{run.name} has been deleted meanwhile"


Begun = TypeVar("Begun", bound="Run | Proof")


def request_stop(started: Begun, request: Callable[[Begun], object]) -> None:
    """Ask a run or a measurement to stop by `request`, or by Slurm, which passes it on to its job."""
    if started.queue_file.exists():
        from ....engine.queue import slurm_queue  # only for what was queued

        if slurm_queue.stop(started.id):
            return
    request(started)


def _before_stopping(run: Run) -> tuple[bool, str]:
    """True if a user has already stopped it; and a question if a stop would lose steps without a checkpoint."""
    if run.status.get("asked_by_person"):
        return True, ""
    if options_of(run).get("run.checkpoint") != "off":  # a stop writes one; of a fit that is only watched nothing is
        return False, ""  # known
    entry = entry_of(run)
    step, steps = at(entry.latest, "step"), at(entry.latest, "steps")
    if not entry.is_active or not step:
        return False, ""
    starts = events_of(run.path, Started, HEAD_BYTES)
    spent = clock(max(0.0, (at(entry.latest, "t") or 0.0) - (starts[0].t if starts else entry.when)))
    return False, (
        f"{entry.named} keeps no checkpoint (run.checkpoint is off): {count(step)} of {count(steps)} steps, {spent} of "
        "training, cannot be resumed.\nStop it?"
    )


def _texts(run: Run) -> tuple[str, str]:
    """The command that trains with the run's settings, valid on another machine too, and the text of its preset."""
    changes = typed.read_usable(run.file(FILE), Origin).changes
    texts = [f"{key}={to_text(change.get('to')) or 'null'}" for key, change in changes.items()]
    try:
        preset = run.file("preset.yaml").read_text(encoding="utf-8", errors="replace")
    except OSError as fault:
        preset = f"# preset.yaml cannot be read: {fault.strerror or fault}\n"
    words = ["gputui --preset", shlex.quote(preset_of(run)), *(f"--set {shlex.quote(text)}" for text in texts)]
    return " ".join(words), preset


async def open_in_form(app: BaseApp, run: Run) -> None:
    if not run.path.exists():
        app.complain(_gone(run))
    elif not await _is_own_fit(app, run, "change"):
        app.open_form(run.file("preset.yaml"))


async def put_into_form(app: BaseApp, run: Run, changes: Mapping[str, Any]) -> None:
    """Put changes into the form with the run's preset; not of a fit of the user's own script."""
    from ....engine.trials import proof_sentences

    if not await _is_own_fit(app, run, "change"):
        app.apply(run.file("preset.yaml"), changes, proof_sentences.changes(changes))


async def _is_own_fit(app: BaseApp, run: Run, verb: str) -> bool:
    from ....engine.proof.request import can_be_trained

    if own := not await asyncio.to_thread(can_be_trained, run):
        app.complain(f"this is a fit of your own script: {verb} it there")
    return own
