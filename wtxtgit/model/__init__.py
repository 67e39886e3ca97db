"""The nouns that all rooms share: plain data, without I/O, hashing or policy."""
