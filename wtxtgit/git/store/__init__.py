"""Git's object store, written and read without git where that saves time.

Git deflates and inflates a text with zlib on one core. Here ISA-L does it, on all cores. What is
written is what git writes: packs, pack indexes and loose objects, gitformat-pack(5). Everything
else about a store (names, garbage collection, transfer) is left to git.
"""
