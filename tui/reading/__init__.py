"""Reads run folders into frozen snapshots of a moment. Imports no Textual."""
