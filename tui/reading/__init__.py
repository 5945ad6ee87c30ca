"""Run folders as pictures of a moment: events in, frozen snapshots out. No Textual here."""
