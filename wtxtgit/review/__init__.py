"""Review: what a branch changes of checkpoints. `report.review` is what comes out."""
