"""The worked examples of docs/own-code.md: `gputui init --example NAME` writes one of them."""
