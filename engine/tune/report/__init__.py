"""Reports the results of a search, from its record.

search_results.py    the leaderboard, and what each option brought
search_tables.py     the same as tables, for a terminal and in Markdown
search_sentences.py  the same in words, shared by all views
memory_sentences.py  the memory of batches: predictions, and sentences
markdown.py          the sections about a search in the report
"""
