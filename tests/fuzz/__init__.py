"""Hostile input for every entry of Groundwire: made from valid examples, by a seed, and held to what is promised."""
