"""Sweeps: trainings of a preset with many values of some options, and the proof which of them learns best.

A sweep is a proof folder with a process of its own; its trials are ordinary runs that the queue starts.

    swept_values.py     the values of --over: parsed, as a grid, drawn at random
    proposals.py        settings that Optuna's TPE proposes
    preset_block.py     the block `sweep:` of a preset
    sweep_request.py    the request, and what is refused before the first training
    sweep_loop.py       the sweep: which trial is started next, the search, then the proof
    failures.py         which failures end the sweep
    halving.py          bad trials end early: who goes on after a rung
    shared_study.py     several machines share a sweep; claims.py: which of them has which trial
    decision.py         means over seeds, the finalists, confidence intervals of their differences
    sweep_time.py       what fits into the time, and when trials are stopped
    trainings.py        a trial as a run: made once, queued, read

Its record is trials/sweep_record.py, its sentences are trials/sweep_sentences.py.
"""
