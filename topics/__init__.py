"""The topics: what they are, how they are declared, how agents read them."""
