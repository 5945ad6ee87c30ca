"""The closing list of an exported script: changed options that no line obeys, each with the reason."""

from __future__ import annotations

from ..options import OPTIONS, Options, by_key
from ..options.own import UNREAD
from ..presets import Preset
from .lines import Script

WATCHER = "needs a process that watches this one"
OUTSIDE = {
    "run.hang_seconds": WATCHER,
    "run.on_oom": WATCHER,
    "run.sample_seconds": WATCHER,
    "run.pcie": WATCHER,
    "run.max_minutes": "auto is the time limit of the job that gputui runs in; give minutes",
    "run.stop_signal": WATCHER,
    "run.measure_seconds": "ends a run that is measured; a script trains to its end",
    "run.python": "a script is run by the Python that it is given to",
    "run.code": "a script imports the code where it lies",
    "run.tries": "a script is in no queue",
    "run.give_way": "a script is in no queue",
    "run.keep": "Keras' callbacks keep one checkpoint",
    "device.numa": "gputui asks the driver for the GPU's NUMA node; in a script use numactl --cpunodebind=N",
    "compile.xla_cache": "the cache of XLA's programs is in gputui's home; the script has none",
    "train.nan_check_steps": "TerminateOnNaN looks at the loss of every batch, not at the weights",
}
# Options that have no effect, given the other options; gputui does nothing with them either.
IDLE = {
    "device.memory_growth": "TensorFlow knows no growth beside device.memory_limit_mb and device.logical_devices",
    "strategy.devices": "strategy.kind=single takes the first device",
    "strategy.communication": "only strategy.kind=mirrored exchanges gradients",
    "train.decay_steps": "train.schedule is constant",
    "train.decay_rate": "train.schedule is constant",
    "workload.shape": "only synthetic, images and tfrecord data take it",
    "workload.classes": "only synthetic and tfrecord data take it",
    "workload.samples": "only synthetic and tfrecord data take it",
    "workload.tfrecord_input": "only tfrecord data takes it",
    "workload.tfrecord_label": "only tfrecord data takes it",
    "workload.tfrecord_encoding": "only tfrecord data takes it",
    "workload.blocks": "only the transformer takes it",
    "input.parallel_reads": "only tfrecord data is read so",
    "train.hold_steps": "train.schedule is constant",
    "train.momentum": "only sgd and rmsprop take it",
    "train.nesterov": "only sgd with momentum takes it",
    "workload.args": "workload.entry is not set",
    "workload.folder": "workload.entry is not set",
}
TITLE = "# Not in this script:"
PYDATASET = (
    "# Of a keras.utils.PyDataset also not, for Keras loads its batches with the workers that your code gives it:",
    "# input.prefetch, input.prefetch_to_device, input.parallel_calls, input.private_threads,",
    "# input.deterministic_order, input.one_batch",
)
ONE_PASS = "# nor train.steps_per_epoch: Keras goes through it once in each epoch"


def leftovers(script: Script, preset: Preset, named: frozenset[str]) -> None:
    """Writes the comments at the end of the script: the changed options that no line of it names. `named` are the
    options that lines of the script name.
    """
    options = preset.options
    lines = [f"# {key}: {_reason(key, options)}" for key in preset.changed() if key not in named]
    if lines:
        script.text("\n".join(("", TITLE, *lines)))
    if options.workload.entry is not None:
        script.text("\n".join(("", *PYDATASET, *([] if options.train.steps_per_epoch is None else [ONE_PASS]))))


def _reason(key: str, options: Options) -> str:
    if key in ("train.nan_check_steps", "run.keep"):
        switch, off = ("train.stop_on_nan", not options.train.stop_on_nan)
        if key == "run.keep":
            switch, off = "run.checkpoint", options.run.checkpoint == "off"
        if off:
            return f"{switch} is off"
    if options.workload.entry is not None and by_key(OPTIONS)[key].about.own == "unread":
        return UNREAD
    return OUTSIDE.get(key) or IDLE.get(key) or "gputui's own; plain Keras has nothing like it"
