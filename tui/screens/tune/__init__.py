"""A search for the fastest settings: its screen, and the dialog that starts one."""
