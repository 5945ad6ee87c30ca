"""Lines and tables that commands print."""
