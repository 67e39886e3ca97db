"""Git's object store, written and read without git where that is what takes the time.

Git deflates a text with zlib at its slowest hardware-independent pace, on one
core, and inflates it so. Here ISA-L does it, on all cores. What is written is
what git writes: packs, pack indexes and loose objects, gitformat-pack(5).
Everything else of a store (names, garbage, transfer) stays git's.
"""
