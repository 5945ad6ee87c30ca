"""Searches for the fastest settings of a training that this machine allows, and proves the gain.

A search is a proof of kind `tune` (engine/proof): it has a folder, a record and a process like any proof, and its
trials are runs. What it may do is declared in trials/search_record.py, as is what it has found.

    tune_request.py  the request, and what is refused before anything is measured
    search.py        the whole of it: the baseline, the ordered search or combinations, the pairs that decide
    time_plan.py     how the minutes are shared out
    candidates/      which settings there are to try, how they are measured, and which are faster
    stages/          the ordered search: one option after another
    wide/            combinations of many options, proposed by Optuna, on several machines if wanted
    decision.py      which settings are chosen, their learning rate, and the pairs that prove their gain
    losses.py        the loss of settings compared with that of the preset, after the same number of samples
    memory_model.py  the memory that batches take, by batch size
    dry_run.py       only predicts the memory, from two short trials
    report/          what a search has found, for all views
"""
