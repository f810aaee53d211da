"""The gate: records in, decisions out. One class does it for workers, for `groundwire check` and for the library."""
