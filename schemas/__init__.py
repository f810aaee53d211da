"""The published contract, and what writes and checks it."""
