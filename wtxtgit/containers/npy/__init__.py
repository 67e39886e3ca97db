"""npy files: one numpy array."""
