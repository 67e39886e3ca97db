"""What the content of an artifact is: its seal's hash, and whether it is what clean gives.

`ops.examine` finds it out; `ops.known` keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wtxtgit.model import Meta, Signature

if TYPE_CHECKING:
    # With numpy, which who only asks what is known does without.
    from wtxtgit.text.write import TextWriter


@dataclass(frozen=True, slots=True)
class ArtifactFacts:
    """What is known of a content; nothing of it depends on trust.

    `sha256_all` (32 bytes) is that of the text which clean makes of it, None
    for a text that does not verify; `fault` then says why. `schema` is that
    text's. `is_text` tells a text from a binary, `is_canonical` one that is
    what clean gives. `meta` is a native text's own. `signed` is what a native
    text's own signature is over, and that signature. `opaque` (32 bytes) is
    sha256_all of the opaque text of the content, whatever it begins with; None
    where nobody asked for it, and it is no native text.
    """

    size: int
    is_text: bool
    sha256_all: bytes | None
    schema: str
    is_canonical: bool = True
    fault: str | None = None
    meta: Meta | None = None
    signed: tuple[bytes, Signature] | None = None
    opaque: bytes | None = None

    @property
    def is_native(self) -> bool:
        """Whether it is a text that stands for itself, which smudge gives as it is."""
        return self.meta is not None


def written_facts(writer: TextWriter) -> ArtifactFacts:
    """The facts of a text that clean makes of a file, without reading it again.

    They are what `examine` finds of that text. `writer` is that of a clean; it
    hashes the file unless it has done so.
    """
    return ArtifactFacts(writer.size, True, writer.root.sha256_all, writer.meta.schema)
