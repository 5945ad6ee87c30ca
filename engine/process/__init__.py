"""The processes of a run: starting, watching and ending them, and finding out how they ended."""
