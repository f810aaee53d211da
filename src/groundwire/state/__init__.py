"""What the gate remembers, over Redis or in memory (X-04)."""
