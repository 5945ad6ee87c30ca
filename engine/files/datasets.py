"""Where Keras keeps the data sets that it downloads, and how files of images are named."""

from __future__ import annotations

import os
from pathlib import Path

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
# The data sets that Keras downloads: their files in its folder, in words and as a pattern.
KERAS_FILES = {
    "mnist": ("mnist.npz", "mnist.npz"),
    "fashion_mnist": ("fashion-mnist/ (four train-* and t10k-* .gz files)", "fashion-mnist/t*.gz"),
    "cifar10": ("cifar-10-batches-py-target.tar.gz", "cifar-10-batches-py*"),
}


def keras_folder() -> Path:
    """The folder in which Keras keeps the data sets that it has downloaded."""
    return Path(os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")) / "datasets"
