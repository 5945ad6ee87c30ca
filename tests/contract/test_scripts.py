"""What a change changes in an exported script, as a difference of its lines, in golden/scripts-*.txt.

Of a function of the trainer that a change adds or takes away only the name is kept: those that stay are shown with
the values of the options in them. tests/engine/test_whole_scripts.py has whole scripts.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Golden
from tests.doors.engine import DIGITS, OPTIONS, TITLE, Form, presets, to_script
from tests.engine.test_whole_scripts import OWN, undefined

# Options that are changed in one script; those before the bar stand in both scripts.
CHANGES = (
    "data=synthetic | batch_size=9 train.epochs=3 learning_rate=0.5 train.seed=5 clip_value=2 steps_per_epoch=7 "
    "samples=99 classes=4 shape=[8,8,1] width=0.5",
    "data=synthetic | memory_limit_mb=512 logical_devices=2 gpu_thread_mode=gpu_private gpu_thread_count=1 tf32=false "
    "allocator=cuda_malloc_async inter_op_threads=2 intra_op_threads=3 log_placement=true device.visible=0,1 "
    "xla_flags=--xla_gpu_autotune_level=2",
    "data=synthetic | memory_growth=false device.visible=none policy=mixed_float16 deterministic=true",
    "data=synthetic | logical_devices=2 device.visible=free:2 policy=mixed_bfloat16 xla=false normalization=none",
    "data=synthetic | numa=off xla_cache=false across_epochs=true nan_check_steps=50 keep=5 measure_seconds=4 "
    "hang_seconds=off sample_seconds=2 pcie=true on_oom=halve stop_signal=SIGUSR1 run.code=copy tries=3 give_way=true "
    "per_gpu=2 follow=tensorboard,prometheus notify.command=echo notify.url=$PLACE notify.format=json max_minutes=auto "
    "notify.when=failure run.python=/usr/bin/python3 'run.watch=stop if loss > 9'",
    "data=synthetic | strategy.kind=mirrored strategy.devices=0,1 communication=hierarchical_copy xla=true "
    "steps_per_execution=4 prefetch_to_device=3 learning_rate_scaling=linear",
    "strategy.kind=mirrored | communication=nccl prefetch=off micro_batches=2 recompute=true xla=auto "
    "learning_rate_scaling=sqrt",
    "strategy.kind=mirrored | strategy.kind=multi_worker batch_size=100000",
    "data=synthetic | strategy.kind=one_device steps_per_execution=2 prefetch_to_device=off xla=auto",
    "data=synthetic | augment=heavy cache=memory prefetch=off parallel_calls=off private_threads=2 drop_remainder=true "
    "deterministic_order=false shuffle=off",
    "data=synthetic | augment=light cache=/tmp/cache prefetch=3 parallel_calls=4 input.shuffle=7 one_batch=true "
    "prefetch_to_device=off steps_per_execution=3",
    "data=digits | cast=device augment=blur keep_best=loss save_model=true micro_batches=3",
    "data=synthetic | optimizer=sgd momentum=0.8 nesterov=true weight_decay=0.0 clip_norm=1",
    "data=synthetic | optimizer=rmsprop global_clip_norm=3 gradient_accumulation=4",
    "schedule=cosine | warmup_steps=5 hold_steps=3", "schedule=constant | warmup_steps=5 hold_steps=4",
    "schedule=constant | schedule=exponential decay_steps=9 hold_steps=3",
    "schedule=exponential | decay_rate=0.5 decay_steps=9",
    "schedule=constant | schedule=step", "schedule=constant | schedule=cyclical", "schedule=constant | schedule=ramp",
    "data=synthetic | schedule=reduce_on_plateau plateau_figure=loss plateau_patience=3 plateau_min_rate=0.01 "
    "early_stop=val_loss early_stop_patience=3 early_stop_min_delta=0.01 early_stop_restore=true "
    "keep_best=f1:max keep_best_count=2",
    "data=synthetic | checkpoint=epoch stop_on_nan=false run.profile=5-9 validation_split=0.0",
    "data=synthetic | checkpoint=5 max_minutes=3 run.keep=2",
    "model=cnn | model=mlp normalization=layer",
    "model=cnn | model=separable_cnn kernel_size=5 stride=2 separable=true", "model=cnn | model=resnet50",
    "model=cnn | model=transformer blocks=3",
    "data=mnist | train.validation=test augment=light", "data=npz:/tmp/a.npz | train.validation=test",
    "data=npz:/tmp/a.npz cache=/tmp/cache | evaluate_at_end=true keep_best=val_loss",
    "data=synthetic | data=images:/tmp/folder parallel_calls=off",
    "data=tfrecord:/tmp/*.rec | tfrecord_input=pixels tfrecord_label=number tfrecord_encoding=int64_list "
    "parallel_reads=4",
    "data=tfrecord:/tmp/*.rec | samples=50 tfrecord_encoding=encoded parallel_reads=off cast=device",
)  # fmt: skip
OF_OWN = (1, 4, 5, 7, 8, 9, 10, 13, 21, 22, 23)  # of these, those that are also changed beside own code
ENTRY = "entry=train.py:build"
KINDS = {
    "arrays": Form("arrays", "arrays"),
    "mapped": Form("mapped", "mapped", given=frozenset({"map"}), samples=60, validation_samples=20),
    "batched": Form("batched", "batched", batches=6),
    "pydataset": Form("pydataset", "pydataset"),
}
ITERATED = {"train": "first_again(train, 3)", "validation": "map(as_batch, copied(validation))"}
OF_FIT = {"class_weight", "initial_epoch", "validation_freq", "validation_steps"}
# What a build function returns besides: the kinds of data, fields of the form, and options; those before a bar stand
# in both scripts.
FORMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "arguments of fit": ("AMBP", {"given": OF_FIT}, ""),
    "optimizer, loss, metrics, callbacks": ("AP", {"given": {"optimizer", "loss", "metrics", "callbacks"}}, ""),
    "numbers of samples": (
        "MB",
        {"given": {"samples", "validation_samples"}, "counted_validation": False, "validation_samples": 30},
        "",
    ),
    "map": ("A", {"given": {"map"}}, ""),
    "validation_map, augment": ("AM", {"given": {"validation_map", "augment"}}, ""),
    "sample_weight": ("A", {"given": {"sample_weight"}}, ""),
    "a split": ("A", {"is_split": True}, ""),
    "a split that is not plain": ("A", {"is_split": True, "plain": False}, ""),
    "no validation": ("AMBP", {"validation": ""}, ""),
    "compiled": ("AB", {"compiled": True}, ""),
    "compiled, XLA": ("A", {"compiled": True}, "xla=true"),
    "not built": ("AB", {"built": False}, "checkpoint=3"),
    "not built, kept by epochs": ("P", {"built": False}, "checkpoint=epoch"),
    "not built, x alone": ("B", {"built": False, "several": False}, "checkpoint=epoch"),
    "cannot be built": ("AP", {"built": False, "builds": False}, "checkpoint=epoch"),
    "iterated": ("B", {"iterated": ITERATED, "counted": False}, ""),
    "iterated, counted": ("B", {"iterated": ITERATED}, ""),
    "not counted": ("MB", {"counted": False}, ""),
    "without an end": ("M", {"samples": None}, ""),
    "not plain, large, ragged": ("A", {"plain": False, "small": False, "dense": False}, ""),
    "not whole": ("A", {"whole": False}, "save_model=true keep_best=loss"),
    "images": ("AM", {"images": True}, "augment=light"),
    "anew": ("AM", {"begins_anew": True}, ""),
    "anew, some steps": ("M", {"begins_anew": True, "images": True}, "steps_per_epoch=4 augment=light"),
    "not cached": ("M", {"cached": False}, "cache=memory"),
    "cached": ("A", {}, "cache=memory"),
    "in a file": ("M", {}, "cache=/tmp/cache"),
    "across epochs": ("B", {}, "across_epochs=true"),
    "some steps": ("ABP", {}, "steps_per_epoch=4 input.shuffle=off"),
    "one batch": ("AB", {}, "one_batch=true"),
    "mirrored": ("AP", {}, "strategy.kind=mirrored"),
    "test, cached in a file, by the best model": ("A", {"test": "arrays"}, "cache=/tmp/cache keep_best=val_loss"),
    "test, of known number": ("B", {"test": "batched", "counted_test": False, "given": {"test_samples"}}, ""),
    "test, mirrored": ("P", {"test": "pydataset"}, "strategy.kind=mirrored"),
    "mirrored, iterated": ("B", {"iterated": ITERATED, "counted": False}, "strategy.kind=mirrored |"),
    "mirrored, of known number": ("B", {"counted": False, "given": {"samples"}}, "strategy.kind=mirrored |"),
}


def own_script(form: Form, *settings: str) -> str:
    return to_script(presets.defaults([ENTRY, *settings]), form=form)


@cache
def script(settings: tuple[str, ...]) -> str:
    return to_script(presets.defaults(settings)).replace(str(DIGITS), "DIGITS")


def functions(code: str) -> set[str]:
    return {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def lines_without(code: str, names: set[str]) -> list[str]:
    """The lines of a script without these functions and classes, and without its imports."""
    lines = code.splitlines()
    for node in reversed(ast.parse(code).body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            del lines[first - 1 : node.end_lineno]
    return [line for line in lines if line and not line.startswith(("import ", "from "))]


def imports(code: str) -> set[str]:
    return {line for line in code.splitlines() if line.startswith(("import ", "from "))}


def difference(before: str, after: str) -> list[str]:
    """What is taken away (-) and added (+): in one line each the imports and functions, then the other lines."""
    compile(after, "train.py", "exec")
    assert not re.search(r"^\s*(import|from) gputui", after, re.MULTILINE)
    assert "\n\n\n\n" not in after
    assert undefined(after) == set()
    assert after.count('\nif __name__ == "__main__":\n') == 1, "processes of the code may import it"
    told = list[str]()
    for what in (imports, functions):
        changed = [(sign, name) for sign, (old, new) in (("-", (after, before)), ("+", (before, after)))
                   for name in sorted(what(new) - what(old) - {*OWN})]  # fmt: skip
        told += [", ".join(f"{sign}{name}" for sign, name in changed)] if changed else []
    only_once = (functions(before) ^ functions(after)) - {*OWN}
    old, new = (lines_without(code, only_once) for code in (before, after))
    lines = unified_diff(old, new, n=0, lineterm="")
    return [*told, *(line for line in lines if line[:3] not in ("---", "+++", "@@ "))]


def named(code: str) -> set[str]:
    """The options that the comments of its lines name, the closing list not among them."""
    comments = re.findall(r"# ((?:\w+\.\w+(?:, |(?=[:\n])))+)", code.partition(TITLE)[0])
    return {key for comment in comments for key in comment.rstrip(", ").split(", ")}


def changes() -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """What stands in both scripts, and what is changed."""
    for each in CHANGES:
        base, change = each.split(" | ")
        yield tuple(shlex.split(base)), tuple(shlex.split(change))


def keys(settings: tuple[str, ...]) -> set[str]:
    return set(presets.defaults(settings).changed())


def left_out(code: str) -> set[str]:
    """The options of which a script says that they are not in it."""
    return set(re.findall(r"^# (\w+\.\w+): ", code.partition(TITLE)[2], re.MULTILINE))


def test_every_option_is_changed() -> None:
    changed = set[str]().union(*(keys(change) | keys(base) for base, change in changes()))
    of_own_code = {f"workload.{name}" for name in ("entry", "args", "argv", "fit", "left_to_fit", "command", "folder")}
    assert {info.key for info in OPTIONS} - changed == of_own_code


def test_what_options_change(golden: Golden) -> None:
    told = list[str]()
    for (base, change), text in zip(changes(), CHANGES, strict=True):
        code = script((*base, *change))
        told += [f"== {text}", *difference(script(base), code)]
        of_both = keys((*base, *change))
        assert (of_both - named(code)) | (left_out(code) & named(code)) == left_out(code), text
    golden("scripts-options.txt", "\n".join(told) + "\n")


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_options_change_beside_own_code(golden: Golden, beside: Path) -> None:
    """Only what differs from the change beside a model of gputui's."""
    replaced = {info.key for info in OPTIONS if info.about.own == "replaced"}
    form, told = Form("arrays", "arrays", is_split=True, given=frozenset({"loss"}), images=True), list[str]()
    for number, (base, change) in enumerate(changes()):
        if number not in OF_OWN:
            continue
        mine, more = ([each for each in words if not keys((each,)) & replaced] for words in (base, change))
        lines, usual = (
            difference(own_script(form, *mine), code := own_script(form, *mine, *more)),
            difference(script(base), script((*base, *change))),
        )
        told += [f"== {' '.join(more)}", *(line for line in lines if line not in usual)]
        assert keys((*mine, *more)) - named(code) <= left_out(code)
    golden("scripts-own-options.txt", "\n".join(told).replace(str(beside), "HERE") + "\n")


def test_what_the_data_of_own_code_change(golden: Golden, beside: Path) -> None:
    told = list[str]()
    for kind, form in KINDS.items():
        before = {base: own_script(form, *base.split()) for base in ("", "strategy.kind=mirrored ")}
        for name, (kinds, fields, settings) in FORMS.items():
            if kind[0].upper() in kinds:
                base, _, more = settings.rpartition("|")
                changed = replace(form, **fields | {"given": form.given | fields.get("given", set())})
                after = own_script(changed, *base.split(), *more.split())
                told += [f"== {kind}: {name}", *difference(before[base], after)]
    golden("scripts-own-data.txt", "\n".join(told).replace(str(beside), "HERE") + "\n")
