"""Reads run folders into frozen snapshots of a moment. Imports no Textual."""

LOOKED_AT = 50  # how many of the newest runs are searched for one that is running
