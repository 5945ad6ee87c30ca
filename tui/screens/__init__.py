"""One file for each screen, with its .tcss file beside it."""
