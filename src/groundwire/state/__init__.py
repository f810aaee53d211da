"""What the gate remembers: one atomic step a batch (in a cluster, a bucket of it), over Redis or in memory (X-04)."""
