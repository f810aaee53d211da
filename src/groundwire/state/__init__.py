"""What the gate remembers: one atomic step a batch, over Redis or in memory (X-04)."""
