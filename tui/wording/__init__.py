"""Sentences and names that several views have in common: of comparisons, the doctor, and runs."""
