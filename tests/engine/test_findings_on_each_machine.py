"""All findings about many settings on many machines: what is said where, and where nothing is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import checks
from gputui.engine.interpreter import installed
from gputui.engine.job.machine_gpus import Instance, Machine
from gputui.engine.job.slurm import Left

from tests.support.bare_machine import built as built
from tests.support.checked import (
    BLACKWELL,
    FOUR_FIVE,
    GB,
    MIXED,
    MODELS,
    NONE,
    OLD_DRIVER,
    ONE,
    PASCAL,
    SILENT,
    STOPPED,
    TAKEN,
    TOGETHER,
    TWO,
    WITH_DISPLAY,
    gpu,
    machine,
)
from tests.support.training import options

BUSY_NODE = replace(TWO, cluster=TOGETHER)
PARTS = machine(replace(gpu(0), mig=True, instances=(Instance("MIG-a", 20 * GB), Instance("MIG-b", 40 * GB))))
MACHINES = {
    "no GPU": NONE, "one": ONE, "two": TWO, "Pascal": PASCAL, "Blackwell": BLACKWELL, "H100 and Pascal": MIXED,
    "two models": MODELS, "with a display": WITH_DISPLAY, "MIG": PARTS, "taken": TAKEN, "old driver": OLD_DRIVER,
    "no NVML": SILENT, "driver stopped": STOPPED, "job on 4, 5": FOUR_FIVE, "worker": BUSY_NODE,
    "Slurm": replace(TWO, job_id="7", job_ends=Left(3600.0)),
}  # fmt: skip
SETTINGS = """\
epochs=3
kind=one_device
kind=mirrored
kind=mirrored xla=true policy=mixed_float16
kind=mirrored communication=nccl logical_devices=2
kind=mirrored communication=ring on_oom=accumulate xla=true
kind=mirrored devices=1 gradient_accumulation=2
kind=mirrored visible=0 batch_size=3
kind=multi_worker
kind=multi_worker on_oom=stop communication=hierarchical_copy devices=0
kind=multi_worker on_oom=stop logical_devices=2 gradient_accumulation=2 clip_norm=1
devices=1 communication=nccl learning_rate_scaling=linear
kind=mirrored learning_rate_scaling=sqrt
kind=mirrored learning_rate_scaling=linear warmup_steps=5 logical_devices=2
kind=one_device devices=1 communication=hierarchical_copy xla_flags=--xla_gpu_a=1 xla=false
visible=none xla=true
visible=1 policy=mixed_bfloat16
visible=0,1 memory_growth=on memory_limit_mb=9000
visible=free:1 on_oom=halve
visible=free:2@30GB kind=mirrored
visible=fits:1 memory_growth=off
visible=GPU-1,0
visible=MIG-b gpu_thread_mode=gpu_private gpu_thread_count=40
per_gpu=2 memory_limit_mb=500
per_gpu=2 visible=free:1 give_way=true
allocator=cuda_malloc_async logical_devices=2
allocator=cuda_malloc_async memory_growth=off numa=off tf32=false
gpu_thread_count=4
policy=mixed_float16 xla=auto model=resnet50
xla=true deterministic=true drop_remainder=true
xla=true model=mlp optimizer=sgd momentum=0.5 nesterov=true
xla_flags=--xla_gpu_a=1 xla_cache=true
stop_signal=SIGUSR1 max_minutes=auto
stop_signal=SIGUSR1 max_minutes=auto checkpoint=epoch
prefetch=off prefetch_to_device=2 private_threads=64"""
OF_ANY_MACHINE = """\
epochs=300
micro_batches=2 batch_size=1 xla=true
on_oom=accumulate micro_batches=2
steps_per_execution=4 steps_per_epoch=6 nan_check_steps=3
warmup_steps=50 hold_steps=50 steps_per_epoch=10 epochs=2
schedule=step decay_steps=5 decay_rate=0.5 optimizer=adam momentum=0.9
schedule=reduce_on_plateau plateau_figure=val_loss validation_split=0
early_stop=val_loss keep_best=val_accuracy validation_split=0
clip_norm=1 global_clip_norm=1
cast=device augment=heavy
cast=device model=transformer
deterministic_order=false checkpoint=epoch deterministic=true
shuffle=3 batch_size=8 one_batch=true cache=memory
parallel_reads=4 validation=test
inter_op_threads=64 intra_op_threads=64
run.code=copy args.a=1
data=synthetic shape=[8] model=cnn
data=synthetic shape=[8,8,3] classes=2 model=transformer
kernel_size=5 model=mlp separable=true blocks=2
profile=5-9 measure_seconds=5 save_model=true log_placement=true
early_stop_patience=9 early_stop_min_delta=1
early_stop=nothing keep_best=loss
schedule=reduce_on_plateau warmup_steps=5 decay_steps=9 plateau_min_rate=0.1
plateau_patience=2 decay_rate=0.5
optimizer=adamw nesterov=true weight_decay=0.1
blocks=2 model=transformer normalization=batch stride=2
data=images:/nowhere
data=npz:/nowhere.npz validation=test cache=of
samples=5 tfrecord_input=a classes=3
validation=test data=synthetic
micro_batches=3 gradient_accumulation=2 give_way=true checkpoint=epoch
on_oom=halve checkpoint=5 code=copy entry=nowhere.py:build
entry=nowhere:build model=mlp folder=/nowhere
steps_per_execution=8 steps_per_epoch=4
steps_per_execution=4 steps_per_epoch=4
cast=device data=synthetic
cast=device data=tfrecord:/nowhere tfrecord_encoding=float32 parallel_reads=2
cast=device augment=light
shuffle=8 batch_size=8 micro_batches=8
shuffle=7 batch_size=8 micro_batches=9
optimizer=sgd nesterov=true
optimizer=rmsprop momentum=0.5 schedule=cosine hold_steps=5
early_stop=loss early_stop_patience=4 epochs=5
early_stop=loss early_stop_patience=5 epochs=5 validation_split=0
keep_best=val_loss:min checkpoint=epoch deterministic_order=false
checkpoint=5 deterministic_order=false
model=mlp data=synthetic shape=[8] kernel_size=3 stride=1
on_oom=accumulate checkpoint=epoch"""


@pytest.fixture(autouse=True)
def packages(built: None, home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TensorFlow whose versions are known, and no earlier run."""
    monkeypatch.setattr(installed, "cudnn", lambda: installed.Cudnn((9, 24)))
    monkeypatch.delenv("GPUTUI_PYTHON", raising=False)


def test_what_is_found_of_each_setting_on_each_machine(snapshot: Any) -> None:
    texts: set[str] = set()
    lines = []
    few = {name: MACHINES[name] for name in ("no GPU", "one", "two")}
    asked = [(settings, MACHINES) for settings in SETTINGS.splitlines()]
    asked += [(settings, few) for settings in OF_ANY_MACHINE.splitlines()]
    for settings, there in asked:
        given = options(*(re.sub("^kind=", "strategy.kind=", word) for word in settings.split()))
        machines: dict[str, list[str]] = {}
        for name, on in there.items():
            found = checks.check(given, on)
            said = [(one, one.message.replace(str(Path.cwd()), "HERE")) for one in found]
            texts |= {f"{one.level}: {', '.join(one.options)}: {message}; {one.change}" for one, message in said}
            short = (f"        {one.level[0]} {' '.join(one.options)}: {message[:40]}" for one, message in said)
            machines.setdefault("\n".join(short) or "        nothing", []).append(name)
        lines.append(settings)
        lines += [f"    {', '.join(names)}:\n{findings}" for findings, names in machines.items()]
    assert "\n".join([*lines, "", *sorted(texts)]) == snapshot


@pytest.mark.parametrize(
    ("version", "on", "said"),
    [
        ((9, 2), PASCAL, ["device.visible"]), ((9, 10), PASCAL, ["compile.xla"]), ((9, 11), PASCAL, ["device.visible"]),
        ((9, 23), PASCAL, ["device.visible"]), ((9, 24), PASCAL, ["device.visible"]), ((9, 23), ONE, ["compile.xla"]),
        ((9, 24), ONE, []), ((9, 23), MIXED, ["compile.xla"]), ((9, 2), NONE, []), ((9, 23), NONE, []),
    ],
)  # fmt: skip
def test_of_a_cudnn_that_does_not_fit_one_thing_is_said(
    version: tuple[int, int], on: Machine, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "cudnn", lambda: installed.Cudnn(version))
    given = options("model=cnn", "drop_remainder=true", "strategy.kind=single", "visible=all", "xla=true")
    found = checks.check(given, on)
    assert [one.options[0] for one in found if "cuDNN" in one.message] == said
