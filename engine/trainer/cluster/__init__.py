"""A training on several machines: its workers meet, exchange values, agree on what to do, and name one that fails."""
