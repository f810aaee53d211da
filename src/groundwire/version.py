"""The version, in one place: the package's, and the engine that decisions name."""

__version__ = "0.1.0"
