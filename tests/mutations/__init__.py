"""Breaks each defence, one at a time, in a copy of the source, and shows that a test notices: `make mutants`."""
