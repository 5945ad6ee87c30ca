"""Files: written whole or not at all, read with doubt, on disks that may be full."""
