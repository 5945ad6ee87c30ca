"""The sentences and names that several views have in common, about comparisons, the doctor, GPUs and runs."""
