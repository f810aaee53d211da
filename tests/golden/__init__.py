"""Decisions of every kind, kept as bytes: whoever restructures the code shows with them that it decides as before."""
