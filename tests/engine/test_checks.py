"""What in a preset does not fit together or the machine: each rule has a case that triggers it and one not."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.doors.engine import (
    OPTIONS,
    Allocation,
    Cluster,
    Finding,
    GpuProcess,
    Machine,
    MigInstance,
    checks,
    gpu_checks,
    installed,
    options_json,
    presets,
    runs,
)
from tests.doors.engine import several_tasks_read as read_job
from tests.support import recorded
from tests.support.cases import all_hold
from tests.support.checked import (
    BLACKWELL,
    EIGHT,
    EMPTY,
    FOUR_FIVE,
    GB,
    HELD,
    MIXED,
    MODELS,
    NONE,
    NOT_FENCED,
    OLD_DRIVER,
    ONE,
    P100,
    PARTED,
    PASCAL,
    SILENT,
    STOPPED,
    TAKEN,
    TOGETHER,
    TOO_OLD,
    TWO,
    UNKNOWN,
    VOLTA,
    WITH_DISPLAY,
    WORKER,
    given,
    gpu,
    machine,
)
from tests.support.training import options

KEYS = {info.key for info in OPTIONS}

FOUR = tuple(GpuProcess(pid, name=name) for pid, name in enumerate("abcd", 1))
FOUR_HOLD = machine(replace(gpu(0), memory_used_bytes=9 * GB, processes=FOUR))
LOST = {"*": "lost"}
UNNAMED = machine(replace(gpu(0), memory_used_bytes=9 * GB))
WHOLE = "data=synthetic validation_split=0 batch_size=32"  # 4 batches of 100 samples, the last of 4
# rule, machine, settings that trigger it, level, a word of the message
TEXTS = "tests/support/programs/entry/text.py"
TRIGGERS = [
    ("none_shown", STOPPED, "epochs=3", "error", "the driver is not loaded"),
    ("none_shown", STOPPED, "visible=0", "error", "the driver is not loaded"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="GPU-9"), "epochs=3", "error", "shows no GPU: GPU-9 fits no single"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="7"), "epochs=3", "error", "shows no GPU: 7 fits no single GPU"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="1,1"), "epochs=3", "error", "or names a GPU twice"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="1,7"), "epochs=3", "warning", "shows GPU 1 (A GPU) alone: 7 fits"),
    ("none_shown", given(PARTED, CUDA_VISIBLE_DEVICES="MIG-c"), "epochs=3", "error", "shows no GPU: MIG-c fits no"),
    ("none_shown", given(EMPTY, CUDA_VISIBLE_DEVICES="0"), "epochs=3", "error", "GPU 0: MIG is on without an instance"),
    ("none_shown", EMPTY, "epochs=3", "error", "MIG is on without an instance"),
    ("none_shown", MODELS, "epochs=3", "warning", "GPUs of different models: GPU 0 (RTX 3090), GPU 1 (RTX 4090), in"),
    ("none_shown", given(MODELS, CUDA_VISIBLE_DEVICES="1"), "epochs=3", "warning", "=1 means GPU 1 (RTX 4090), in the"),
    ("usable", machine(replace(gpu(0), missing="the GPU is lost", reasons=LOST)), "epochs=3", "error",
     "GPU 0: the GPU is lost"),
    ("usable", machine(replace(gpu(0), prohibited=True)), "epochs=3", "error", "GPU 0: its compute mode is PROHIBITED"),
    ("usable", machine(HELD), "epochs=3", "error", "python 77 has GPU 1 for itself"),
    ("usable", TAKEN, "epochs=3", "warning", "GPU 0: 70.0 GiB of 80.0 GiB are already in use by python 77"),
    ("usable", MODELS, "strategy.kind=mirrored", "warning", "different GPUs (RTX 3090, RTX 4090): each step waits"),
    ("usable", TOO_OLD, "epochs=3", "error", "has no code for GPU 0 (A GPU): the chip is too old"),
    ("usable", TOO_OLD, "visible=0", "error", "has no code for GPU 0 (A GPU): the chip is too old"),
    ("missing_gpus", NONE, "visible=0", "error", "there is no GPU 0 (no NVIDIA driver)"),
    ("missing_gpus", TWO, "visible=0,2", "error", "there is no GPU 2 (this machine has 2)"),
    ("missing_gpus", TWO, "visible=GPU-9", "error", "there is no GPU GPU-9"),
    ("missing_gpus", TWO, "visible=0,0", "error", "twice"),
    ("missing_gpus", TWO, "visible=GPU-1,0", "error", "mixes indices and UUIDs"),
    ("allocation", FOUR_FIVE, "visible=0", "error", "GPU 0 is not allocated to this job: this job is allo"),
    ("allocation", FOUR_FIVE, "visible=4,6", "error", "GPU 6 is not"),
    ("allocation", FOUR_FIVE, "visible=GPU-3", "error", "GPU GPU-3 is not"),
    ("allocation", given(EIGHT, CUDA_VISIBLE_DEVICES="GPU-4"), "visible=5", "error", "allocated GPU GPU-4"),
    ("allocation", given(EIGHT, CUDA_VISIBLE_DEVICES=""), "visible=0", "error", "is allocated no GPU"),
    ("allocation", given(SILENT, CUDA_VISIBLE_DEVICES="4,5"), "visible=0", "error", "is allocated GPU 4,5"),
    ("allocation", given(PARTED, CUDA_VISIBLE_DEVICES="MIG-a"), "visible=MIG-b", "error", "GPU MIG-b is not"),
    ("allocation", NOT_FENCED, "visible=0", "error", "is allocated GPU 4,5 (SLURM_JOB_GPUS)"),
    ("allocation", NOT_FENCED, "epochs=3", "warning", "does not hide the others"),
    ("allocation", given(EIGHT, SLURM_STEP_GPUS="2", SLURM_JOB_GPUS="2,3"), "visible=3", "error", "GPU 2 (SLURM"),
    ("watched", NONE, "early_stop=val_loss validation_split=0", "error", "validation, which is off"),
    ("watched", NONE, "early_stop=f1", "error", "no figure f1"),
    ("watched", NONE, "early_stop=loss epochs=5", "warning", "5 epochs cannot end early after 5"),
    ("watched", NONE, "early_stop_restore=true", "error", "no effect while train.early_stop is off"),
    ("watched", NONE, "keep_best=val_f1", "error", "no figure val_f1"),
    ("watched", NONE, "keep_best_count=3", "error", "no effect while run.keep_best is off"),
    ("watched", NONE, "schedule=reduce_on_plateau warmup_steps=9", "error", "cannot follow a warm-up"),
    ("watched", NONE, "schedule=reduce_on_plateau decay_steps=9", "warning", "does not follow the steps"),
    ("watched", NONE, "schedule=reduce_on_plateau plateau_figure='off'", "error", "no figure off"),
    ("watched", NONE, "schedule=cosine plateau_patience=3", "error", "no effect while train.schedule is cosine"),
    ("follow_targets", NONE, "follow=tensorboard,trackio", "error", "trackio is not installed"),
    ("per_gpu", ONE, "per_gpu=2", "error", "the queue chooses the GPU"),
    ("per_gpu", ONE, "per_gpu=2 visible=fits:1", "error", "the queue chooses the GPU"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:1 strategy.kind=mirrored", "error", "trainings share one device"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:1 memory_limit_mb=50000", "error", "are more than GPU 0"),
    ("memory", VOLTA, "memory_growth=off memory_limit_mb=16385", "error", "is more than GPU 0 has (16.0 GiB)"),
    ("memory", VOLTA, "memory_growth=off memory_limit_mb=8193 logical_devices=2", "error", "2 x 8.0 GiB is more"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:2", "error", "the queue chooses the GPU"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:1 allocator=cuda_malloc_async", "error", "cuda_malloc_async cannot do"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:1 logical_devices=2", "error", "share one whole device"),
    ("per_gpu", ONE, "per_gpu=2 visible=free:1 memory_growth=true", "error", "cannot combine with growth"),
    ("xla", ONE, f"{WHOLE} samples=100 epochs=2 steps_per_epoch=2", "note", "last, smaller batch"),
    ("xla", ONE, f"{WHOLE} samples=100 epochs=1 steps_per_epoch=4", "note", "last, smaller batch"),
    ("xla", TWO, f"{WHOLE} samples=66 xla=true strategy.kind=mirrored", "warning", "last, smaller batch"),
    ("usable", FOUR_HOLD, "epochs=3", "warning", "are already in use by a 1, b 2, c 3"),
    ("usable", UNNAMED, "epochs=3", "warning", "9.0 GiB of 80.0 GiB are already in use"),
    ("missing_gpus", TWO, "visible=free:3", "error", "free:3 needs 3 GPUs; this process may use 2 such of 2"),
    ("missing_gpus", NONE, "visible=free:1", "error", "free:1 needs a GPU (no NVIDIA driver)"),
    ("missing_gpus", PARTED, "visible=free:2", "error", "CUDA shows one MIG instance to a process"),
    ("missing_gpus", TWO, "visible=fits:1 memory_growth=false", "error", "fits:1 shares a GPU with others, but"),
    ("missing_gpus", MODELS, "visible=free:3@RTX", "error", "free:3@RTX needs 3 GPUs of the kind RTX; this"),
    ("missing_gpus", TWO, "visible=free:1@90GB", "error", "free:1@90GB needs a GPU with 90 GB; this process may use 0"),
    ("allocation", replace(ONE, allocation=Allocation("SLURM_JOB_GPUS", ())), "epochs=3", "warning",
     "is allocated no GPU"),
    ("steps", NONE, "steps_per_epoch=4 steps_per_execution=5", "warning", "cut to the epoch's 4"),
    ("steps", NONE, "steps_per_epoch=5 steps_per_execution=4", "note", "has 1 step instead of 4"),
    ("steps", NONE, "shuffle=63 batch_size=64", "warning", "smaller than one batch"),
    ("gradients", NONE, "gradient_accumulation=2 epochs=3 steps_per_epoch=3", "note", "the last 1 of 9 steps"),
    ("gradients", NONE, "gradient_accumulation=10 epochs=3 steps_per_epoch=3", "warning", "the last 9 of 9 steps"),
    ("gradients", TWO, "gradient_accumulation=2 strategy.kind=multi_worker", "error", "over several replicas"),
    ("watched", NONE, "early_stop=loss epochs=6 early_stop_patience=7", "warning", "cannot end early after 7"),
    ("watched", NONE, "early_stop=accuracy:min validation_split=0 epochs=5", "warning", "cannot end early"),
    ("watched", NONE, "keep_best=val_loss validation_split=0", "error", "validation, which is off"),
    ("scaling", NONE, "learning_rate_scaling=linear strategy.kind=one_device", "note", "no effect with one replica"),
    ("scaling", TWO, "learning_rate_scaling=sqrt strategy.kind=mirrored", "note", "begin with 1.41 times the learning"),
    ("scaling", EIGHT, "learning_rate_scaling=sqrt strategy.kind=mirrored", "note", "2.83 times the learning rate"),
    ("gradients", TWO, "clip_value=1 strategy.kind=multi_worker", "note", "of each replica"),
    ("entry", NONE, "args.a=1", "warning", "does nothing without workload.entry"),
    ("others", replace(WORKER, cluster=Cluster(("a:1", "b:1", "c:1"), 2, "--cluster")), "strategy.kind=multi_worker",
     "note", "this is worker 2 of 3, at c:1 (--cluster)"),
    ("strategy", TWO, "strategy.kind=multi_worker communication=reduction_to_one_device", "error", "one machine"),
    ("strategy", TWO, "strategy.kind=one_device strategy.devices=2", "error", "there is no device 2; there are 2"),
    ("strategy", TWO, "strategy.kind=mirrored strategy.devices=3 logical_devices=1", "error", "no device 3"),
    ("strategy", NONE, "strategy.kind=mirrored", "warning", "no faster than single"),
    ("precision", machine(gpu(0, (6, 2))), "policy=mixed_float16", "warning", "6.2) has no tensor cores"),
    ("precision", machine(gpu(0, (7, 5))), "policy=mixed_bfloat16", "error", "8.0, but GPU 0 has 7.5"),
    # several findings of one rule, and what one of two causes leaves
    ("memory", ONE, "allocator=cuda_malloc_async memory_limit_mb=512 logical_devices=2", "error", "neither a"),
    ("memory", ONE, "memory_growth=on memory_limit_mb=512 logical_devices=2", "error", "ignores memory growth"),
    ("watched", NONE, "schedule=reduce_on_plateau warmup_steps=9 decay_steps=9", "error", "cannot follow a warm-up"),
    ("watched", NONE, "plateau_patience=3 plateau_min_rate=0.1", "error", "no effect while train.schedule is constant"),
    ("gradients", TWO, "clip_norm=1 clip_value=1 strategy.kind=mirrored", "error", "one kind of clipping"),
    ("determinism", NONE, "xla=on deterministic=on deterministic_order=off checkpoint=9", "error", "Keras turns XLA"),
    ("misfits", NONE, "separable=false model=mlp", "error", "mlp has no convolutions"),
    ("misfits", NONE, "kernel_size=3 model=mlp blocks=2", "error", "mlp has a fixed depth"),
    ("steps", NONE, "shuffle=1 batch_size=2", "warning", "smaller than one batch"),
    ("strategy", TWO, "strategy.kind=one_device communication=nccl", "warning", "exchanges no gradients"),
    ("strategy", NONE, "communication=nccl strategy.devices=0", "error", "between GPUs only"),
    ("workers", NONE, "strategy.kind=multi_worker logical_devices=2 strategy.devices=0", "error", "takes all visible"),
    ("missing_gpus", TWO, "visible=5,5,GPU-9", "error", "there is no GPU 5"),
    ("gradients", TWO, "micro_batches=9 batch_size=8 on_oom=accumulate strategy.kind=mirrored xla=true", "error",
     "over several replicas"),
    ("optimizer", NONE, "optimizer=adam momentum=0.9 nesterov=true hold_steps=2", "error", "adam takes no momentum"),
    ("data_and_cache", NONE, "data=npz:/no/a.npz cache=of", "error", "no file /no/a.npz"),
    ("watched", NONE, "early_stop_patience=2 early_stop_min_delta=0.1", "error", "while train.early_stop is off"),
    ("watched", NONE, "keep_best=val_loss keep_best_count=3 validation_split=0", "error", "of the validation"),
    ("without_effect", SILENT, "visible=none memory_limit_mb=1024", "note", "nothing without a GPU"),
    ("usable", machine(replace(FOUR_HOLD.gpus[0], prohibited=True)), "epochs=3", "error", "mode is PROHIBITED"),
    ("usable", machine(replace(FOUR_HOLD.gpus[0], exclusive=True)), "epochs=3", "error", "a 1 has GPU 0 for itself"),
    ("usable", machine(replace(FOUR_HOLD.gpus[0], missing="it fell off the bus", reasons=LOST, prohibited=True)),
     "epochs=3", "error", "GPU 0: it fell off the bus"),
    ("allocation", given(EIGHT, SLURM_JOB_GPUS="0-6"), "epochs=3", "warning", "does not hide the others"),
    ("usable", machine(gpu(0), gpu(1, (5, 2))), "visible=1", "error", "the chip is too old"),
    ("others", replace(NONE, job=read_job({"TF_CONFIG": "{}"})), "epochs=3", "warning", "not contain a readable"),
    ("others", NONE, "strategy.kind=multi_worker", "error", "nothing names the machines to train on"),
    ("others", WORKER, "strategy.kind=multi_worker", "note", "worker 1 of 2, at b:1 (Slurm)"),
    ("workers", WORKER, "strategy.kind=multi_worker on_oom=halve", "error", "cannot go on alone"),
    ("entry", NONE, f"entry={TEXTS}:build model=mlp", "error", "your own code takes"),
    ("entry", NONE, "folder=/tmp", "warning", "does nothing without workload.entry"),
    ("entry", NONE, "run.code=copy", "warning", "does nothing without workload.entry"),
    ("entry", NONE, "run.code=copy entry=entry.text:build", "warning", "the code of a module is not copied"),
    ("entry", NONE, "entry=nowhere.py:build", "error", "nowhere.py does not exist"),
    ("entry", NONE, "entry=no.module:build", "error", "there is no module no.module"),
    ("entry", NONE, f"entry={TEXTS}:other", "error", "has no function other (it has make_texts"),
    ("entry", NONE, f"entry={TEXTS}:make_texts folder=/nowhere", "error", "does not exist"),
    ("workers", replace(TWO, cluster=TOGETHER), "strategy.kind=multi_worker", "warning", "2 workers share this"),
    ("none_shown", replace(ONE, cuda=(11, 4), driver="470"), "epochs=3", "error", "driver 470, CUDA 11.4: Ten"),
    ("chip", OLD_DRIVER, "epochs=3", "error", "only as PTX 8.5, which this driver, for CUDA 12.2, cannot compile"),
    ("chip", BLACKWELL, "xla=on", "error", "built with CUDA 12.5, crashes on GPU 0 (compute cap"),
    ("memory", ONE, "memory_growth=on memory_limit_mb=1024", "error", "ignores memory growth"),
    ("memory", ONE, "memory_growth=on logical_devices=2", "error", "ignores memory growth"),
    ("memory", VOLTA, "memory_growth=off memory_limit_mb=99999", "error", "more than GPU 0 has"),
    ("memory", VOLTA, "memory_growth=off memory_limit_mb=9000 logical_devices=2", "error", "2 x 8.8 GiB"),
    ("memory", NONE, "logical_devices=2", "note", "the CPU is split into 2"),
    ("memory", ONE, "visible=none logical_devices=2", "note", "the CPU is split into 2"),
    ("without_effect", NONE, "memory_limit_mb=1024", "note", "nothing without a GPU"),
    ("without_effect", NONE, "gpu_thread_mode=gpu_private", "note", "nothing without a GPU"),
    ("without_effect", ONE, "visible=none tf32=off", "note", "nothing without a GPU"),
    ("precision", PASCAL, "policy=mixed_float16", "error", "7.0, but GPU 0 has 6.1"),
    ("precision", VOLTA, "policy=mixed_bfloat16", "error", "8.0, but GPU 0 has 7.0"),
    ("precision", MIXED, "policy=mixed_bfloat16 strategy.kind=mirrored", "error", "GPU 1 has 6.1"),
    ("precision", P100, "policy=mixed_float16", "warning", "GPU 0 (compute capability 6.0) has no tensor cores"),
    ("precision", NONE, "policy=mixed_float16", "warning", "slower than float32 on a CPU"),
    ("determinism", ONE, "xla=on deterministic=on", "error", "deterministic"),
    ("xla", NONE, "xla=on", "warning", "last, smaller batch"),
    ("xla", NONE, "xla=on data=npz:/no/a.npz", "warning", "last, smaller batch"),  # it may have one
    ("xla", ONE, "epochs=3", "note", "last, smaller batch"),  # with auto XLA compiles on one GPU
    ("strategy", TWO, "strategy.devices=1", "warning", "single uses the first device only"),
    ("strategy", TWO, "strategy.kind=mirrored strategy.devices=0,2", "error", "there is no device 2; there are 2"),
    ("strategy", TWO, "strategy.kind=mirrored strategy.devices=0,0", "error", "each once"),
    ("strategy", TWO, "strategy.kind=mirrored strategy.devices=[]", "error", "at least one"),
    ("strategy", TWO, "strategy.kind=mirrored visible=1 strategy.devices=1", "error", "there is no device 1"),
    ("strategy", ONE, "strategy.kind=mirrored", "warning", "no faster than single"),
    ("strategy", TWO, "strategy.kind=mirrored strategy.devices=1", "warning", "no faster than single"),
    ("strategy", NONE, "strategy.kind=mirrored logical_devices=2 communication=nccl", "error", "between GPUs only"),
    ("strategy", TWO, "strategy.kind=mirrored communication=nccl logical_devices=2", "error", "two replicas on one"),
    ("strategy", TWO, "communication=hierarchical_copy", "warning", "exchanges no gradients"),
    ("workers", TWO, "strategy.kind=multi_worker strategy.devices=0", "error", "takes all visible GPUs"),
    ("workers", NONE, "strategy.kind=multi_worker logical_devices=2", "error", "a CPU as one device"),
    ("strategy", TWO, "strategy.kind=multi_worker communication=hierarchical_copy", "error", "one machine"),
    ("strategy", TWO, "strategy.kind=mirrored communication=ring", "error", "between machines"),
    ("determinism", NONE, "deterministic=on deterministic_order=off", "error", "same result twice"),
    ("determinism", NONE, "checkpoint=epoch deterministic_order=off", "warning", "not resumed exactly"),
    ("gradients", NONE, "clip_norm=1 clip_value=1", "error", "one kind of clipping"),
    ("gradients", NONE, "global_clip_norm=1 clip_value=1", "error", "one kind of clipping"),
    ("gradients", NONE, "global_clip_norm=1 strategy.kind=mirrored logical_devices=2", "note", "of each replica"),
    ("gradients", TWO, "gradient_accumulation=4 strategy.kind=mirrored", "error", "over several replicas"),
    ("gradients", NONE, "gradient_accumulation=6", "note", "the last 4 of 52 steps are never applied"),
    ("gradients", NONE, "gradient_accumulation=9 steps_per_epoch=4", "warning", "the last 8 of 8 steps"),
    ("gradients", TWO, "micro_batches=4 strategy.kind=mirrored xla=true", "error", "over several replicas"),
    ("gradients", TWO, "on_oom=accumulate strategy.kind=mirrored xla=true", "error", "over several replicas"),
    ("gradients", TWO, "gradient_accumulation=2 strategy.kind=mirrored", "error", "over several replicas"),
    ("gradients", NONE, "micro_batches=9 batch_size=8", "warning", "cannot have 9 parts"),
    ("gradients", NONE, "on_oom=accumulate", "note", "begins again"),
    ("gradients", ONE, "give_way=true", "error", "begin again each time"),
    ("memory", ONE, "allocator=cuda_malloc_async memory_limit_mb=512", "error", "neither a memory limit"),
    ("memory", ONE, "allocator=cuda_malloc_async logical_devices=2", "error", "nor partitions"),
    ("without_effect", ONE, "gpu_thread_count=2", "warning", "no threads of its own for GPUs"),
    ("without_effect", ONE, "xla=off xla_flags=--xla_dump_to=/tmp", "warning", "XLA compiles nothing"),
    ("cast", ONE, "cast=device data=tfrecord:/no/a tfrecord_encoding=float32", "warning", "tfrecord data are not"),
    ("cast", ONE, "cast=device data=synthetic", "warning", "synthetic data are not bytes"),
    ("cast", ONE, "cast=device model=transformer", "warning", "tokens are created on the host"),
    ("cast", ONE, "cast=device augment=flip,noise", "warning", "needs floats on the host"),
    ("optimizer", NONE, "optimizer=adam momentum=0.9", "error", "adam takes no momentum"),
    ("optimizer", NONE, "optimizer=sgd nesterov=true", "error", "sgd with momentum"),
    ("optimizer", NONE, "optimizer=rmsprop momentum=0.9 nesterov=true", "error", "sgd with momentum"),
    ("optimizer", NONE, "hold_steps=5", "warning", "does nothing with train.schedule=constant"),
    ("scaling", TWO, "learning_rate_scaling=linear strategy.kind=mirrored", "note", "2 times the learning rate, 0.002"),
    ("scaling", ONE, "learning_rate_scaling=sqrt", "note", "no effect with one replica: the learning rate stays 0.001"),
    ("validation", NONE, "validation=test", "error", "digits has no test part"),
    ("misfits", NONE, "blocks=3", "error", "cnn has a fixed depth"),
    ("misfits", NONE, "separable=true stride=2 model=mlp", "error", "mlp has no convolutions"),
    ("misfits", NONE, "parallel_reads=auto", "warning", "not read from TFRecord files"),
    ("steps", NONE, "steps_per_epoch=4 steps_per_execution=8", "warning", "cut to the epoch's 4"),
    ("steps", NONE, "steps_per_epoch=10 steps_per_execution=4", "note", "has 2 steps instead of 4"),
    ("steps", NONE, "shuffle=16 batch_size=64", "warning", "smaller than one batch"),
    ("steps", NONE, "batch_size=5000", "warning", "each step trains on all 1,617"),
    ("steps", NONE, "one_batch=on", "warning", "nothing useful is learnt"),
    ("job_end", NONE, "stop_signal=SIGUSR1", "warning", "without checkpoints a run that is ended with its job"),
    ("job_end", NONE, "max_minutes=auto", "note", "outside of a Slurm job auto is no limit"),
    ("data_and_cache", NONE, "data=npz:/no/a.npz", "error", "no file /no/a.npz"),
    ("data_and_cache", NONE, "data=npz:/", "error", "no file /"),
    ("data_and_cache", NONE, "data=images:/no", "error", "no folder /no"),
    ("data_and_cache", NONE, "data=tfrecord:/no/*.tfrecord", "error", "no file matches /no/*.tfrecord"),
    ("data_and_cache", NONE, f"cache={__file__}", "error", "is a file"),
    ("data_and_cache", NONE, "cache=memry", "warning", "memry is taken as a folder"),
    ("misfits", NONE, "data=synthetic shape=[8]", "error", "needs images"),
    ("misfits", NONE, "data=synthetic shape=[8,8] model=resnet50", "error", "needs images"),
]  # fmt: skip

# rule, machine, settings that come near and are fine
FINE = [
    ("workers", replace(TWO, cluster=TOGETHER), "strategy.kind=multi_worker visible=none"),
    ("workers", replace(TWO, cluster=WORKER.cluster), "strategy.kind=multi_worker"),
    ("none_shown", STOPPED, "visible=none"), ("none_shown", given(STOPPED, CUDA_VISIBLE_DEVICES=""), "epochs=3"),
    ("none_shown", replace(STOPPED, missing="no NVML here"), "epochs=3"),  # TensorFlow may see them
    ("none_shown", given(NONE, CUDA_VISIBLE_DEVICES="0"), "epochs=3"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES=""), "epochs=3"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="-1"), "epochs=3"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="0,-1,1"), "epochs=3"),
    ("none_shown", given(TWO, CUDA_VISIBLE_DEVICES="GPU-9"), "visible=none"),
    ("none_shown", given(MODELS, CUDA_VISIBLE_DEVICES="GPU-0"), "epochs=3"),
    ("none_shown", MODELS, "strategy.kind=mirrored"), ("none_shown", MODELS, "visible=0"),
    ("usable", machine(gpu(0), HELD), "epochs=3"), ("usable", TAKEN, "visible=1"), ("usable", TAKEN, "visible=free:1"),
    ("usable", machine(HELD), "visible=fits:1"),
    ("usable", machine(replace(gpu(0), memory_used_bytes=GB // 2)), "epochs=3"), ("usable", MODELS, "epochs=3"),
    ("usable", TWO, "strategy.kind=mirrored"), ("usable", machine(gpu(0), gpu(1, (5, 2))), "epochs=3"),
    ("usable", TOO_OLD, "visible=none"), ("usable", given(TOO_OLD, CUDA_VISIBLE_DEVICES=""), "epochs=3"),
    ("missing_gpus", NONE, "visible=none"), ("missing_gpus", TWO, "visible=GPU-1,GPU-0"),
    ("missing_gpus", TWO, "visible=MIG-1234"), ("missing_gpus", SILENT, "visible=0"),
    ("allocation", EIGHT, "visible=0"), ("allocation", FOUR_FIVE, "epochs=3"), ("allocation", FOUR_FIVE, "visible=5,4"),
    ("allocation", FOUR_FIVE, "visible=GPU-5"), ("allocation", FOUR_FIVE, "visible=none"),
    ("allocation", given(EIGHT, CUDA_VISIBLE_DEVICES="GPU-4,GPU-5"), "visible=4"),
    ("allocation", given(EIGHT, CUDA_VISIBLE_DEVICES=""), "epochs=3"),
    ("allocation", given(TWO, SLURM_JOB_GPUS="4,5"), "visible=0"),  # fenced: NVML shows the job's own alone
    ("allocation", given(PARTED, CUDA_VISIBLE_DEVICES="0"), "visible=MIG-b"),
    ("allocation", given(SILENT, CUDA_VISIBLE_DEVICES="4,5"), "visible=GPU-5"),
    ("watched", NONE, "early_stop=val_loss epochs=9"),
    ("watched", NONE, f"entry={TEXTS}:build early_stop=val_f1:max epochs=9"),
    ("watched", NONE, "keep_best=val_accuracy validation_split=0 validation=test data=mnist keep_best_count=3"),
    ("watched", NONE, "schedule=reduce_on_plateau plateau_figure=loss decay_rate=0.5 plateau_patience=3"),
    ("follow_targets", NONE, "follow=tensorboard,prometheus"), ("per_gpu", ONE, "per_gpu=2 visible=free:1"),
    ("per_gpu", NONE, "per_gpu=2"), ("memory", VOLTA, "memory_growth=off memory_limit_mb=16384"),
    ("memory", VOLTA, "memory_growth=off memory_limit_mb=8192 logical_devices=2"),
    ("memory", NONE, "logical_devices=1"), ("per_gpu", ONE, "per_gpu=1 visible=free:2"),
    ("xla", ONE, f"{WHOLE} samples=100 epochs=3 steps_per_epoch=1"), ("xla", ONE, f"{WHOLE} samples=96"),
    ("xla", ONE, f"{WHOLE} samples=100 one_batch=true"),
    ("xla", TWO, f"{WHOLE} samples=65 xla=true strategy.kind=mirrored"),
    ("usable", machine(replace(gpu(0), mig=(MigInstance("MIG-a", 80 * GB, 70 * GB),))), "epochs=3"),
    ("missing_gpus", TWO, "visible=free:2"), ("missing_gpus", PARTED, "visible=free:1"),
    ("missing_gpus", SILENT, "visible=free:9"), ("missing_gpus", TWO, "visible=fits:1"),
    ("missing_gpus", TWO, "visible=fits:1 memory_growth=false memory_limit_mb=1000"),
    ("missing_gpus", TWO, "visible=free:1@88GB"),  # a tenth of the memory may be missing
    ("steps", NONE, "steps_per_epoch=4 steps_per_execution=4"), ("watched", NONE, "early_stop=loss epochs=6"),
    ("scaling", NONE, "learning_rate_scaling=linear strategy.kind=multi_worker"),  # the others are not known
    ("gradients", NONE, "gradient_accumulation=1 epochs=1 steps_per_epoch=3"),
    ("strategy", TWO, "strategy.kind=one_device strategy.devices=1"),
    ("precision", machine(gpu(0, (7, 0))), "policy=mixed_float16"),
    ("precision", machine(gpu(0, (8, 0))), "policy=mixed_bfloat16"),
    ("without_effect", TWO, "visible=free:1 memory_limit_mb=1024"),
    ("strategy", TWO, "strategy.kind=mirrored communication=reduction_to_one_device"),
    ("workers", TWO, "strategy.kind=mirrored strategy.devices=0,1 logical_devices=2"),
    ("strategy", TWO, "strategy.kind=multi_worker communication=nccl logical_devices=2"),
    ("validation", NONE, f"validation=test entry={TEXTS}:make_texts"),
    ("gradients", TWO, "on_oom=halve strategy.kind=mirrored xla=true"),
    ("job_end", NONE, "stop_signal=SIGUSR1 checkpoint=epoch"), ("job_end", NONE, "max_minutes=3"),
    ("others", replace(NONE, job=read_job({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"})), "epochs=3"),
    ("workers", WORKER, "strategy.kind=multi_worker"), ("workers", NONE, "on_oom=halve"),
    ("entry", NONE, f"entry={TEXTS}:build epochs=3"), ("entry", NONE, "model=mlp"),
    ("steps", NONE, "batch_size=1617 shuffle=off"), ("entry", NONE, f"run.code=copy entry={TEXTS}:build"),
    ("entry", NONE, f"entry={TEXTS}:build"), ("entry", NONE, "entry=entry.text:build folder=tests/support/programs"),
    ("chip", replace(OLD_DRIVER, cuda=(12, 5)), "epochs=3"),
    ("chip", replace(machine(gpu(0, (8, 0)), gpu(1, (8, 9))), cuda=(12, 2)), "strategy.kind=mirrored"),
    ("chip", ONE, "xla=on"), ("chip", BLACKWELL, "epochs=3"),
    ("memory", ONE, "memory_growth=off memory_limit_mb=1024 logical_devices=2"),
    ("memory", ONE, "memory_limit_mb=1024"),
    ("memory", VOLTA, "memory_growth=off memory_limit_mb=8000 logical_devices=2"),
    ("memory", UNKNOWN, "memory_growth=off memory_limit_mb=99999"),
    ("without_effect", ONE, "gpu_thread_mode=gpu_private tf32=off"), ("without_effect", NONE, "epochs=3"),
    ("precision", VOLTA, "policy=mixed_float16"), ("precision", ONE, "policy=mixed_bfloat16"),
    ("xla", NONE, "xla=on drop_remainder=on"), ("xla", NONE, "deterministic=on"),
    ("memory", ONE, "allocator=cuda_malloc_async"), ("memory", ONE, "logical_devices=2"),
    ("without_effect", ONE, "gpu_thread_count=2 gpu_thread_mode=gpu_shared"),
    ("without_effect", ONE, "xla_flags=--xla_dump_to=/tmp"),
    ("strategy", TWO, "strategy.kind=mirrored communication=nccl"),
    ("strategy", TWO, "strategy.kind=multi_worker communication=nccl"), ("workers", TWO, "strategy.kind=multi_worker"),
    ("strategy", TWO, "strategy.kind=multi_worker communication=ring"),
    ("determinism", NONE, "deterministic=on checkpoint=epoch"), ("determinism", NONE, "deterministic_order=off"),
    ("gradients", NONE, "clip_norm=1"), ("gradients", NONE, "strategy.kind=mirrored logical_devices=2"),
    ("gradients", TWO, "gradient_accumulation=4"), ("gradients", TWO, "strategy.kind=mirrored"),
    ("gradients", TWO, "micro_batches=4 strategy.kind=mirrored"),
    ("gradients", NONE, "on_oom=accumulate checkpoint=epoch xla=true"),
    ("gradients", ONE, "give_way=true checkpoint=epoch"),
    ("cast", ONE, "cast=device data=tfrecord:/no/a tfrecord_encoding=uint8"),
    ("cast", ONE, f"cast=device augment=heavy entry={TEXTS}:make_texts"),
    ("workers", replace(TWO, cluster=TOGETHER), "strategy.kind=mirrored"),
    ("optimizer", NONE, "optimizer=sgd momentum=0.9 nesterov=true"),
    ("optimizer", NONE, "schedule=cosine hold_steps=5"), ("scaling", TWO, "epochs=3"),
    ("scaling", TWO, "strategy.kind=mirrored"), ("validation", NONE, "validation=test data=mnist"),
    ("validation", NONE, "validation=test data=npz:/no/a.npz"), ("misfits", NONE, "blocks=3 model=transformer"),
    ("misfits", NONE, "parallel_reads=4 data=tfrecord:/no/a kernel_size=5 stride=2 separable=false"),
    ("steps", NONE, "steps_per_epoch=8 steps_per_execution=4"), ("steps", NONE, "steps_per_execution=4"),
    ("steps", NONE, "shuffle=64 batch_size=64"), ("steps", NONE, "shuffle=off"),
    ("steps", NONE, "one_batch=off measure_seconds=5"), ("data_and_cache", NONE, "data=digits cache=memory"),
    ("data_and_cache", NONE, "cache=/no/folder/yet"), ("misfits", NONE, "data=synthetic shape=[8] model=mlp"),
    ("misfits", NONE, "data=synthetic shape=[8,8] model=transformer"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def in_cudas_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exported script that ran in this process has set it."""
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)


def found_by(rule: str, on: Machine, settings: str) -> list[Finding]:
    function = next(function for function in checks.RULES if function.__name__ == rule)
    return list(function(options(*settings.split()), on))


def test_a_conflict_is_found_and_says_what_to_change() -> None:
    with all_hold() as cases:
        for rule, on, settings, level, words in TRIGGERS:
            with cases.case(f"{rule} {settings}"):
                (finding, *_) = [finding for finding in found_by(rule, on, settings) if words in finding.what]
                assert finding.level == level
                assert finding.options
                assert set(finding.options) <= KEYS
                assert len(finding.remedy) > 3
                assert "\n" not in str(finding)
                assert finding in checks.check(options(*settings.split()), on)


def test_what_only_looks_like_a_conflict_is_none() -> None:
    with all_hold() as cases:
        for rule, on, settings in FINE:
            with cases.case(f"{rule} {settings}"):
                assert found_by(rule, on, settings) == []


def test_every_rule_has_a_case_that_triggers_it_and_one_that_does_not() -> None:
    names = {function.__name__ for function in checks.RULES}
    by_packages = {"build", "cudnn", "packages"}
    assert names == {case[0] for case in TRIGGERS} | by_packages == {case[0] for case in FINE} | by_packages


@pytest.mark.parametrize("on", [NONE, ONE, TWO, PASCAL, UNKNOWN, SILENT, WITH_DISPLAY, PARTED, BLACKWELL, FOUR_FIVE])
def test_the_defaults_are_fine_on_any_machine(on: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    old = on is PASCAL  # no cuDNN has code for it and works with XLA
    monkeypatch.setattr(installed, "cudnn_version", lambda: (9, 10) if old else (9, 24))
    found = checks.check(options("xla=false") if old else options(), on)
    assert [finding for finding in found if finding.level != "note"] == []


def test_data_that_is_not_what_was_named_is_told_with_what_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3), labels=np.zeros(3))
    (tmp_path / "b.npz").write_text("no archive")
    (tmp_path / "a.tfrecord").write_text("")
    for name in ("cats", ".thumbnails"):
        (tmp_path / "images" / name).mkdir(parents=True)
    cases = {
        "npz:a.npz": "has no array 'y' or 'y_train' (it has: x, labels)",
        "npz:b.npz": "is not a .npz file",
        "images:images": "has 1 class folder;",
        "tfrecord:*.tfrecord": "are empty",
    }
    for data, why in cases.items():
        kind, place = data.split(":")
        (found,) = found_by("data_and_cache", NONE, f"data={kind}:{tmp_path / place}")
        assert (found.level, found.options) == ("error", ("workload.data",))
        assert why in found.what
    (tmp_path / "images" / "dogs").mkdir()
    (tmp_path / "images" / "dogs" / "1.png").touch()
    (found,) = found_by("data_and_cache", NONE, f"data=images:{tmp_path}/images")
    assert "cats contains no images" in found.what


def test_a_set_that_keras_has_not_downloaded_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    for name, file in (
        ("mnist", "mnist.npz"),
        ("fashion_mnist", "fashion-mnist/train-labels-idx1-ubyte.gz"),
        ("cifar10", "cifar-10-batches-py-target.tar.gz"),
    ):
        (found,) = found_by("data_and_cache", NONE, f"data={name}")
        assert found.level == "warning"
        assert "download it at the start" in found.what
        (tmp_path / "datasets" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "datasets" / file).touch()
        assert found_by("data_and_cache", NONE, f"data={name}") == []


def test_what_did_nothing_in_the_last_run_of_the_same_code_is_told(home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def build(context): ...\n")
    os.utime(tmp_path / "train.py", (recorded.BEGAN - 60, recorded.BEGAN - 60))
    entry = ("entry=train.py:build", f"workload.folder={tmp_path}")
    wanted = options(*entry, "batch_size=256", "cache=memory")
    assert checks.check(wanted, machine()) == checks.check(options(*entry), machine())
    run = recorded.write(home, name="a", seconds=14)
    run.file("options.json").write_text(options_json.to_json(options(*entry)))
    why = "your code has batched the data"
    events = [json.loads(line) for line in run.file("events.jsonl").read_text().splitlines()]
    known = {"inapplicable": {"input.batch_size": why}, "global_batch_size": 32}
    lines = [json.dumps(event | known if event["type"] == "started" else event) for event in events]
    run.file("events.jsonl").write_text("\n".join(lines) + "\n")
    (found,) = [one for one in checks.check(wanted, machine()) if "input.batch_size" in one.options]
    assert found.what == f"did nothing in the last run of this code: {why}"
    assert found.remedy.startswith("use context.global_batch_size")
    assert checks.own_batch(wanted) == 32
    assert checks.check(options(*entry), machine()) == [], "a default asks for nothing"
    os.utime(tmp_path / "train.py")
    assert checks.own_batch(wanted) is None, "the code has been changed since"


def test_whether_xla_compiles_on_these_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "cuda_version", lambda: (12, 5))
    both = machine(gpu(0), gpu(1, (12, 0)))
    for on, settings, expected in (
        (ONE, "xla=true", True), (NONE, "xla=true", False), (BLACKWELL, "xla=true", True), (ONE, "xla=false", False),
        (ONE, "xla=auto", True), (NONE, "xla=auto", False), (BLACKWELL, "xla=auto", False),
        (ONE, "xla=auto deterministic=on", False), (TWO, "xla=auto strategy.kind=mirrored", False),
        (both, "xla=auto", True), (both, "xla=auto visible=1", False),
    ):  # fmt: skip
        assert gpu_checks.compiled(options(*settings.split()), on) is expected, (on, settings)


def test_an_npz_without_a_test_part_is_found_without_opening_its_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        for name in ("x.npy", "y.npy", "x_test.npy"):
            file.writestr(name, b"")
    wanted = options(f"data=npz:{tmp_path}/a.npz", "validation=test")
    (found,) = [finding for finding in checks.check(wanted, NONE) if "train.validation" in finding.options]
    assert found.level == "error"
    assert "has no array y_test" in found.what


def test_a_long_training_without_a_checkpoint_is_told_with_its_time_before_it_starts(home: Path) -> None:
    def warned(*settings: str) -> list[str]:
        preset = presets.resolve("quickstart", settings)
        return [str(finding) for finding in checks.of_preset(preset, NONE) if finding.options == ("run.checkpoint",)]

    assert not warned("epochs=50")
    (message,) = warned("epochs=1000")
    assert message.startswith("run.checkpoint: 1,000 epochs, no checkpoint: a run that ends early cannot be resumed")
    assert not warned("epochs=1000", "checkpoint=epoch")
    preset = presets.resolve("quickstart", ["epochs=2", "seed=1"])
    run = runs.create("quickstart", preset.to_yaml())
    run.file("result.json").write_text('{"outcome": "ok", "seconds": 10.0, "startup_seconds": 4.0, "epochs": 2}')
    (message,) = warned("epochs=1000")
    assert "1,000 epochs, about 50 min, no checkpoint" in message
    assert not warned("epochs=100"), "five minutes"
    run.file("result-1.json").write_text('{"outcome": "stopped", "seconds": 6.0, "startup_seconds": 4.0, "epochs": 1}')
    assert "about 1.7 h" in warned("epochs=1000")[0], "the epochs of a resumed run are those of all its sittings"
    run.file("result-1.json").unlink()
    assert not warned("epochs=1000", "max_minutes=5")
    assert "about" not in warned("epochs=1000", "batch_size=64")[0], "a run of other settings tells nothing"


# ---- What findings say, word for word, and that each change that they propose removes their cause


OPTION = r"[a-z]+\.[a-z_]+"
VALUE = r"[a-z\d_]+(?:[.,:]\d+)*"
VALUES = rf"{VALUE}(?:(?:, | or ){VALUE}(?!\.))*"


def proposed(finding: Finding) -> Iterator[Mapping[str, str | None]]:
    """Each change that the finding proposes: values of options, or None for an option that is to be removed."""
    change = finding.remedy
    for alternative in re.split(r"[,;]? or |; ", change):
        if settings := re.findall(rf"\b({OPTION})=({VALUE})", alternative):
            yield dict(settings)
        if removed := re.search(rf"remove ({OPTION})", alternative):
            yield {removed[1]: None}
    for option, values in re.findall(
        rf"(?:set ({OPTION}|it) to (?:at most )?|give at most )({VALUES})(?: and name|[:;] |, or|$)", change
    ):
        keys = option if "." in option else finding.options[0]
        yield from ({keys: value} for value in re.split(", | or ", values))
    if change == "set one of them to false":
        yield from ({option: "false"} for option in finding.options)
    if change == "keep one of them":
        yield from (dict.fromkeys(finding.options[:position]) for position in range(1, len(finding.options)))


def test_a_finding_is_gone_after_each_change_that_it_proposes() -> None:
    with all_hold() as cases:
        for rule, on, settings, _level, words in TRIGGERS:
            (finding, *_) = [finding for finding in found_by(rule, on, settings) if words in finding.what]
            for change in proposed(finding):
                with cases.case(f"{rule} {settings}: {finding.remedy}: {change}"):
                    kept = [setting for setting in settings.split() if not _sets(setting, change)]
                    given = [f"{option}={value}" for option, value in change.items() if value is not None]
                    messages = [left.what for left in found_by(rule, on, " ".join([*kept, *given]))]
                    assert finding.what not in messages
    assert cases.count > 90  # else the words of the proposals are not understood any more


def _sets(setting: str, options: Mapping[str, str | None]) -> bool:
    name = setting.partition("=")[0]
    return any(name in (option, option.partition(".")[2]) for option in options)
