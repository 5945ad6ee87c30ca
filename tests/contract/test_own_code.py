"""What the trainer answers to what a user's code returns and how it is written, in golden/own-returned.txt,
golden/own-state.txt and golden/own-previews.txt.

Of what is returned: why it is refused, or the sizes of its data and the numbers of the samples in its batches. Of
classes and functions: what of them no checkpoint holds, or replaces the steps. The golden files have the cases, too.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract.conftest import Golden
from tests.doors.engine import previews
from tests.doors.trainer import Pipeline, UserError, checked, model_checks, opened, own_previews, unsaved_state
from tests.doors.tui import PLAIN, RICH, WITHOUT_COLOURS, drawn_previews
from tests.support.training import options

SMALL = ("batch_size=4", "shuffle=off", "validation_split=0", "epochs=3", "parallel_calls=off")
TEXTS = Path(__file__).with_name("golden")


def cases(name: str) -> list[str]:
    """The cases of a golden file, each from its title on, which follows `== `. To add one, write its title there."""
    return (TEXTS / name).read_text(encoding="utf-8").removeprefix("== ").split("\n== ")


class Pages(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of four samples."""

    def __init__(self, count: int = 5) -> None:
        super().__init__()
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        first = 4 * index
        return np.zeros((4, 2), "float32"), np.arange(first, first + 4)


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def names() -> dict[str, Any]:
    x, y = np.zeros((20, 2), "float32"), np.arange(20)

    def batches() -> Iterator[Any]:
        for at in range(0, 20, 8):
            yield x[at : at + 8], y[at : at + 8]

    def named(name: str) -> Any:
        return type(name, (), {})()

    return {
        "keras": keras, "np": np, "model": model, "x": x, "y": y, "weight": np.ones(20, "float32"), "Pages": Pages,
        "samples": tf.data.Dataset.from_tensor_slices((x, y)), "batches": batches, "one_pass": batches, "named": named,
        "shift": lambda a, b: (a, b + 100), "counter": tf.Variable(5, dtype=tf.int64, trainable=False),
        "of_keras_2": lambda: type("Net", (), {"__module__": "tf_keras.src.engine"})(),
        "sparse": lambda: type("csr_matrix", (), {"tocoo": None, "shape": (20, 2)})(),
    }  # fmt: skip


class Told:
    """Stands for the report of a run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def phase(self, *words: str) -> None:
        self.lines.append(f"phase {' '.join(words)}")

    def warn(self, *words: str) -> None:
        self.lines.append(f"warning {'; '.join(words)}")


def labels(batches: tf.data.Dataset, most: int) -> str:
    parts = (tf.nest.flatten(batch)[:2][-1] for batch in batches.take(most))  # y, or x alone
    found = [part.numpy().ravel().astype(int).tolist() for part in parts]
    return " ".join(f"{batch[0]}-{batch[-1]}" if batch == [*range(batch[0], batch[-1] + 1)] else str(batch)
                    for batch in found)  # fmt: skip


def described(made: Pipeline, epochs: int) -> Iterator[str]:
    train, steps = made.train, made.options.train.steps_per_epoch
    sizes = f"{train.samples} samples, {made.batches_per_pass} batches of {made.full_batch} in a pass"
    smaller = ", the last may be smaller" if made.smaller_last_batch else ""
    held_out = f"{made.validation_batches} batches of {made.validation_samples} samples are evaluated"
    yield f"{train.kind}: {sizes}{smaller}; {held_out}"
    facts = {"held back": made.held_back, "follows": made.follows, "apart": made.apart, "on demand": made.on_demand}
    if any(facts.values()):
        yield ", ".join(f"{name}: {value}" for name, value in facts.items() if value)
    if made.fit.initial_epoch or made.fit.validation_freq != 1:
        yield f"begins with epoch {made.fit.initial_epoch}; evaluates {made.fit.validation_freq}"
    try:
        yield f"trains {labels(made.stream(), min(6, epochs * (steps or made.batches_per_pass)))}"
    except tf.errors.OpError:
        made.find_fault()
        raise
    if made.held_out is not None:
        yield f"evaluates {labels(made.validation(), made.validation_batches)}"
    made.close()


def answer(text: str, folder: Path) -> Iterator[str]:
    source, _, words = text.partition(" | ")
    replicas = 2 if "replicas=2" in words else 1
    given, report = options(*SMALL, *words.replace("replicas=2", "").split()), Told()
    try:
        parts = checked(eval(source, names()), "build")
        made = opened(given, replicas, parts, folder / "train.py", report)  # type: ignore[arg-type]
        model_checks.check_batches(parts.model, made.train)
        yield from report.lines
        yield from described(made, given.train.epochs)
    except UserError as fault:
        yield f"refused: {fault.message}; {fault.hint}"


@pytest.mark.usefixtures("cpus")
def test_what_a_build_function_may_return(golden: Golden, tmp_path: Path) -> None:
    keras.utils.set_random_seed(options().train.seed)  # as `cpus` does; another test of this process may have set one
    titles = [case.partition("\n")[0] for case in cases("own-returned.txt")]
    told = [line for text in titles for line in (f"== {text}", *answer(text, tmp_path))]
    golden("own-returned.txt", "\n".join(told) + "\n")


# ---- what no checkpoint holds ------------------------------------------------------------------------


class Data(keras.utils.PyDataset):  # type: ignore[misc]
    """What classes of users' inherit from."""

    def __len__(self) -> int:
        return 6


def made_by(code: str, file: Path) -> Any:
    """What the lines, as those of a function of this file, make."""
    file.write_text("def make():\n" + textwrap.indent(code, "    ") + "\n    return made\n")
    names: dict[str, Any] = {"keras": keras, "np": np, "random": random, "Data": Data, "__name__": "case"}
    names |= {"outer": np.random.default_rng(1), "drawer": random.Random(3), "plain": {"now": 0.1}}
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names["make"]()


def kept_by(made: Any, file: Path) -> Iterator[str]:
    if isinstance(made, keras.utils.PyDataset):
        for how, ahead in (("each epoch when it begins", False), ("passes ahead", True)):
            yield f"{how}: {'; '.join(unsaved_state.inexact(made, ahead))}"
    elif isinstance(made, keras.callbacks.Callback):
        yield f"keeps: {'; '.join(each.text for each in unsaved_state.of_callbacks([made]))}"
        yield f"replaces: {'; '.join(unsaved_state.replacing_steps([made]))}"
    else:
        texts, remedy = unsaved_state.inexact_iterable(made, lambda owner: owner == str(file))
        yield f"{'; '.join(texts)}; {remedy}"


def test_what_of_own_code_no_checkpoint_holds(golden: Golden, tmp_path: Path) -> None:
    told = list[str]()
    for number, case in enumerate(cases("own-state.txt")):
        code = case.partition("\n--")[0]
        (tmp_path / str(number)).mkdir()
        file = tmp_path / str(number) / "case.py"
        told += [f"== {code}", "--", *kept_by(made_by(code.partition("\n")[2], file), file)]
    golden("own-state.txt", "\n".join(told) + "\n")


# ---- what a run shows of each epoch ------------------------------------------------------------------


def test_what_a_preview_may_show_and_how_it_is_drawn(golden: Golden, tmp_path: Path) -> None:
    """Written, read, and drawn in colours (of which the first are given), in shades, and without any glyphs."""
    told = list[str]()
    for case in cases("own-previews.txt"):
        title, report = case.partition("\n")[0], Told()
        source, _, width = title.partition(" | ")
        try:
            files = own_previews.files_of(eval(source, names() | {"tf": tf}), report)  # type: ignore[arg-type]
        except UserError as fault:
            report.lines.append(f"refused: {fault.message}; {fault.hint}")
            files = {}
        previews.write(tmp_path, 3, files)
        told += [f"== {title}", *report.lines]
        for file in previews.listed(tmp_path)[3].values():
            told.append(f"{file.name}:")
            for glyphs in (RICH, WITHOUT_COLOURS, PLAIN)[: 3 if file.suffix == ".png" else 1]:
                rows = drawn_previews.rows(previews.read(file), int(width or 40), 6, glyphs)
                told += ["".join(text for text, _ in row).rstrip() for row in rows]
                told += [rows[0][0][1]] if file.suffix == ".png" else []
    golden("own-previews.txt", "\n".join(told) + "\n")
