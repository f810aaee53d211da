"""Checks the numbers, dates and negations of an answer against what the passages say of the same thing."""
