"""Proofs: their list, the screens of a proof and of a measurement of scaling, and what starts and ends them."""
