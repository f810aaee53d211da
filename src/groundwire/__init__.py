"""Groundwire: the streaming gate between AI agents and the knowledge base they write to."""
