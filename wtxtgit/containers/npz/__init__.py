"""npz files: npy files in a zip."""
