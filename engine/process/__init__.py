"""The processes of a run: they are started, watched and ended, and how they ended is told."""
