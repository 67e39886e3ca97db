"""Signatures and limits that several formats share.

The magic of one format alone stands in its package.
"""

NPY_MAGIC = b"\x93NUMPY"
NPY_SUFFIX = ".npy"
ZIP_MAGIC = b"PK\x03\x04"
SAFETENSORS_BRACE = ord("{")
SAFETENSORS_LENGTH_SIZE = 8
# Longest index or header, in bytes once decoded: it is parsed whole. The reference library of
# safetensors stops at 100,000,000.
MAX_JSON = 100 * 1024 * 1024
