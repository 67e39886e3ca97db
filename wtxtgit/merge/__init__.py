"""Three-way merges: of checkpoints by tensor, then by row, then by strategy; of ledgers."""
