"""GGUF files: tensors of ggml types."""
