"""One training from preset to result, in the only order that TensorFlow accepts: environment, devices, precision,
strategy, data, model, compile, fit. Each way in which it can end becomes an outcome here.

Deferred imports: all of these import TensorFlow, which takes seconds. Errors found without it are reported before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import writing
from ..options import Options, options_json
from ..options.input import too_large_batch
from ..plan import MULTI_WORKER, training_samples
from ..process import ending
from ..runs import Run, events, results, run_cluster, titles
from ..runs.event_reading import RunEvents, read_events
from ..runs.events import EVENTS_FILE
from ..system.import_cost import exempt_from_gc
from ..telemetry import chips, resource_limits
from ..units import counted
from .common.stopping import ENGINE_GONE, ENGINE_LOST, StopRequested, StopSwitch
from .common.training_errors import TrainerError, first_line
from .measure.run_report import RunReport
from .setup import environment
from .setup.environment import NOTHING, Prepared

if TYPE_CHECKING:
    from .fit.training_loop import TrainingLoop


def train_run(report: RunReport, stop: StopSwitch) -> int:
    """Train the run's preset, and write events and result. Returns the exit status: 1 after an error, else 0."""
    batch_size, kind = 0, "single"
    evidence: dict[str, Any] = {}
    try:
        options = options_json.read(report.run.path)
        stop.leave_result = lambda reason: _stopped(report, StopRequested(reason), options)
        batch_size, kind = options.input.batch_size, options.strategy.kind
        evidence = {
            "on_oom": options.run.on_oom,
            "own": options.workload.entry is not None,
            "recomputes": options.compile.recompute,
        }
        prepared = environment.prepare(options)
        stop.leave_result = lambda reason: _stopped(report, StopRequested(reason), options, prepared)
        _train(options, report, stop, prepared)
        report.finish("ok", 0)
        return 0
    except StopRequested as request:
        _stopped(report, request, options)
        return 0
    except BaseException as fault:  # noqa: BLE001 - the result of the run says why it ended, whatever was raised
        # The user's code handles the signal, which the stop switch has received as well.
        is_a_stop = any(isinstance(link, KeyboardInterrupt | SystemExit) for link in (fault, fault.__cause__))
        if is_a_stop and stop.requested():
            _stopped(report, StopRequested(stop.reason), options)
            return 0
        traceback.print_exc()
        noticed = time.monotonic()
        if kind == MULTI_WORKER:
            from .cluster import exchange, rendezvous

            of_peers = (each for each in (fault, fault.__cause__) if each is not None and exchange.is_of_peers(each))
            if (failed := next(of_peers, None)) is not None and stop.reason:
                _stopped(report, StopRequested(stop.reason), options)  # all were asked to, and one was a moment faster
                stop.exit(0)
            fault = fault if failed is None else exchange.blamed(failed, rendezvous.read())
        evidence |= {"device_batches": report.device_batches}
        if (started := read_events(report.run.path, [EVENTS_FILE]).last(events.Started)) is not None:
            batch_size = started.option("input.batch_size") or batch_size  # the fit of a script may decide it
        outcome, error = _failed(fault, report.doing, batch_size, report.run.path, **evidence)
        report.finish(outcome, 1, error)
        if kind == MULTI_WORKER:  # TensorFlow may wait in its destructors, while the others wait for this worker
            # The other workers learn of the failure at about the same time, and ask which of them answer.
            time.sleep(max(0.0, noticed + exchange.LINGER_SECONDS - time.monotonic()))
            stop.exit(1)
    return 1


def _stopped(report: RunReport, request: StopRequested, options: Options, prepared: Prepared = NOTHING) -> None:
    prepared.cache.leave()
    minutes = options.run.max_minutes
    if request.reason == "timeout" and isinstance(minutes, str):  # auto
        end = ending.before_the_job()
        report.finish("timeout", 0, _error(end.kind, end.message, end.hint))
    elif request.reason == "timeout":
        report.finish("timeout", 0, _error("timeout", f"ended after run.max_minutes={minutes or 0:g}", "raise it"))
    elif request.engine_of:
        from .cluster import exchange

        what = f"the engine of {request.engine_of} was killed or has failed, so that all workers have ended"
        report.finish("error", 0, _error("peer", what, exchange.HINT))
    elif request.reason == ENGINE_GONE:
        report.finish("crashed", 0, ENGINE_LOST)
    else:
        report.finish("stopped", 0)


def _train(options: Options, report: RunReport, stop: StopSwitch, prepared: Prepared) -> None:
    with exempt_from_gc():
        import tensorflow as tf  # noqa: F401 - seconds; everything below imports it too

        from .assembly import assemble
        from .setup import actual_settings

    actual_settings.write_into_run_folder()
    actual_settings.exclude_ours()
    report.phase("configuring")

    def train(loop: TrainingLoop) -> None:
        _train_loop(loop, report, stop, prepared)

    if options.workload.is_script:
        from . import script

        script.run(options, report, stop, train)
    else:
        train(assemble(options, report, stop))


def _train_loop(loop: TrainingLoop, report: RunReport, stop: StopSwitch, prepared: Prepared) -> None:
    import tensorflow as tf

    from .fit.epoch_rules import save_model

    built = loop.built
    options = built.options
    resume_at = built.checkpoints.latest_step(loop.steps)
    earlier = read_events(report.run.path, [EVENTS_FILE]) if resume_at is not None else RunEvents([])
    before, report.missed = earlier.last(events.Started), results.not_restored(earlier)
    report.resumes = resume_at is not None
    _announce(loop, report, resume_at, prepared)
    pipeline, replicas = built.pipeline, built.pipeline.replicas
    if before is not None and replicas != before.replicas:  # its steps have another size now
        message = (
            f"the run goes on with {counted(replicas, 'replicas')}, and had {before.replicas}: a step has "
            f"{pipeline.global_batch_size} samples instead of {before.global_batch_size}, and an epoch "
            f"{counted(loop.steps_per_epoch, 'steps')} instead of {before.steps_per_epoch}"
        )
        hint = "the steps that are done count as they are; a batch of another size often needs another learning rate"
        report.warn("other_replicas", message, hint)
    if resume_at is not None and (damaged := built.checkpoints.damaged(resume_at)):
        report.warn("checkpoint_damaged", damaged)
    report.when_first_step_is_done = prepared.cache.first_step_done
    try:
        blamed = built.own.code.blamed(found_only=True) if built.own else contextlib.nullcontext()
        with prepared.cache.guarded(), blamed:
            loop.run(resume_at)
    except StopRequested:
        loop.leave()
        if built.joined is not None:
            built.joined.exchange.leave()
        raise
    except Exception as fault:
        # A scheduler also signals processes that load data, so that the next batch fails. Not if the state may be torn.
        one_step = built.joined is None and options.compile.steps_per_execution == 1
        if one_step and not stop.at_once and stop.requested() and stop.reason == "stopped":
            traceback.print_exception(fault)
            loop.leave()
            what = (
                "the training failed after it was asked to stop, and ends with its last step: "
                f"{type(fault).__name__}: {first_line(fault)}"
            )
            report.warn("stopped", what, "a process that loads data may have got the same signal; see engine.log")
            raise StopRequested(stop.reason) from fault
        if isinstance(fault, tf.errors.InvalidArgumentError):
            built.pipeline.find_fault()
        raise
    if options.run.save_model:
        report.phase("saving", "model.keras")
        if built.joined is None or built.joined.cluster.is_chief:
            save_model(built, loop.step)
    loop.test()
    if built.joined is not None:
        built.joined.exchange.leave()


def _announce(loop: Any, report: RunReport, resume_at: int | None, prepared: Prepared = NOTHING) -> None:
    from .common import versions
    from .measure import run_report, step_costs
    from .setup import actual_settings

    built = loop.built
    options, model, pipeline, own = built.options, built.model, built.pipeline, built.own
    gpus = built.devices.gpus
    inapplicable = own.inapplicable if own else pipeline.train.inapplicable
    unapplied = run_report.unapplied(inapplicable, options)
    peak = step_costs.peak_flops_per_second(options, gpus, pipeline.replicas)
    batch = pipeline.full_batch
    per_step = step_costs.flops_per_step(model, batch) if peak else None
    report.speed.samples_per_second_at_peak = batch * peak / per_step if per_step and peak else None
    capabilities = [gpu.compute_capability for gpu in gpus if gpu.compute_capability]
    actual = actual_settings.read(options, model, pipeline, built.devices)
    report.device_batches = actual["device_batches"] or 0
    actual |= {"xla_reason": built.xla.reason} | prepared.actual()
    if pipeline.sharing:
        actual["sharding"] = pipeline.sharing
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid]
    # All workers call this at the same place.
    workers = list(built.joined.described(pipeline.replicas_here, uuids)) if built.joined else []
    report.writer.emit(
        events.Started(
            pid=os.getpid(),
            versions=versions.of_packages(),
            devices=list(built.devices.names),
            gpus=[gpu.id for gpu in gpus],
            gpu_devices=gpus,
            options=asdict(options),
            actual=actual,
            replicas=pipeline.replicas,
            global_batch_size=batch,
            steps_per_epoch=loop.steps_per_epoch,
            epochs=options.train.epochs,
            steps=loop.steps,
            train_samples=pipeline.train_samples,
            validation_samples=pipeline.validation_samples,
            resumed_at_step=resume_at,
            flops_per_step=per_step,
            peak_flops_per_second=peak,
            cpus=resource_limits.usable_cpus(),
            cpu_bfloat16=chips.cpu_multiplies_bfloat16(),
            compute_capability=min(capabilities, default=None),
            sample_bytes=pipeline.train.sample_bytes,
            not_applied=unapplied,
            inapplicable=inapplicable,
            worker=built.joined.cluster.index if built.joined else None,
            workers=workers,
        )
    )
    with contextlib.suppress(OSError):  # a full disk: the title then names them
        titles.leave_out(report.run, {item["option"]: item["why"] for item in unapplied})
    # Warnings of settings of the training that have no effect, and of readings that are uncertain.
    if own is not None:
        own.warn(options, report, resume_at)
    else:
        report.not_applied(unapplied)
    samples, size = pipeline.train_samples, pipeline.global_batch_size
    if samples is not None and size > samples and training_samples(options.workload, options.train) is None:
        report.warn("large_batch", *too_large_batch(size, samples, pipeline.replicas), "input.batch_size")
    prepared.warn(report, built.devices.kind, pipeline.replicas)
    for key, instead in actual_settings.differences(options, actual, built.devices):
        report.warn("not_as_asked", f"{key} is not as asked: {instead}", option=key)
    if built.devices.uncertain:
        report.warn("gpus_uncertain", built.devices.uncertain, "GPU readings of this run may be of another GPU")


def _failed(
    fault: BaseException, phase: str, batch_size: int, run_folder: Path, **more: Any
) -> tuple[events.Outcome, dict[str, str]]:
    """Return the outcome and the error to report for an exception. Exhausted memory is recognised in all its forms."""
    log = Run(run_folder).log_tail(ending.LOG_LINES)
    evidence = ending.Evidence(1, log, batch_size, phase=phase, ceilings=resource_limits.ceilings(), **more)
    kind, message, number = type(fault).__name__, first_line(fault), writing.refusal(fault)
    end: ending.Ending | None = None
    if isinstance(fault, TrainerError):
        # TensorFlow names the user's line that it ran; a failure of the device is not that line's fault.
        if type(fault.__cause__).__module__.startswith("tensorflow."):
            end = ending.named_by(str(fault.__cause__), evidence, fault.message)
    elif number is None:
        end = ending.named_by(f"{kind}: {fault}", evidence, message)
    if end:
        end = ending.with_hint(end, run_cluster.is_saved(Run(run_folder)))
        return end.outcome, _error(end.kind, end.message, end.hint)
    if isinstance(fault, TrainerError):
        return "error", _error(fault.kind, fault.message, fault.hint)
    if number is not None:
        message = f"{writing.describe(number, writing.place(fault) or run_folder)}: the training could not go on"
        return "error", _error("disk", message, f"{writing.remedy(number)}; the full traceback is in engine.log")
    if phase == "importing" and isinstance(fault, ImportError):
        hint = f"{sys.executable} -c 'import tensorflow' shows the whole error; install TensorFlow there again"
        return "error", _error(kind, f"TensorFlow cannot be imported in {sys.executable}: {kind}: {message}", hint)
    return "error", _error(kind, f"{kind}: {message}", "the full traceback is in engine.log")


def _error(kind: str, message: str, hint: str) -> dict[str, str]:
    return {"kind": kind, "message": message, "hint": hint}
