"""Prints a diagnosis with its profile, and the trials, comparisons and results of proofs, searches and sweeps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from ...engine import figures
from ...engine.diagnosis import label
from ...engine.figures import Figure, shown
from ...engine.profile import reports
from ...engine.profile.reports import InputTime, ProfileReport
from ...engine.text_table import Table
from ...engine.trials import (
    proof_sentences,
    rate_sentences,
    scaling_sentences,
    sweep_record,
    sweep_sentences,
    trial_tables,
)
from ...engine.trials.record import Candidate, Comparison, LossCheck, RateTest, Record, Trial, elapsed_of, search_of
from ...engine.trials.sweep_record import PROOF, SEARCH, Sweep
from ...engine.tune.report import memory_sentences, search_sentences
from ...engine.tune.report.search_results import WITHOUT_INPUT, brought, limits_of, memory_of, ranked
from ...engine.units import amount, change, count, counted, seconds, share, size
from ..base.errors import clean
from ..drawing import interval_bar
from ..drawing import proof as comparisons
from ..drawing import sweep as drawing
from ..drawing import tune as tune_drawing
from .plain_tables import broken, say, show_table, show_with_bars


def show_diagnosis(diagnosis: Mapping[str, Any]) -> None:
    if diagnosis.get("learning"):
        print(clean(diagnosis["learning"]))
    print(clean(diagnosis["sentence"]))
    if diagnosis["verdict"] != "undecided":
        print(f"confidence {share(diagnosis['confidence'])}, from {counted(diagnosis['steps'], 'steps')}")
    if diagnosis["evidence"]:
        print()
        show_table(trial_tables.evidence(diagnosis))
    if diagnosis["others"]:
        print(f"\nalso: {', '.join(label(name) for name in diagnosis['others'])}")
    if diagnosis["remedies"]:
        print()
        show_table(trial_tables.remedies(diagnosis).numbered())
        show_code(diagnosis["remedies"])


def show_code(remedies: Iterable[Mapping[str, Any]]) -> None:
    for line in proof_sentences.code_of(remedies):
        print(clean(f"    {line}"))


# ---- a profile ------------------------------------------------------------------------------------


WIDTH = 60
MOST_LAYERS = 12  # longest layers, each in a line


def profile_lines(report: ProfileReport) -> list[str]:
    return [clean(line) for line in _lines(report)]


def _lines(report: ProfileReport) -> Iterator[str]:
    steps = counted(report.steps, "steps")
    yield f"profile of {steps} on the {report.device}, {amount(report.step_ms)} ms each, read by XProf"
    yield from (f"  {share(value):>5}  {words}" for words, value in reports.shares(report))
    yield from _input(report)
    yield from _operations(report)
    yield from _layers(report)
    if report.compute_16bit is not None:
        yield f"{share(report.compute_16bit)} of the device's computing in 16 bits"
    if report.peak_memory_bytes is not None:
        yield f"{size(report.peak_memory_bytes)} of tensors at most"
    yield f"for TensorBoard and XProf: {report.path}"


def _input(report: ProfileReport) -> Iterator[str]:
    stage = report.slowest_stage
    if stage is None:
        return
    op = f" ({stage.op})" if stage.op != stage.name else ""
    each = f", {amount(stage.ms_per_batch)} ms per batch" if stage.ms_per_batch is not None else ""
    yield f"slowest input stage: {stage.name}{op}, {share(stage.share)} of the input's own time{each}"
    if report.input_time is not None:
        yield f"input's own time: {_breakdown(report.input_time)}"


def _breakdown(time: InputTime) -> str:
    parts = {
        "preparing": time.preprocessing_ms,
        "reading files": time.reading_ms,
        "transfer to the device": time.transfer_ms,
        "other": time.other_ms,
    }
    return ", ".join(f"{name} {amount(ms)} ms" for name, ms in parts.items() if ms)


def _operations(report: ProfileReport) -> Iterator[str]:
    if report.operations:
        yield f"{reports.PLACES[report.operations_on]} that take most, over the whole profile:"
    kernels = report.operations_on == "GPU kernels"
    for operation in report.operations:
        name = _shortened(operation.name, keep_front=kernels)
        yield f"  {amount(operation.ms):>7} ms {share(operation.share):>5}  {name}  {operation.type}".rstrip()


def _layers(report: ProfileReport) -> Iterator[str]:
    if not report.layers:
        if report.layers is not None:
            yield "no operation has the name of a layer: with compile.xla=false they have"
        return
    longest, more = report.layers[:MOST_LAYERS], report.layers[MOST_LAYERS:]
    rows = [
        (_shortened(layer.name, keep_front=False), layer.share, amount(layer.forward_ms), amount(layer.backward_ms))
        for layer in longest
    ]
    if more:
        forward_ms = sum(layer.forward_ms for layer in more)
        backward_ms = sum(layer.backward_ms for layer in more)
        others = counted(len(more), "more layers")
        rows.append((others, sum(layer.share for layer in more), amount(forward_ms), amount(backward_ms)))
    yield f"layers that take most, as shares of all {reports.PLACES[report.operations_on]} (ms forward, ms backward):"
    for name, part, forward, backward in rows:
        yield f"  {share(part):>5}  {forward:>8} {backward:>8}  {name}"
    outside = max(0.0, 1 - sum(layer.share for layer in report.layers))
    yield f"  {share(outside):>5}  {'':>8} {'':>8}  outside of layers: optimizer, loss, metrics"


def _shortened(name: str, keep_front: bool) -> str:
    # The beginning says what a kernel does, the end what an operation is.
    if len(name) <= WIDTH:
        return name
    return f"{name[: WIDTH - 3]}..." if keep_front else f"...{name[3 - WIDTH :]}"


def show_list(proofs: Sequence[Record], sizes: Mapping[str, int]) -> None:
    """Print all proofs, one row per proof. `sizes` has the size of each proof's folder in bytes, by id."""
    rows = [
        [
            proof.id,
            proof.kind,
            proof.state,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(proof.started_t)),
            seconds(proof.seconds),
            size(sizes.get(proof.id)),
            proof_sentences.conclusion(proof) if proof.state != "running" else proof.doing,
        ]
        for proof in proofs
    ]
    show_table(Table(["proof", "kind", "state", "started", "time", "size", "result"], rows))


def show_trials(data: Record) -> None:
    table = (
        trial_tables.trials(trials(data), head="") if data.sweep is None else sweep_sentences.trials_table(data.sweep)
    )
    if table.rows:
        show_table(table)
        print()


def show_result(data: Record, was_followed: bool = False) -> None:
    """Print a proof's tables, then sentences, last the conclusion (a search's came first). With `was_followed`, what
    its lines have said is left out."""
    if data.kind == "diagnosis" and data.diagnosis:
        show_diagnosis(data.diagnosis)
        print()
    if data.ablation and data.ablation.stages:
        show_table(trial_tables.input_stages(data.ablation.stages))
        print()
    if data.profile_trial:
        print("\n".join(_profile(data)), end="\n\n")
    if data.kind in ("loop", "ab") and data.comparisons:
        bars = [comparisons.interval(comparison) for comparison in data.comparisons]
        show_with_bars(trial_tables.comparisons(data.comparisons), bars, after=2)
        print()
    if data.kind == "tune":
        show_tables(data, was_followed)
    if data.kind == "scaling":
        _show_scaling(data)
    if data.rate is not None:
        _show_rate(data.rate)
    if data.sweep is not None:
        _show_sweep(data.sweep)
    if data.kind not in ("diagnosis", "scaling") and data.before:
        show_table(_before_and_after(data))
        print()
    for section in data.sections:
        say(f"{section.title}:")
        if section.head:
            show_table(section.table)
        for sentence in section.sentences:
            say(sentence)
        print()
    if data.kind == "tune":
        show_words(data, was_followed)
    for comparison in data.comparisons:
        if comparison.learning:
            say(proof_sentences.learned(comparison.learning))
    if data.kind != "tune":
        show_answer(data)


def show_answer(data: Record) -> None:
    """Print the conclusion, after the sentences that limit it or, of a search, first."""
    if proof_sentences.only_predicts(data):
        say(proof_sentences.conclusion(data))
        return
    ended = f"ended because: {data.ended_because}" if data.ended_because and data.state != "running" else ""
    answer = f"running: {data.doing}" if data.state == "running" else proof_sentences.result(data)
    limits = [line for line in (proof_sentences.disturbance(data), ended) if line]
    for line in (answer, *limits) if data.kind == "tune" else (*limits, answer):
        say(line)
    for remedy in data.advice if data.state != "running" else ():
        say(f"advice: {remedy['reason']}")
    show_code(data.advice if data.state != "running" else ())


def _show_scaling(data: Record) -> None:
    """One row for each number of replicas, and what limits the scaling."""
    table = trial_tables.scaling(data)
    if table.rows:
        bars = [interval_bar.around(point.efficiency, point.spread) for point in scaling_sentences.points(data)]
        show_with_bars(table, bars, scaling_sentences.HEAD.index("spread"), zero=1.0, label=share)
        say(scaling_sentences.about(data))
        print()
    for line in scaling_sentences.remarks(data):
        say(line)


def _show_rate(test: RateTest) -> None:
    # Its chart is drawn before.
    if text := rate_sentences.suggestion(test):
        say(f"{text} ({rate_sentences.SOURCE})")
    if rows := rate_sentences.trial_rows(test):
        show_table(Table(list(rate_sentences.HEAD), rows))
        print()


def _show_sweep(sweep: Sweep) -> None:
    """The settings of the search and of the proof with their values, and what the selection has cost."""
    for part, head in ((SEARCH, "in the search"), (PROOF, "on fresh seeds")):
        table = sweep_sentences.groups_table(sweep, part)
        if table.rows:
            say(f"{head}:")
            groups = sweep_record.in_order(sweep.trials, sweep.settings.higher, part)
            bars = [drawing.interval(group) for group in groups]
            show_with_bars(table, bars, after=2, zero=drawing.reference(groups), label=amount)
            print()
    for text in filter(None, (sweep_sentences.saved(sweep), sweep_sentences.luck(sweep))):
        say(text)


def _profile(data: Record) -> list[str]:
    report = proof_sentences.profile_of(data)
    return (
        profile_lines(report)
        if report is not None
        else [clean(line) for line in proof_sentences.profile_in_brief(data)]
    )


def _before_and_after(data: Record) -> Table:
    # The second column is missing if a loop or a search has kept no change.
    table = trial_tables.before_and_after(data, ("without", "with") if data.kind == "ab" else ("before", "after"))
    if data.kind in ("loop", "tune") and not data.after:
        return Table(["median", "as it is"], [row[:2] for row in table.rows], right=[1])
    return table


# ---- while it is measured -------------------------------------------------------------------------


class ProofLines:
    """Prints the new lines of a proof at each call of `show`."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self._told: set[str] = set()
        self._doing = ""

    def show(self, data: Record) -> None:
        search = data.kind == "tune"
        for key, text in news(data) if search else _news(data):
            if key not in self._told:
                self._told.add(key)
                self.line(text)
        if data.doing != self._doing and data.state == "running":
            self._doing = data.doing
            if not search:  # its candidates follow each other in seconds
                self.doing(data)

    def line(self, text: str) -> None:
        self.out.print(Text(self.laid_out(clean(text))), soft_wrap=True)

    def laid_out(self, text: str) -> str:
        return text

    def doing(self, data: Record) -> None:
        self.line(f"{data.doing} ...{left(data)}")

    def close(self) -> None:
        pass


class LiveProof(ProofLines):
    """Prints the new lines of a proof on a terminal, and shows its present activity and the time left in the last line,
    which is written again each time."""

    def __init__(self, out: Console) -> None:
        super().__init__(out)
        self._status = out.status("")
        self._status.start()

    def show(self, data: Record) -> None:
        super().show(data)
        self.doing(data)

    def laid_out(self, text: str) -> str:
        return broken(text, self.out.width)

    def doing(self, data: Record) -> None:
        gone = elapsed_of(data)
        self._status.update(Text(clean(f"{data.doing}  {seconds(gone)}{left(data)}"), overflow="ellipsis"))

    def close(self) -> None:
        self._status.stop()


def _news(data: Record) -> Iterator[tuple[str, str]]:
    """Yield a key, by which the caller prints each event only once, and its line."""
    for title, trial in trials(data):
        yield trial.run, trial_line(title, trial)
        yield from disturbances([trial])
    if data.sweep is not None:
        yield from sweep_sentences.news(data.sweep)
    if data.kind != "loop":
        return
    if data.diagnosis:
        yield "diagnosis", data.diagnosis["sentence"]
    for number, comparison in enumerate(data.comparisons):
        if comparison.decision != "running":
            yield f"comparison {number}", proof_sentences.verdict(comparison)


def trials(data: Record) -> list[tuple[str, Trial]]:
    """Return all trials with their titles, each once, in the order of their start."""
    titled: dict[str, tuple[str, Trial]] = {}
    for trial in data.baseline_trials:
        titled[trial.run] = ("as it is", trial)
    for trial in data.ablation.trials if data.ablation else ():
        titled[trial.run] = ("one repeated batch" if trial.side == "b" else "as it is", trial)
    if profiled := data.profile_trial:
        titled[profiled.run] = ("profiled", profiled)
    for title, trial in search_trials(data):
        titled[trial.run] = (title, trial)
    for title, trial in rate_sentences.titled(data.rate) if data.rate else ():
        titled[trial.run] = (title, trial)
    for point in scaling_sentences.points(data):
        for trial in point.trials:
            titled[trial.run] = (scaling_sentences.what(point, scaling_sentences.is_of_copies(data)), trial)
    for comparison in data.comparisons:
        what = proof_sentences.changes(comparison.changes)
        for trial in comparison.trials:
            titled.setdefault(trial.run, (f"{'with' if trial.side == 'b' else 'without'} {what}", trial))
    return [titled[run] for run in sorted(titled)] if data.kind == "scaling" else list(titled.values())


def trial_line(title: str, trial: Trial) -> str:
    """Return the line of an ended trial: its run, its title, and its figures or, if it has failed, its outcome and its
    error."""
    head = f"{trial.run:<6}{title:<30}"
    if not trial.good:
        return f"{head} {trial.outcome}: {trial.error}"
    columns = [figure for figure in shown("trial") if trial.figure(figure.key) is not None]
    parts = [*(_phrase(figure, trial.figure(figure.key)) for figure in columns), "disturbed" if trial.disturbed else ""]
    return f"{head} {'  '.join(filter(None, parts))}"


def _phrase(figure: Figure, value: float) -> str:
    # In a constant width, so that the lines of trials align.
    return figure.phrase(value).rjust(0 if figure.name else figure.width + 1 + len(figure.unit))


def left(data: Record) -> str:
    """Return the time left as text, such as `, about 48 s left`. Empty if the proof has no time limit."""
    budget = data.budget_seconds
    if budget is None:
        return ""
    gone = elapsed_of(data)
    remaining, most = max(0.0, budget - gone), data.budget_most_seconds
    if most is not None:
        return f", about {seconds(remaining)} to {seconds(max(0.0, most - gone))} left"
    return f", {'at most' if data.kind == 'tune' else 'about'} {seconds(remaining)} left"


ABOUT_INPUT = f"{WITHOUT_INPUT} {search_sentences.ABOUT_INPUT}"
_SPEED = figures.of_run("samples_per_second")


def show_tables(data: Record, was_followed: bool) -> None:
    """Print the candidates, the best first, unless followed, and the gain of each option."""
    candidates = ranked(data)
    if not candidates:
        return
    if not was_followed:
        show_table(search_sentences.leaderboard(data))
        if any(candidate.gain is not None for candidate in candidates):
            say(search_sentences.about_gains(candidates))
        if any(map(search_sentences.is_marked, candidates)):
            say(ABOUT_INPUT)
        print()
    table, bars = (
        search_sentences.options(data, together=True),
        [tune_drawing.interval(option) for option in brought(data)],
    )
    if len(table.rows) > len(bars):  # the row of all together
        proved = [comparisons.interval(each) for each in data.comparisons if each.decision == "kept"]
        bars.append(proved[-1] if proved else None)
    show_with_bars(table, bars, after=2)
    say(search_sentences.ABOUT_BROUGHT)
    print()


def show_words(data: Record, was_followed: bool) -> None:
    """Print memory, the greatest possible speed and, unless followed, comparisons of the loss."""
    if sentence := memory_sentences.in_words(data):
        say(f"memory: {sentence} ({memory_sentences.kind_of_memory(memory_of(data))})")
    if list(limits_of(data).only) == ["batch_size"] and (sentence := memory_sentences.fitted(data)):
        say(sentence)
    for sentence in (search_sentences.ceiling_in_words(data), search_sentences.study_in_words(data)):
        if sentence:
            say(sentence)
    for line in search_sentences.learnt(data) if was_followed else search_sentences.learning(data):
        say(line)


def show_next(data: Record, saved: bool) -> None:
    """Print what the user can do next with the result. `saved` is True if the best settings were saved to a file."""
    for line in search_sentences.next_steps(data, saved):
        say(line)


# ---- while the search runs --------------------------------------------------------------------------


def news(data: Record) -> Iterator[tuple[str, str]]:
    """Yield a key, by which the caller prints each event only once, and a line."""
    for number, candidate in enumerate(search_of(data).candidates):
        if candidate.decision != "running":
            yield f"candidate {number}", candidate_line(candidate)
            if search_sentences.is_marked(candidate):
                yield "without input", ABOUT_INPUT
            if candidate.gain is not None:
                yield "gains", f"({search_sentences.ABOUT_GAINS})"
            if search_sentences.is_weighed(candidate):
                yield "waits", f"({search_sentences.ABOUT_WAITS})"
            yield from disturbances(candidate.trials)
    yield from _losses(data)
    for number, comparison in enumerate(data.comparisons):
        yield from _pairs(number, comparison)
        if comparison.decision != "running":
            yield f"comparison {number}", proof_sentences.verdict(comparison)


def candidate_line(candidate: Candidate) -> str:
    """Return the line of a candidate: what was tried, its speed, its gain and the decision."""
    mark = WITHOUT_INPUT if search_sentences.is_marked(candidate) else " "
    speed = candidate.samples_per_second
    speed_text = "" if speed is None else _SPEED.text(speed) + mark
    gain = "" if candidate.gain is None else change(candidate.gain)
    return (
        f"{_head(search_sentences.stage(candidate), search_sentences.title(candidate))} {speed_text:>17} {gain:>8}  "
        f"{search_sentences.outcome(candidate)}".rstrip()
    )


def _head(what: str, title: str) -> str:
    # The widths leave room for speed, gain and `kept` on a terminal of 80 columns.
    return f"{what:<19} {title:<24}"


def disturbances(trials: Iterable[Trial]) -> Iterator[tuple[str, str]]:
    """Yield a line for each disturbed trial, always with the same key: only one is printed, their number follows at the
    end."""
    for trial in trials:
        if trial.disturbed:
            yield "disturbed", f"note: {trial.disturbed}: the figures can be worse than on a quiet machine"


def _losses(data: Record) -> Iterator[tuple[str, str]]:
    for number, check in enumerate(search_of(data).losses):
        for trial in check.trials:
            yield trial.run, f"{_head('loss', _loss_title(check, trial))} {_loss(check, trial)}"
        if check.decision != "running":
            yield f"losses {number}", search_sentences.loss_check(check)


def _loss(check: LossCheck, trial: Trial) -> str:
    if trial.outcome not in ("ok", "timeout"):
        return proof_sentences.outcome(trial)
    return f"trained on {count(check.samples)} samples" if check.samples else trial.outcome


def _loss_title(check: LossCheck, trial: Trial) -> str:
    return proof_sentences.changes(check.settings) if trial.side == "b" else "the preset as it is"


def _pairs(number: int, comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield a key and a line for each measured pair and each failed trial."""
    good = {(trial.side, trial.repeat): trial for trial in comparison.trials if trial.good}
    for trial in comparison.trials:
        if not trial.good:
            yield f"{number} {trial.run}", f"{trial.run}: {proof_sentences.outcome(trial)}"
        a, b = (good.get((side, trial.repeat)) for side in "ab")
        if a and b:
            speeds = f"{_SPEED.text(a.figure(_SPEED.key))} -> {_SPEED.text(b.figure(_SPEED.key))}"
            gain = change(search_sentences.pair_gain(a, b))
            yield f"pair {number} {trial.repeat}", f"{'pair ' + str(trial.repeat):<19} {speeds}  {gain}"


def search_trials(data: Record) -> Iterator[tuple[str, Trial]]:
    """Yield the title and the trial for all trials of a search except those in pairs. Trials for the loss come last."""
    for candidate in search_of(data).candidates:
        for trial in candidate.trials:
            yield search_sentences.title(candidate), trial
    for check in search_of(data).losses:
        for trial in check.trials:
            yield f"loss: {_loss_title(check, trial)}", trial
