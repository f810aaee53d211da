"""People's side of the gate: a board of pending items, signed actions on them, and who may do what."""
