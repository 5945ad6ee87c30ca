"""Errors in a user's code: file, line, source line and message of theirs, wherever TensorFlow raises them."""

from __future__ import annotations

import pytest
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.own.user_code import UserError

from tests.support.own import Write

HEAD = """\
import keras, numpy as np, tensorflow as tf
x, y = np.zeros((64, 4), "float32"), np.zeros((64,), "float32")
def model():
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made
"""
CASES = {
    "in-build": (
        "def helper(n):\n    return x @ np.zeros((n, 1))\ndef build(context):\n    helper(3)\n",
        "train.py:8 in helper: ValueError: matmul",
        "return x @ np.zeros((n, 1))",
    ),
    "importing": (
        "import no_such_module_here\ndef build(context): ...\n",
        "train.py:7: ModuleNotFoundError: No module named 'no_such_module_here'",
        "import no_such_module_here",
    ),
    "in-keras": (
        "def build(context):\n    keras.layers.Dense(8, 'unknown')\n",
        "train.py:8 in build: ValueError: ",
        "keras.layers.Dense(8, 'unknown')",
    ),
    "exit": (
        "import sys\ndef build(context):\n    sys.exit(3)\n",
        "train.py:9 in build ended the process with sys.exit",
        "sys.exit(3)",
    ),
    "argparse": (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--train', required=True)\n"
        "args = parser.parse_args()\ndef build(context): ...\n",
        "train.py:10: the following arguments are required: --train (usage: train.py [-h] --train TRAIN)",
        "args = parser.parse_args()",
    ),
    "in-map": (
        "def load(a, b):\n    a = a.reshape(3)\n    return a, b\ndef build(context):\n"
        "    data = tf.data.Dataset.from_tensor_slices((x, y))\n"
        "    return {'model': model(), 'train': data, 'map': load}\n",
        "train.py:8 in load: AttributeError: ",
        "a = a.reshape(3)",
    ),
    "in-train-step": (
        "class Mine(keras.Model):\n    def train_step(self, data):\n        return {'loss': undefined}\n"
        "def build(context):\n    made = Mine()\n    made.compile('sgd')\n"
        "    return made, tf.data.Dataset.from_tensor_slices((x, y)).batch(8)\n",
        "train.py:9 in train_step: NameError: name 'undefined' is not defined",
        "return {'loss': undefined}",
    ),
    "in-generator": (
        "def samples():\n    yield x[0], y[0]\n    raise RuntimeError('bad record')\ndef build(context):\n"
        "    spec = (tf.TensorSpec((4,), tf.float32), tf.TensorSpec((), tf.float32))\n"
        "    data = tf.data.Dataset.from_generator(samples, output_signature=spec)\n"
        "    return {'model': model(), 'train': data, 'map': None, 'samples': 64}\n",
        "train.py:9 in samples: RuntimeError: bad record",
        "raise RuntimeError('bad record')",
    ),
    "in-pydataset": (
        "class Data(keras.utils.PyDataset):\n    def __len__(self): return 4\n    def __getitem__(self, index):\n"
        "        if index: raise KeyError('file two')\n        return x[:8], y[:8]\n"
        "def build(context):\n    return model(), Data()\n",
        "train.py:10 in __getitem__: KeyError: 'file two'",
        "if index: raise KeyError('file two')",
    ),
    "in-callback": (
        "class Told(keras.callbacks.Callback):\n    def on_epoch_end(self, epoch, logs=None):\n"
        "        self.history[logs['accuracy']]\ndef build(context):\n"
        "    return {'model': model(), 'train': (x, y), 'callbacks': [Told()]}\n",
        "train.py:9 in on_epoch_end: ",
        "self.history[logs['accuracy']]",
    ),
    "at-run-time": (
        "class Mine(keras.Model):\n    def __init__(self):\n        super().__init__()\n"
        "        self.dense = keras.layers.Dense(1)\n    def call(self, a):\n"
        "        tf.debugging.assert_less(tf.reduce_sum(a), -1.0, 'too large')\n        return self.dense(a)\n"
        "def build(context):\n    made = Mine()\n    made.compile('sgd', 'mse')\n    return made, (x, y)\n",
        "train.py:12 in call: InvalidArgumentError: ",
        "tf.debugging.assert_less(tf.reduce_sum(a), -1.0, 'too large')",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_told_as_a_line_of_theirs(name: str, own: Write) -> None:
    text, message, line = CASES[name]
    with pytest.raises(UserError) as raised:  # noqa: PT012
        training = own(HEAD + text, "epochs=1", "batch_size=8", "validation_split=0")
        assert training.loop.built.own is not None
        with training.loop.built.own.code.blamed(found_only=True):
            training.train()
    told = raised.value.message
    assert told.startswith(message)
    assert told.partition("\n")[2].strip() == line
    assert len(told) < 500
    assert ("workload.args" in raised.value.hint) == (name == "argparse")
    assert isinstance(raised.value, TrainerError)


def test_an_error_that_is_not_theirs_stays_what_it_is(own: Write) -> None:
    training = own(HEAD + "def build(context):\n    return model(), (x, y)\n", "epochs=1", "validation_split=0")
    assert training.loop.built.own is not None
    with pytest.raises(ZeroDivisionError), training.loop.built.own.code.blamed(found_only=True):
        raise ZeroDivisionError
