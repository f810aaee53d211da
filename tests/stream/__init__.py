"""Real worker processes against a broker and a Redis server."""
