"""Searches for the fastest settings of a training that this machine allows, and proves the gain.

A search is a proof of kind `tune` (engine/proof): it has a folder, a record and a process like any proof, and its
trials are runs. What it may do is declared in trials/search_record.py, as is what it has found.

    tune_request.py     the request, and what is refused before anything is measured
    search.py           the whole of it: the baseline, the ordered search or combinations, the pairs that decide
    baseline.py         the preset as it is, or a smaller batch if it runs out of memory
    time_plan.py        how the minutes are shared out
    candidates/         which settings there are to try, how they are measured, and which are faster
    stages/             the ordered search: one option after another
    wide/               combinations of many options, proposed by Optuna, on several machines if wanted
    decision.py         which settings are chosen, and the pairs that prove their gain
    fallbacks.py        settings to take if the fastest learn clearly worse
    learning_rate.py    the learning rate for another batch size
    losses.py           the loss of settings compared with that of the preset, after the same number of samples
    training_length.py  how many samples those are
    memory_model.py     the memory that batches take, by batch size
    memory_line.py      the line through the measured points
    dry_run.py          only predicts the memory, from two short trials
    report/             what a search has found, for all views
"""
