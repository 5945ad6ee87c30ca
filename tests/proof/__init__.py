"""Proofs: the rule, trials that die, the loop of remedies, the report."""
