"""Keys: what a signature is worth, the file that holds the keys, and noticing that it changed."""
