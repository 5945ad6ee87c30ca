"""Searches for the fastest settings of a training that this machine allows, and proves the gain.

A search is a proof of kind `tune` (engine/proof): it has a folder, a record and a process like any proof, and its
trials are runs. What it may do is declared in proof/search.py, as is what it has found.

    asking.py           the request, and what is refused before anything is measured
    search.py           the whole of it: the baseline, the ordered search or combinations, the pairs that decide
    baseline.py         the preset as it is, or a smaller batch where it runs out of memory
    measuring/          candidates: which there are, how they are measured, and which are faster
    stages/             the ordered search: one option after another
    batches/            the batch size, and the memory that batches take
    wide/               combinations of many options, proposed by Optuna, on several machines if wanted
    decision/           which settings are chosen, and the pairs that prove their gain
    report/             what a search has found, for all views
"""
