"""Trials, short measured trainings, for proof, tune, sweep and scaling: run, compared and recorded."""

LEAST_REPEATS = 3  # pairs of trials; fewer do not show their spread
TRIAL_SECONDS = 5.0  # measured in each trial, unless asked otherwise
SCREENING_SECONDS = 2.0  # measured in a trial of a search before its pairs
RESUMABLE = ("stopped", "crashed", "failed")  # states of a search or a measurement of scaling that can be resumed
KEEPS = ("per-replica", "global")  # which batch size stays the same with more replicas: weak and strong scaling
# The stages of a search (engine/tune), in their order.
STAGES = ("batch_size", "steps_per_execution", "precision", "xla", "strategy", "input", "threads")
SAMPLERS = ("grid", "random", "tpe")  # how the settings of a sweep are chosen
SEEDS = 2**31 - 1  # trials of one measurement that differ by their seed have it modulo this
