"""What tests share: recorded runs, stand-ins, terminals, programs."""
