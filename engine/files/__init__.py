"""Files: written completely or not at all, read without trusting their content, on disks that may be full."""
