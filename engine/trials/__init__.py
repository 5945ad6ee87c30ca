"""Trials, short measured trainings: how they are run, compared and recorded; shared by proof, tune, sweep and scaling.

The records:
    trial.py              one measured training
    record.py             proof.json: all results so far, replaced after every change, with the part about scaling
    search_record.py      the part of it about a search (engine/tune)
    sweep_record.py       the part of it about a sweep (engine/sweep); sweep_groups.py: its trials by setting

The measurement:
    trial_runner.py       one training of a few measured seconds, which is ended early if it is clearly slower
    trial_preset.py       the options that every trial sets for itself, and changes of options
    comparing.py          trials of two settings in turn, and their losses if a change affects what the model learns
    significance.py       the rule by which a change is called faster, and what may be chance

The report:
    proof_sentences.py    each result in a sentence, shared by all views
    scaling_sentences.py  a measurement of scaling in words; sweep_sentences.py: a sweep
    change_texts.py       changes of options as text
    trial_tables.py       the tables of all of them, for a terminal and in Markdown
"""

LEAST_REPEATS = 3  # pairs of trials; fewer do not show their spread
TRIAL_SECONDS = 5.0  # measured in each trial, unless asked otherwise
SCREENING_SECONDS = 2.0  # measured in a trial of a search before its pairs
RESUMABLE = ("stopped", "crashed", "failed")  # states of a search or a measurement of scaling that can be resumed
KEEPS = ("per-replica", "global")  # which batch size stays the same with more replicas: weak and strong scaling
# The stages of a search (engine/tune), in their order.
STAGES = ("batch_size", "steps_per_execution", "precision", "xla", "strategy", "input", "threads")
SAMPLERS = ("grid", "random", "tpe")  # how the settings of a sweep are chosen
