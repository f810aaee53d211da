"""The fault suite: real workers under load while things break, and a checker that reads all topics afterwards."""
