"""What makes a shipped preset small enough for two CPU cores; those that are not named here are so already.

Its other options stay. XLA, which compiles for seconds, gets the kinds of layers of the model, but few of them.
"""

TINY_IMAGES = ("shape=[8, 8, 3]", "batch_size=4")
SMALLER = {
    "fast": ("model=mlp", "width=0.1", "steps_per_execution=4"),
    "quickstart": ("width=0.25",),
    "safe-memory": ("width=0.25",),
    "input-heavy": ("shape=[24, 24, 3]",),
    "multi-gpu": ("model=mlp", "width=0.1"),
    "xla-bf16": ("model=mlp", "width=0.1", "samples=40", *TINY_IMAGES),
    "resnet50-224": ("model=separable_cnn", "width=0.05", "samples=64", "classes=10", *TINY_IMAGES),
    "transformer-100m": ("width=0.25", "blocks=1", "shape=[16]", "batch_size=4", "samples=64"),
}
