"""Whether the evidence holds what an answer says: pure, deterministic, without a model or a network (S4-05, S4-06)."""
