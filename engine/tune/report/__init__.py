"""Reports the results of a search, from its record, for all views."""
