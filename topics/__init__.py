"""The topics: what they are, and how they are declared."""
