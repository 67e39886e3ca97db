"""DELTA v2: what changed between two texts, as text.

`docs/spec/delta.md`. `lines` spells the lines that only a delta has, `index`
reads one, `sides` are the texts on either side of it, `make` and `apply` go
from sides to a delta and back.
"""
