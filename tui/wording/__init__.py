"""The sentences and names that several views have in common, about comparisons, the doctor and runs."""
