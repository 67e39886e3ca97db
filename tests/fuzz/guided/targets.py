"""All targets, by name."""

from __future__ import annotations

from tests.fuzz.guided import files, outside, payload, texts

TARGETS = {**texts.TARGETS, **files.TARGETS, **outside.TARGETS, **payload.TARGETS}
