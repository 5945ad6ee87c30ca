"""The worked examples of docs/own-code.md and docs/fine-tuning.md: `gputui init --example NAME` writes one of them."""
