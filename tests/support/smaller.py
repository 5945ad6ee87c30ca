"""What makes a shipped preset small enough for two CPU cores; those that are not named here are so already."""

SMALLER = {
    "xla-bf16": ("model=separable_cnn", "batch_size=8"),  # a ResNet takes half a minute: resnet50-224 has it
    "resnet50-224": ("width=0.05", "shape=[32, 32, 3]", "batch_size=8", "classes=10", "validation_split=0"),
    "transformer-100m": ("width=0.5", "blocks=1", "shape=[16]", "batch_size=8"),
}
