"""After each epoch, calls the function `preview` that a user's build has returned, and writes what it shows. The
training is as without it: what the function changes of random states, figures and running averages is put back.
"""

from __future__ import annotations

import json
import math
import re
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ...files import writing
from ...runs import previews
from ...runs.previews import MOST_SIDE, Bitmap
from ..checkpoint.training_state import State
from ..measure.run_report import RunReport
from .iterated import named
from .user_code import UserCode, UserError

MOST_NAMES, MOST_IMAGES, MOST_CLASSES, MOST_TEXT = 8, 64, 100, 65536
MOST_IN_ALL = 512 * 1024**2  # bytes of all epochs
GAP, GAP_GREY = 1, 96  # pixels between two images
IMAGES = "images are H x W, H x W x 1 or H x W x 3, or N of them"
VALUES = "texts, images (uint8, or float from 0 to 1), or square counts of int32 or int64 for at most 100 classes"
_NAME = re.compile(r"\w[\w. -]{0,59}")


def show(code: UserCode, preview: Callable[[], Any], epoch: int, state: State, report: RunReport, writes: bool) -> None:
    """`epoch` counts from 1. What cannot be shown is a warning. All workers call the function, and one `writes`."""
    report.phase("evaluating", "preview")
    try:
        with report.heartbeat, code.blamed(), state.unchanged():
            files = files_of(preview(), report)
        if files and writes:
            if writing.used_bytes(report.run.file(previews.FOLDER)) > MOST_IN_ALL:
                raise UserError("the previews take 512 MiB, and no more are written", "show fewer or smaller ones")
            previews.write(report.run.path, epoch, files)
    except (UserError, OSError, MemoryError, tf.errors.ResourceExhaustedError) as fault:
        traceback.print_exception(fault)
        report.warn("preview", f"no preview of epoch {epoch}: {writing.reason(fault)}", getattr(fault, "hint", ""))
    finally:
        report.phase("training")


def files_of(shown: Any, report: RunReport) -> dict[str, bytes]:
    """Return the files of what the function has returned. A value that cannot be shown is a warning."""
    if not isinstance(shown, dict):
        raise UserError(f"preview returned {named(shown)}", f"return a dict of names and {VALUES}")
    files = {}
    if len(shown) > MOST_NAMES:
        report.warn("preview", f"preview returned {len(shown)} values, of which {MOST_NAMES} are shown")
    for name, value in list(shown.items())[:MOST_NAMES]:
        try:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise UserError("it is no name for a file", "use letters, digits, blanks, '.', '_' and '-'")
            ending, content = _file(value)
            files[name + ending] = content
        except UserError as fault:
            report.warn("preview", f"preview shows no {name!r:.80}: {fault}", fault.hint, f"preview {name!r:.80}")
    return files


def _file(value: Any) -> tuple[str, bytes]:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list | tuple) and value and all(isinstance(text, str) for text in value):
        return ".txt", "\n\n".join(value).encode(errors="replace")[:MOST_TEXT]
    counts, classes = value, None
    try:
        if isinstance(value, tuple) and len(value) == 2 and (np.ndim(value[0]), np.ndim(value[1])) == (2, 1):
            counts, classes = value
        array = np.asarray(counts)
    except ValueError:  # of different shapes
        raise UserError("its arrays differ in shape", IMAGES) from None
    if classes is None and (array.dtype == np.uint8 or array.dtype.kind in "fb" or "float" in array.dtype.name):
        return ".png", previews.as_png(_sheet(array))
    size = array.shape[0] if array.ndim else 0
    if array.dtype.kind not in "iu" or array.shape != (size, size) or not 0 < size <= MOST_CLASSES:
        raise UserError(f"it is {f'{array.dtype} of {array.shape}' if array.ndim else named(value)}", f"give {VALUES}")
    names = [str(name)[:40] for name in (range(size) if classes is None else classes)]
    if len(names) != size:
        raise UserError(f"it has {size} rows and {len(names)} names of classes", "give each class a name")
    return ".json", json.dumps({"counts": array.tolist(), "classes": names}).encode()


def _sheet(array: Any) -> Bitmap:
    """Return the images as one, side by side with a gap. Large ones lose rows and columns."""
    images = array if array.shape[-1:] in ((1,), (3,)) and array.ndim > 2 else array[..., None]
    images = images[None] if images.ndim == 3 else images
    if images.ndim != 4 or 0 in images.shape:
        raise UserError(f"it has the shape {array.shape}", IMAGES)
    images = images[:MOST_IMAGES]
    across = math.ceil(math.sqrt(len(images)))
    every = math.ceil((max(images.shape[1:3]) + GAP) / (MOST_SIDE // across))
    images = images[:, ::every, ::every]
    if images.dtype != np.uint8:
        images = np.rint(np.nan_to_num(np.clip(images.astype("float32"), 0, 1)) * 255).astype(np.uint8)
    height, width, down = images.shape[1] + GAP, images.shape[2] + GAP, math.ceil(len(images) / across)
    sheet = np.full((down * height - GAP, across * width - GAP, 3), GAP_GREY, np.uint8)
    for at, image in enumerate(images):
        y, x = at // across * height, at % across * width
        sheet[y : y + height - GAP, x : x + width - GAP] = image
    return Bitmap(sheet.shape[1], sheet.shape[0], sheet.tobytes())
