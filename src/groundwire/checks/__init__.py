"""Checks on text: pure functions of their input, one check a file, without clock, network or state."""
