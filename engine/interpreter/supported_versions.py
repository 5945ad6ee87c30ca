"""The versions of TensorFlow and Keras with which gputui trains: those that its tests have been run with.

Older ones are refused:
- TensorFlow 2.17 is built for cuDNN 8 (tensorflow.org/install/source, tested build configurations), and its XLA ends
  the process on --xla_gpu_per_fusion_autotune_cache_dir, which it does not know. TensorFlow 2.16 has no
  tf.data.experimental.get_model_proto, which has the times of the stages of the input pipeline.
- Keras 3.9 counts metrics over replicas wrongly (an accuracy is halved over two): since 3.10 their variables have
  synchronization="on_read" (keras/src/metrics/metric.py). Keras 3.8 takes no DistributedDatasetsFromFunction, with
  which the trainer shares batches between replicas (keras/src/trainers/data_adapters/__init__.py).

Newer ones may work and are only warned of. pyproject.toml has the same range of TensorFlow.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator

from ..finding import Finding

OLDEST_TENSORFLOW, NEWEST_TENSORFLOW = (2, 18), (2, 21)
OLDEST_KERAS, NEWEST_KERAS = (3, 10), (3, 15)
# TensorFlow's packages for ARM are built without CUDA, although its extra brings CUDA's libraries there, too.
HAS_CUDA = platform.machine() in ("x86_64", "AMD64")
# NVIDIA's last container with TensorFlow, nvcr.io/nvidia/tensorflow:25.02-tf2-py3, has 2.17.
WITH_CUDA_ON_ARM = (
    "no package for ARM on PyPI has it (an unofficial one of 2.20 is at huggingface.co/infineon): build TensorFlow "
    "{}.{} to {}.{} with CUDA from its source (NVIDIA's containers end with 2.17, which is too old for gputui); "
    "device.visible=none trains on the CPU"
).format(*OLDEST_TENSORFLOW, *NEWEST_TENSORFLOW)
# What pip is to install. gputui's own extras are not named, as there is no gputui on PyPI.
TENSORFLOW = "tensorflow{}>={}.{},<{}.{}".format(
    "[and-cuda]" if HAS_CUDA else "", *OLDEST_TENSORFLOW, NEWEST_TENSORFLOW[0], NEWEST_TENSORFLOW[1] + 1
)
KERAS = "keras>={}.{}".format(*OLDEST_KERAS)
REQUIRED = {"TensorFlow": TENSORFLOW, "Keras": KERAS, "NumPy": "numpy"}


def findings(tensorflow: str | None, keras: str | None, install: Callable[[str], str]) -> Iterator[Finding]:
    """A version that is None is not judged. `install` returns the command that installs a requirement."""
    for name, version, oldest, newest in (
        ("TensorFlow", tensorflow, OLDEST_TENSORFLOW, NEWEST_TENSORFLOW),
        ("Keras", keras, OLDEST_KERAS, NEWEST_KERAS),
    ):
        numbers = re.match(r"(\d+)\.(\d+)", version or "")
        installed = (int(numbers[1]), int(numbers[2])) if numbers else oldest
        tested = "{}.{} to {}.{}".format(*oldest, *newest)
        if installed < oldest:
            what = f"{name} {version} is too old: gputui trains with {name} {tested}"
            yield Finding("error", "TensorFlow", what, install(REQUIRED[name]))
        elif installed > newest:
            what = f"{name} {version} is newer than gputui has been tested with ({tested})"
            remedy = f"it may work; if not, install {name} {'.'.join(map(str, newest))}"
            yield Finding("warning", "TensorFlow", what, remedy)
