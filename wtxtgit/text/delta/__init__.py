"""DELTA v2: what changed between two texts, as text.

`docs/spec/delta.md`. `index` reads and checks a delta alone, `sides` are the texts
on either side of it, `patch` goes from sides to a delta and back.
"""
