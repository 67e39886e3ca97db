"""`docs/architecture.md` names rooms and modules that are there, and all of the rooms."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.docs.pages import ROOT, lines

PAGE = "docs/architecture.md"
PACKAGE = ROOT / "wtxtgit"
_MODULE = re.compile(r"[a-z_]+(/[a-z_]+)*(\.py|/)")


def rooms() -> list[list[str]]:
    """Rooms in the order of `make layers`, from the top; those of a line are one list."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    named = [[m.strip().removeprefix("wtxtgit.") for m in layer.split("|")] for layer in layers]
    return [[room for room in layer if (PACKAGE / room).is_dir()] for layer in named]


def test_rooms_are_those_of_the_layers_in_their_order() -> None:
    told = [
        re.findall(r"`([a-z]+)`", line.cells[0])
        for line in lines(PAGE)
        if line.section == "Rooms" and len(line.cells) == 3
    ]
    assert [room for row in told[1:] for room in row] == [r for layer in rooms() for r in layer]


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == {room for layer in rooms() for room in layer}


@pytest.mark.parametrize("page", [PAGE, "CONTRIBUTING.md"])
def test_modules_are_there(page: str) -> None:
    named = {
        span
        for line in lines(page)
        for span in line.spans
        if _MODULE.fullmatch(span) and not (ROOT / span).exists()
    }
    assert {name for name in named if not (PACKAGE / name).exists()} == set()
    assert page != PAGE or len(named) > 40


def test_every_room_has_an_example() -> None:
    """What "looks like" names is a module of the room in whose row it stands."""
    for line in lines(PAGE):
        if line.section == "Rooms" and len(line.cells) == 3 and line.cells[0] != "room":
            named = re.findall(r"`([a-z]+)`", line.cells[0])
            shown = re.findall(r"`([a-z]+)/", line.cells[2])
            assert shown == named, str(line)
