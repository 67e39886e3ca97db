"""DELTA v2: what changed between two texts, as text.

`docs/spec/delta.md`. `index` reads and checks a delta by itself, `sides` models the texts on
either side of it, `patch` makes a delta from two sides and applies it to one.
"""
