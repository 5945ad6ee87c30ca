"""What can be asked, run and measured, without a screen. Only `trainer/` imports TensorFlow."""

__version__ = "0.1.0"
