"""Commands that rewrite history."""

from __future__ import annotations

from tests.kit import safetensors
from tests.torture.cases.places import Killed, Place
from tests.torture.cases.starts import MODEL, OTHER

_IMPORT = ("migrate", "import", "--include", "*.safetensors", "--everything")


def raw(place: Place) -> None:
    """Three commits with files as they are, a branch, a tag, and something stashed."""
    for number in range(3):
        place.write(MODEL, safetensors(*range(number, 300)))
        if not number:
            place.write(OTHER, safetensors(1.0))
            place.write("plain", b"not filtered")
        place.commit()
    place.git("branch", "topic", "HEAD~1")
    place.git("tag", "-a", "-m", "t", "v1", "HEAD")
    place.write(MODEL, safetensors(7.0))
    place.git("stash", "-q")


def imported(place: Place) -> None:
    raw(place)
    place.call(*_IMPORT)


MIGRATIONS = (
    Killed("migrate import", raw, _IMPORT),
    Killed("migrate export", imported, ("migrate", "export", "--everything")),
)
