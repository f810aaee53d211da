"""Which claims repeat or contradict each other: their form, its signature, and the keys of the index."""
