"""The user's Python: which interpreter trains, what is installed for it, and which versions fit together."""
