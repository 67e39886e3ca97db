"""Magics and limits that several formats share.

A magic that only one format has is in that format's package.
"""

NPY_MAGIC = b"\x93NUMPY"
NPY_SUFFIX = ".npy"
ZIP_MAGIC = b"PK\x03\x04"
SAFETENSORS_BRACE = ord("{")
SAFETENSORS_LENGTH_SIZE = 8
# Longest index or header in bytes, after decoding: it is parsed as a whole. The reference library
# of safetensors stops at 100,000,000.
MAX_JSON = 100 * 1024 * 1024
