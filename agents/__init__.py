"""The Faust application: one agent for each input topic, and nothing that decides (X-01)."""
