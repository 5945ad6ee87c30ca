"""Pictures as rows of characters: plots, panels, layout. Pure functions, which widgets put on the screen."""
