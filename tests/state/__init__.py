"""State over both implementations: the life cycle row by row, and run at random."""
