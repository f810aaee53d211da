"""Derives decisions again from their recorded facts: proof and replay (X-08); asks neither Redis nor the network."""
