"""Searches combinations of many options through Optuna, which proposes them; several machines may share one study."""
