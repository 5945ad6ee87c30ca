"""What every screen uses: terminal input, error messages, themes, and services of the application."""
