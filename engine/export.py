"""Options -> a plain TensorFlow script that trains the same without gputui.

The order of the script is the order TensorFlow obeys: environment, devices, precision, strategy, data, model,
compile, fit. Each line that an option caused names it; what plain code cannot express stands in a comment.
"""

from __future__ import annotations

import re

from . import export_data, options
from .export_source import extract
from .export_text import Script, literal
from .options import Options
from .presets import Preset

BUILDERS = {"mlp": "_mlp", "cnn": "_cnn", "separable_cnn": "_separable_cnn", "resnet50": "_resnet50"}
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "rmsprop": "RMSprop"}
IMPORTS = {
    "contextlib": "import contextlib",
    "glob": "import glob",
    "math": "import math",
    "os": "import os",
    "random": "import random",
    "time": "import time",
    "Path": "from pathlib import Path",
    "Any": "from typing import Any",
}
PACKAGES = {"keras": "import keras", "np": "import numpy as np", "tf": "import tensorflow as tf",
            "layers": "from keras import layers"}
OUTSIDE = {
    "run.hang_seconds": "needs a process that watches this one",
    "run.sample_seconds": "needs a process that watches this one",
    "run.keep": "Keras' callbacks keep one checkpoint",
    "train.nan_check_steps": "TerminateOnNaN looks at the loss of every batch, not at the weights",
}


def to_script(preset: Preset) -> str:
    """The source of a script; running it needs TensorFlow and nothing else."""
    wanted = preset.options
    body = Script()
    for write in (_constants, _devices, _strategy, _data, _model, _compile, _fit):
        write(body, wanted)
    _leftovers(body, preset)
    code = str(body)
    return _head(preset) + _imports(code) + _environment(wanted) + code


def _head(preset: Preset) -> str:
    about = " ".join(preset.description.split()).replace("\\", "/").replace('"""', "'''").rstrip('"')
    title = f"{_one_line(preset.name)}: {about}" if about else _one_line(preset.name)
    return (
        f'"""{title}\n\nPlain TensorFlow, exported by gputui. A comment at the end of a line names the option '
        'that caused it.\n"""\n\n'
    )


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() and c not in '"\\' else "?" for c in text)


def _imports(code: str) -> str:
    """What the code uses; os always, for the environment."""
    def used(names: dict[str, str]) -> list[str]:
        return [line for name, line in names.items() if name == "os" or re.search(rf"\b{name}\b", code)]

    standard, packages = used(IMPORTS), used(PACKAGES)
    plain = sorted(line for line in standard if line.startswith("import"))
    others = sorted(line for line in standard if not line.startswith("import"))
    return "\n".join([*plain, *others]) + "\n\n@ENVIRONMENT@\n" + "\n".join(packages) + "\n\n"


def _environment(wanted: Options) -> str:
    return ""
