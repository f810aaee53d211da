"""`make demo`: the whole claim path on this machine, fed with examples whose outcomes are known."""
