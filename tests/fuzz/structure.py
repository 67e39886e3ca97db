"""Mutations of container files: what they change is often reached by the format's reader."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.fuzz import chunks, tables, zips
from tests.fuzz.mutations import bytes_mutant
from tests.fuzz.numbers import Mutant, number_mutant, spliced
from tests.fuzz.pickles import pickle_mutant
from tests.fuzz.spelling import json_text


def container_mutant(name: str, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A file made of a seed of the format: its structure changed, or its bytes, or both."""
    made = rng.choice(seeds)
    kind = rng.randrange(20)
    if kind < 11:
        made = structured(name, made, rng)
    if kind in (10, 11, 12, 13):
        made = number_mutant(made, rng)
    elif kind in (14, 15):
        made = spliced(made, rng.choice(seeds), rng)
    elif kind > 15:
        made = bytes_mutant(made, rng)
    return made


def structured(name: str, data: bytes, rng: random.Random) -> bytes:
    """A file of the format with its own structure changed."""
    return rng.choice(STRUCTURED.get(name, (number_mutant,)))(data, rng)


STRUCTURED: dict[str, tuple[Mutant, ...]] = {
    "fold": (chunks.fold_index, chunks.fold_header, chunks.fold_payload),
    "aero": (chunks.aero_toc, chunks.aero_content, chunks.aero_content),
    "mlcp": (tables.mlcp,),
    "taridx": (tables.taridx_header, tables.taridx_rows, tables.taridx_texts),
    "safetensors": (tables.safetensors,),
    "npy": zips.NPY,
    "npz": zips.NPZ,
    "torch": zips.TORCH,
    "legacy": (pickle_mutant,),
    "gguf": (tables.gguf_entry, tables.gguf_info),
    "aeroset": (json_text,),
    "safetensors-index": (json_text,),
    "gguf-split": (json_text,),
    "sharded-mlcp": (json_text,),
    "torch-distributed": (pickle_mutant,),
}
"""What of each format is changed; of others numbers are."""
