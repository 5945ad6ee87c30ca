"""Reports what a search has found, from its record.

findings.py         the leaderboard, and what each option brought
sentences.py        the same in words, shared by all views
memory_sentences.py the memory in words
markdown.py         the sections about a search in the report
"""
