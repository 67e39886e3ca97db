"""safetensors files: reading, checking, writing."""
