"""The sweep: which trial is started next, when the search ends, and the proof on fresh seeds. All it knows is in the
record and the runs, so that another process goes on after a kill at any moment.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..options import ARGUMENTS
from ..presets import PresetError
from ..proof.measurement import Measurement
from ..proof.request import Request
from ..runs import RunError
from ..trials import SEEDS, sweep_record
from ..trials.comparing import BaselineFailed, Stopped
from ..trials.record import Record
from ..trials.sweep_record import DONE, FAILED, IN_FLIGHT, LEFT_OUT, PAUSED, PLANNED, PROOF, SEARCH, STOPPED, SweepTrial
from ..trials.trial_runner import Stop
from ..tune.wide import storage
from ..tune.wide.storage import StudyError
from . import decision, swept_values
from . import trainings as of_metric
from .decision import LEAST_SEEDS
from .shared_study import SharedStudy
from .trainings import ABSENT, CRASHED, HELD, NOT_FINITE, Look, QueuedTrainings, changed_preset, why_to_hold

POLL_SECONDS = 0.5
MOST_CRASHES = 2  # of a trial that is launched again: it was killed, or the machine has restarted
ENDED = (DONE, FAILED, STOPPED, PAUSED)
OUT_OF_TIME = "the time for the {part} was used up"


def measure(measurement: Measurement) -> None:
    request, record = measurement.request, measurement.record
    study = SharedStudy(request) if request.sweep is not None and request.sweep.study else None
    SweepLoop(request, record, QueuedTrainings(request, record.id), measurement.stop, study=study).run()


class SweepLoop:
    """Carries out one sweep, in a `study` with other machines. `wait` is called between two looks at `trainings`."""

    def __init__(
        self,
        request: Request,
        record: Record,
        trainings: QueuedTrainings,
        stop: Stop,
        wait: Callable[[], None] = lambda: time.sleep(POLL_SECONDS),
        study: SharedStudy | None = None,
    ) -> None:
        assert request.sweep is not None
        self._request, self._record, self._trainings, self._stop = request, record, trainings, stop
        self._settings, self._wait = request.sweep, wait
        location = self._settings.study and storage.shown(self._settings.study)  # without the password of a database
        self._shown = replace(self._settings, study=location)
        self._sweep = record.sweep = record.sweep or sweep_record.Sweep(settings=self._shown)
        options = changed_preset(request, {}).options
        resumes = bool(self._settings.rungs) or options.run.checkpoint != "off"
        self._time = SweepTime(self._settings, self._sweep.trials, options.train.epochs, resumes)
        self._begun_t, self._is_metric_checked, self._read = time.time(), False, set[str]()
        self._study, self._seed = study, request.seed
        self._lost: list[SweepTrial] = []  # own trials that still train although another member has taken them over

    def run(self) -> None:
        if self._study is not None:
            try:
                self._study.join()
            except StudyError as fault:
                raise BaselineFailed(str(fault)) from None
            self._seed = self._study.seed
        self._go_on()
        try:
            if not self._sweep.trials:
                self._plan_search()
            while self._sweep.best is None:
                self._train(SEARCH)
                self._end_search()
            self._plan_proof()
            if sweep_record.groups(self._sweep.trials, PROOF):
                self._train(PROOF)
        except (BaselineFailed, OSError):
            self._stop_trials()
            if self._study is not None:  # another machine may have what is missing on this one
                self._study.leave(self._sweep.trials, self._record.id, (FAILED,))
            raise
        self._exchange(now=True)
        self._leave_out(PROOF)
        if not self._is_in_vain():  # no winner if the swept options change nothing
            winner = decision.decide(self._sweep, self._settings.higher)
            improved = changed_preset(self._request, winner)
            plain = {key: of for key, of in winner.items() if not swept_values.is_argument(key)}
            # the arguments of own code are one option, with all of them
            own = {ARGUMENTS: dict(improved.options.workload.args)} if len(plain) < len(winner) else {}
            self._record.changes_kept = plain | own
            self._record.preset_after = improved.to_yaml()

    def _exchange(self, now: bool = False) -> None:
        if self._study is None:
            return
        self._add_proposed(self._study)
        self._lost += self._study.sync(self._sweep.trials, self._record.id, now)
        self._lost = [
            trial for trial in self._lost
            if self._trainings.look(trial).state in IN_FLIGHT and not self._trainings.stop(trial)
        ]  # fmt: skip

    def _go_on(self) -> None:
        """Stopped and failed trials are tried again, unless they diverged; those of an ended search with more time."""
        sweep = self._sweep
        if self._settings.minutes > sweep.settings.minutes and not self._settings.study:
            sweep.best = sweep.winner = sweep.searched = sweep.proved = None
            sweep.rivals = []
        sweep.settings = self._shown
        for trial in sweep.trials:
            if trial.on or (trial.part == SEARCH and sweep.best is not None):
                continue
            if trial.state in (STOPPED, LEFT_OUT, sweep_record.DROPPED) or (
                trial.state == FAILED and trial.cause != NOT_FINITE
            ):
                trial.failures += trial.state == FAILED
                again = PAUSED if trial.rungs and trial.state == sweep_record.DROPPED else PLANNED
                trial.state, trial.error, trial.cause, trial.ended_t = again, "", "", None

    def _plan_search(self) -> None:
        """Seed by seed; with halving all seeds of each setting, not in the order of a grid, which only gets better."""
        axes, most = self._settings.axes, self._settings.most_trials or 0
        if self._settings.sampler == "grid":
            settings = list(swept_values.grid(axes))
        else:
            most = most if self._settings.sampler == "random" else min(most, swept_values.AT_RANDOM)
            settings = swept_values.distinct(axes, self._seed, most)
        seeds = range(self._seed, self._seed + self._settings.seeds)
        if self._settings.rungs:
            random.Random(f"{self._seed} order").shuffle(settings)
            planned = [(changes, seed) for changes in settings for seed in seeds]
        else:
            planned = [(changes, seed) for seed in seeds for changes in settings]
        for changes, seed in planned:
            self._add(changes, seed, SEARCH)
        self._record.write("the search begins")

    def _add(self, changes: Mapping[str, Any], seed: int, part: str) -> None:
        trials = self._sweep.trials
        name = f"{self._record.id}-{len(trials) + 1:03d}"
        trials.append(SweepTrial(run=name, changes=dict(changes), seed=seed % SEEDS, part=part))

    def _plan_proof(self) -> None:
        """The same fresh seeds for all, in turn. Of earlier finalists, trials that were not trained are left out."""
        sweep, settings, finalists = self._sweep, self._settings, self._sweep.finalists
        if len(finalists) < 2 or not settings.proof_seeds or self._is_in_vain():
            return
        keys = set(map(sweep_record.key_of, finalists))
        earlier = [trial for trial in sweep.trials if trial.part == PROOF]
        for trial in earlier:
            if trial.state == PLANNED and sweep_record.key_of(trial.changes) not in keys:
                trial.state = LEFT_OUT
        planned = {(sweep_record.key_of(trial.changes), trial.seed) for trial in earlier}
        seeds, used = dict.fromkeys(trial.seed for trial in earlier), {trial.seed for trial in sweep.trials}
        source = random.Random(f"{self._seed} proof")
        while not earlier and len(seeds) < settings.proof_seeds:
            if (seed := source.randrange(SEEDS)) not in used:
                seeds[seed] = None
        for number, seed in enumerate(seeds):
            for changes in finalists if number % 2 == 0 else reversed(finalists):
                if (sweep_record.key_of(changes), seed) not in planned:
                    self._add(changes, seed, PROOF)
        self._record.write("the proof begins")

    def _train(self, part: str) -> None:
        while True:
            self._trainings.keep_going()
            waits_for = ""
            for trial in self._flying(part):
                look = self._trainings.look(trial)
                waits_for = waits_for or (look.error if look.state == sweep_record.WAITING else "")
                self._settle(trial, look)
                self._check(trial)
            self._exchange()
            self._time.rank()
            if self._stop.count:
                self._stop_trials()
                raise Stopped
            if why := why_to_hold(self._own(), self._begun_t):
                raise BaselineFailed(f"{why}; gputui sweep --resume {self._record.id} tries them again")
            flying = self._flying(part)
            if flying and self._time.is_over(part, self._record.elapsed):
                self._stop_trials(OUT_OF_TIME.format(part=part))
                break
            ahead = 0 if self._settings.study else self._settings.ahead  # others could train it
            most = self._settings.parallel + ahead
            following = self._next(part) if len(flying) < most else None
            if following is not None and (self._study is None or self._study.claim(following)):
                self._begin(following)
                continue
            if not flying and following is None:
                has_time = self._time.is_left_for(None, part, 0, self._record.elapsed)
                if self._study is None or self._study.is_over(self._sweep.trials, part, has_time):
                    break
            settings, trials = self._settings, self._sweep.trials
            if ended := sum(trial.ended_t is not None and trial.state not in IN_FLIGHT for trial in trials):
                searched = sum(trial.part == SEARCH for trial in trials)
                count = max(searched, (settings.most_trials or 0) * settings.seeds)
                count = max(count + settings.finalists * settings.proof_seeds, len(trials))  # also those to come
                self._record.budget_seconds = min(self._time.limit, self._record.elapsed * count / ended)
            away = self._study.away if self._study is not None else ""
            self._record.write(sweep_record.doing(self._sweep, part, away, waits_for))
            self._wait()
        self._record.write(sweep_record.doing(self._sweep, part))

    def _check(self, trial: SweepTrial) -> None:
        """Raises BaselineFailed if the first epoch has no such metric, or a swept option does nothing in a trial."""
        why = ""
        if (
            not self._is_metric_checked
            and trial.state == sweep_record.RUNNING
            and (epochs := self._trainings.figures(trial))
        ):
            self._is_metric_checked = True
            why = of_metric.why_missing(self._settings.metric, epochs, has_ended=False)
        if trial.run not in self._read and (reasons := self._trainings.without_effect(trial)) is not None:
            self._read.add(trial.run)
            why = why or swept_values.in_vain(self._settings.axes, reasons)
        if why:
            raise BaselineFailed(why)

    def _flying(self, part: str) -> list[SweepTrial]:
        return [trial for trial in self._own() if trial.part == part and trial.state in IN_FLIGHT]

    def _own(self) -> list[SweepTrial]:
        return [trial for trial in self._sweep.trials if not trial.on]

    def _next(self, part: str) -> SweepTrial | None:
        """Return the trial to start now; None if there is none, or no time for it."""
        if (study := self._study) is not None and (study.away or (part == SEARCH and study.log.choice is not None)):
            return None
        trial, flying, elapsed = self._candidate(part), self._flying(part), self._record.elapsed
        if trial is None or self._time.is_left_for(trial, part, len(flying), elapsed):
            return trial
        if part == PROOF or not self._time.lacks_pair:
            return None
        coming = sweep_record.groups(each for each in flying if each.until is None)
        if len(coming.keys() | set(map(sweep_record.key_of, self._time.finalists))) >= PAIR:
            return None
        trial = decision.best_paused(self._sweep.trials, self._settings.higher) or trial
        return trial if trial and self._time.ends_in_time(trial, len(flying), elapsed) else None

    def _candidate(self, part: str) -> SweepTrial | None:
        rungs, trials, higher = self._settings.rungs, self._sweep.trials, self._settings.higher
        planned = [trial for trial in trials if trial.part == part and trial.state == PLANNED]
        planned.sort(key=lambda trial: trial.failures)  # the others first
        flying, elapsed = self._flying(part), self._record.elapsed
        is_new = bool(planned) and not planned[0].failures
        if not is_new and part == SEARCH and self._settings.sampler == "tpe":
            in_time = self._time.is_left_for(None, SEARCH, len(flying), elapsed)
            if in_time or (self._time.lacks_pair and self._time.ends_in_time(None, len(flying), elapsed)):
                planned = self._propose() or planned
        if part == SEARCH and rungs:
            promoted = decision.to_go_on(trials, rungs, self._settings.factor, higher)
            if promoted is None and not planned:
                in_flight = (trial.changes for trial in trials if trial.part == SEARCH and trial.state in IN_FLIGHT)
                complete_or_in_flight = {sweep_record.key_of(each) for each in (*self._time.finalists, *in_flight)}
                if len(complete_or_in_flight) < self._settings.finalists:
                    promoted = decision.best_paused(trials, higher)
            planned = [promoted] if promoted else planned
        return planned[0] if planned else None

    def _propose(self) -> list[SweepTrial]:
        sweep, settings = self._sweep, self._settings
        made = sweep_record.groups(sweep.trials)
        results = [(group[0].changes, statistics.fmean(metrics)) for group in made.values()
                 if (metrics := sweep_record.values(group))]  # fmt: skip
        if len(made) >= (settings.most_trials or 0):
            return []
        if results:  # a training that diverges is as bad as the worst one
            worst = (min if settings.higher else max)(metric for _, metric in results)
            results += [(group[0].changes, worst) for group in made.values() if group[0].state == FAILED]
        seed, axes, count = self._seed, settings.axes, len(made)
        of_tpe = (
            swept_values.proposed(axes, seed, count + 1000 * attempt, results, settings.higher)
            for attempt in range(swept_values.DRAWS)
        )
        # TPE may propose the same again and again.
        others = swept_values.distinct(axes, seed, settings.most_trials or 0)
        for changes in itertools.chain(of_tpe, others):
            if sweep_record.key_of(changes) not in made:
                before = len(sweep.trials)
                if self._study is None:
                    self._add_setting(changes)
                else:
                    self._study.propose(len(made), changes)
                    self._add_proposed(self._study)
                return sweep.trials[before:]
        return []

    def _add_setting(self, changes: Mapping[str, Any]) -> None:
        for place in range(self._settings.seeds):
            self._add(changes, self._seed + place, SEARCH)

    def _add_proposed(self, study: SharedStudy) -> None:
        made = len(sweep_record.groups(self._sweep.trials))
        while (changes := study.log.settings.get(made)) is not None:
            self._add_setting(changes)
            made += 1

    def _epochs(self, changes: Mapping[str, Any]) -> int:
        return changed_preset(self._request, changes).options.train.epochs

    def _begin(self, trial: SweepTrial) -> None:
        look = self._trainings.look(trial)
        ends = self._settings.rungs if trial.part == SEARCH else ()
        until = trial.until = ends[len(trial.rungs)] if len(trial.rungs) < len(ends) else None
        if look.state == DONE or (look.state == STOPPED and until is not None and len(look.epochs) >= until):
            self._settle(trial, look)  # it has trained while no process followed the sweep
            return
        if look.state in IN_FLIGHT:  # the same; it may end at any moment, and is not started again
            trial.state = look.state
            return
        self._record.write(f"{sweep_record.name(trial)} is queued")
        try:
            self._trainings.start(trial)
        except PresetError as fault:  # this setting alone
            trial.state, trial.error, trial.cause = FAILED, str(fault).partition("\n")[0], "preset"
            trial.ended_t = time.time()
            return
        except RunError as fault:
            raise BaselineFailed(str(fault)) from None
        trial.state = "waiting"
        self._record.write()

    def _settle(self, trial: SweepTrial, look: Look) -> None:
        if look.state == PLANNED:
            trial.state = PLANNED
            return
        if look.state == ABSENT:
            look = Look(FAILED, error="its run was deleted", cause="deleted")
        if look.state == HELD:
            raise BaselineFailed(f"{trial.run} is held in the queue: {look.error}; gputui queue release {trial.run}")
        if look.cause == CRASHED and trial.crashes < MOST_CRASHES:
            trial.state, trial.crashes = PLANNED, trial.crashes + 1
            return
        trial.state = look.state
        if look.state not in ENDED:
            return
        if self._study is not None and (why := self._study.other_code(self._trainings.code(trial))):
            trial.state = PLANNED  # it is given back
            raise BaselineFailed(why)
        trial.seconds, trial.error, trial.cause, trial.ended_t = look.seconds, look.error, look.cause, time.time()
        trial.test = look.test
        trial.whole_seconds = look.seconds if look.state == DONE else None
        if look.state != DONE and look.seconds is not None and look.epoch_seconds is not None:
            epochs_left = self._epochs(trial.changes) - len(look.epochs)
            trial.whole_seconds = look.seconds + look.epoch_seconds * max(0, epochs_left)
        metric, ends = self._settings.metric, self._settings.rungs
        values = of_metric.values(metric, look.epochs)
        if trial.part == SEARCH:
            trial.rungs = [values[end - 1] for end in ends if end <= len(values)]
        if look.state == STOPPED and trial.until is not None and len(values) >= trial.until:
            trial.state = PAUSED
        if trial.state in (DONE, PAUSED) and (not values or values[-1] is None):
            trial.state, trial.cause = FAILED, NOT_FINITE
            if why := of_metric.why_missing(metric, look.epochs, has_ended=True):
                raise BaselineFailed(why)
            trial.error = f"{metric} is not a finite number after the last epoch"
        elif trial.state == DONE:
            trial.value = values[-1]
            if self._study is None:  # other machines may compute other last digits
                figures = json.dumps([dict(each) for each in look.epochs])
                trial.digest = hashlib.sha256(figures.encode()).hexdigest()[:16]

    def _stop_trials(self, why: str = "") -> None:
        """Stop the trials that wait or train, and return when they have ended. Those that stop get the text `why`."""
        flying = [trial for trial in self._own() if trial.state in IN_FLIGHT]
        self._record.write("stopping its trials")
        count, to_ask = self._stop.count, flying
        while flying:
            to_ask = [trial for trial in to_ask if trial in flying and not self._trainings.stop(trial)]
            self._trainings.keep_going()  # only a runner removes the entries of runs that have ended
            self._wait()
            if self._stop.count > max(1, count):  # the second request ends them at once
                count, to_ask = self._stop.count, flying
            for trial in flying:
                try:
                    self._settle(trial, self._trainings.look(trial))
                except BaselineFailed as fault:
                    trial.state, trial.error = FAILED, str(fault)
                if trial.state == STOPPED:
                    trial.error = why
            flying = [trial for trial in flying if trial.state in IN_FLIGHT]
        if self._study is not None:
            self._study.leave(self._sweep.trials, self._record.id, (PLANNED, STOPPED) if why else (PLANNED,))
        self._record.write()

    def _end_search(self) -> None:
        """Nothing is stored if another member of the study has begun a trial meanwhile."""
        sweep, settings = self._sweep, self._settings
        in_order = sweep_record.ranked(sweep.trials, settings.higher)
        if not in_order and (self._study is None or self._study.log.choice is None):
            self._leave_out(SEARCH)
            raise BaselineFailed(sweep_record.no_result(sweep))
        finalists = [changes for changes, _ in in_order][: settings.finalists]
        searched = in_order[0][1] if in_order else None
        own: Mapping[str, Any] = {"finalists": finalists, "searched": searched, "compared": len(in_order)}
        choice = own if self._study is None else self._study.choose(own)
        if choice is None:
            return
        self._leave_out(SEARCH)
        sweep.finalists, sweep.searched = list(choice["finalists"]), choice["searched"]
        sweep.best, sweep.compared = sweep.finalists[0], choice["compared"]
        whole = [trial.seconds for trial in sweep.trials if trial.state == DONE and trial.seconds is not None]
        if settings.rungs and whole:
            epochs, ended = self._epochs({}), [trial for trial in sweep.trials if trial.part == SEARCH and trial.rungs]
            cut = [trial for trial in ended if trial.state not in (DONE, FAILED)]  # at a rung
            skipped = sum(epochs - settings.rungs[len(trial.rungs) - 1] for trial in cut)
            sweep.seconds_saved = skipped * statistics.fmean(whole) / epochs
        self._is_in_vain()
        self._record.write("the search has ended")

    def _is_in_vain(self) -> bool:
        """Record which swept options change nothing so far, and return True if none does change anything."""
        keys = [axis.key for axis in self._settings.axes]
        self._sweep.without_effect = sweep_record.without_effect(self._sweep.trials, keys)
        return len(self._sweep.without_effect) == len(keys)

    def _leave_out(self, part: str) -> None:
        for trial in self._sweep.trials:
            if trial.part == part and trial.state in (PLANNED, PAUSED, STOPPED):
                trial.state = {PLANNED: LEFT_OUT, PAUSED: sweep_record.DROPPED}.get(trial.state, trial.state)
                if not trial.on:
                    self._trainings.let_go(trial)
        self._record.ended_because = "; ".join(filter(None, map(self._incomplete, (SEARCH, PROOF))))

    def _incomplete(self, part: str) -> str:
        """Return in words which trials of a part the time was too short for; empty if it was for none."""
        trials = [trial for trial in self._sweep.trials if trial.part == part]
        if part == PROOF:  # the others were left out as they are no finalists any more
            trials = [trial for trial in trials if trial.changes in self._sweep.finalists]
        left_out = sum(trial.state == LEFT_OUT for trial in trials)
        stopped = [trial for trial in trials if trial.state == STOPPED]
        in_time = sum(bool(trial.error) for trial in stopped)  # the others were stopped by a command
        of_all = f"of {len(trials)} trials{' of the proof' if part == PROOF else ''}"
        cut = (
            f"left {left_out} {of_all} untrained" if left_out else "",
            f"stopped {in_time} {of_all}" if in_time else "",
        )
        late = (
            f"the time budget of {self._settings.minutes:g} min {' and '.join(filter(None, cut))}" if any(cut) else ""
        )
        other = len(stopped) - in_time
        asked = f"{other} {of_all} stopped, or taken out of the queue" if other else ""
        return "; ".join(filter(None, (late, asked)))


PAIR = 2  # complete settings, without which nothing can be proved
MARGIN = 0.02  # of the time: the last moment for the shortest proof is so much earlier or later
LEAST_MARGIN_SECONDS = 2.0


class SweepTime:
    """The time of a sweep, in seconds without interruptions. Once two settings are complete, none begins that leaves
    too little for the whole proof, and those that train are stopped in time for the shortest proof. `resumes` says if
    a stopped trial goes on where it was.
    """

    def __init__(
        self, settings: sweep_record.SweepSettings, trials: Sequence[SweepTrial], epochs: int, resumes: bool
    ) -> None:
        self._settings, self._trials, self._epochs, self._resumes = settings, trials, epochs, resumes
        self.limit = 60 * settings.minutes  # seconds
        self.rank()

    def rank(self) -> None:
        """Find the settings that would now be proved; to be called once trials have ended."""
        ranked = sweep_record.ranked(self._trials, self._settings.higher)
        self.finalists = [changes for changes, _ in ranked][: self._settings.finalists]

    @property
    def lacks_pair(self) -> bool:
        """True if too few settings are complete for a proof."""
        return len(self.finalists) < min(PAIR, self._settings.finalists)

    def whole(self, changes: Mapping[str, Any] | None = None) -> float:
        """Return the mean seconds of a whole training of a setting, or of all settings, 0 if unknown. Unended ones
        count by their epochs, if none has ended.
        """
        trained = [trial for trial in self._trials if trial.whole_seconds is not None]
        trained = [trial for trial in trained if trial.changes == changes] or trained
        trained = [trial for trial in trained if trial.state == DONE] or trained
        return statistics.fmean(trial.whole_seconds or 0.0 for trial in trained) if trained else 0.0

    def _proof(self, seeds: int) -> float:
        proved = [trial for trial in self._trials if trial.part == PROOF and trial.state == DONE]
        done = sum(trial.changes in self.finalists for trial in proved)
        each = statistics.fmean(map(self.whole, self.finalists)) if self.finalists else self.whole()
        count = max(0, self._settings.finalists * seeds - done)
        return self._rounds(count) * each

    def _rounds(self, trainings: int) -> int:
        return math.ceil(trainings / self._settings.parallel)

    @property
    def _shortest_proof(self) -> float:
        return self._proof(min(LEAST_SEEDS, self._settings.proof_seeds))

    def ends_in_time(self, trial: SweepTrial | None, flying: int, elapsed: float, then: float = 0.0) -> bool:
        """Return True if `trial` (None: a new setting) ends or pauses with `then` seconds left."""
        left = self.whole()
        queued = flying // self._settings.parallel * left
        if trial is not None:
            ends = self._settings.rungs if trial.part == SEARCH else ()
            until = ends[len(trial.rungs)] if len(trial.rungs) < len(ends) else self._epochs
            before = trial.seconds or 0.0 if self._resumes else 0.0
            left = max(0.0, self.whole(trial.changes) * until / self._epochs - before)
        return elapsed + queued + left + then < self.limit

    def is_left_for(self, trial: SweepTrial | None, part: str, flying: int, elapsed: float) -> bool:
        """Return True if a further trial would end in time and, in the search, leave time for the whole proof."""
        if self.is_over(part, elapsed):
            return False
        then = 0.0
        if part == SEARCH and self._settings.proof_seeds:
            if self.lacks_pair:  # two have to be trained to their end, if bad ones end early
                missing = PAIR - len(self.finalists) if self._settings.rungs else 0
                then = self._proof(self._settings.proof_seeds) + self._rounds(missing) * self.whole()
            elif elapsed + self._shortest_proof < self.limit:
                then = self._proof(self._settings.proof_seeds)
        return self.ends_in_time(trial, flying, elapsed, then)

    def is_over(self, part: str, elapsed: float) -> bool:
        left = self.limit - elapsed
        if left <= 0 or part == PROOF or not self._settings.proof_seeds or self.lacks_pair:
            return left <= 0
        return abs(left - self._shortest_proof) <= max(MARGIN * self.limit, LEAST_MARGIN_SECONDS)
