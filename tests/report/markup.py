"""An HTML page taken apart: what a browser would make of its tags, strictly."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "input", "br", "wbr"})
"""Elements without an end, of those that pages have."""


@dataclass
class Element:
    """An element with its attributes; `text` is all that it holds, of its children too.

    `pieces` is all text of the page, of which `first` to `end` are in the element.
    """

    tag: str
    attributes: dict[str, str]
    pieces: list[str] = field(repr=False)
    first: int
    end: int

    @property
    def text(self) -> str:
        return "".join(self.pieces[self.first : self.end])

    def has_class(self, name: str) -> bool:
        return name in self.attributes.get("class", "").split()


@dataclass
class Markup:
    """All elements of a page, in the order of their starts."""

    elements: list[Element] = field(default_factory=list)

    def of(self, tag: str, kind: str | None = None) -> list[Element]:
        """The elements with this tag, and this class."""
        named = [one for one in self.elements if one.tag == tag]
        return named if kind is None else [one for one in named if one.has_class(kind)]

    def the(self, tag: str, kind: str | None = None) -> Element:
        (found,) = self.of(tag, kind)
        return found


def parsed(page: str) -> Markup:
    """The page's elements; an AssertionError where tags do not close in order."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert not parser.open, [one.tag for one in parser.open]
    assert not parser.rawdata
    return parser.found


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found = Markup()
        self.open: list[Element] = []
        self.pieces: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), names
        there = len(self.pieces)
        attributes = {name: value or "" for name, value in attrs}
        element = Element(tag, attributes, self.pieces, there, there)
        self.found.elements.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        element = self.open.pop()
        assert element.tag == tag
        element.end = len(self.pieces)

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)
