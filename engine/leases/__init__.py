"""Who may use which GPU of a box that several people share: leases, free GPUs, and the choice among them."""
