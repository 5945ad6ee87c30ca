"""What this process may use, and with whom it trains: its GPUs, its allocation, its Slurm job and its cluster."""
