"""What every screen stands on: the terminal's input, errors in words, themes, services of the application."""
