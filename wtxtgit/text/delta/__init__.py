"""DELTA v2: what changed between two texts, as text.

`docs/spec/delta.md`. `index` reads and checks a delta alone, `sides` are the texts
on either side of it, `make` and `apply` go from sides to a delta and back.
"""
