"""Keys, signers, agents."""
