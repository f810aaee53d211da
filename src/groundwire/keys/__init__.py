"""Keys: what a signature is worth, the file that holds the secrets, and noticing that it changed."""
