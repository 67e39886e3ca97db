"""The hints that the product has, as its source spells them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import wtxtgit

_SOURCE = Path(wtxtgit.__file__).parent
_NAMED = re.compile(r"(?i)_?(\w*_)?hints?(_of_\w+)?")
_TELLERS = {"complain", "warn", "note", "Doubt"}
_HOLE = "{}"


@cache
def hints() -> dict[str, frozenset[str]]:
    """Each hint with `{}` for what is filled in, and the modules that have it.

    They are what is given as `hint`, or as the second thing that is told, what names like `hint`
    are bound to, and what functions called so give.
    """
    found: dict[str, set[str]] = {}
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(_SOURCE.rglob("*.py"))}
    own = {path: _constants(tree) for path, tree in trees.items()}
    shared = {name: value for one in own.values() for name, value in one.items()}
    for path, tree in trees.items():
        # Checks of formats have a `warn` of their own, which takes a field.
        if path.parent.parent.name == "containers":
            continue
        for value in _values(tree):
            for text in filter(None, _texts(value, {**shared, **own[path]})):
                found.setdefault(text, set()).add(str(path.relative_to(_SOURCE)))
    return {text: frozenset(modules) for text, modules in sorted(found.items())}


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    }


def _values(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Call():
                yield from (one.value for one in node.keywords if one.arg == "hint")
                name = node.func.id if isinstance(node.func, ast.Name) else ""
                name = node.func.attr if isinstance(node.func, ast.Attribute) else name
                if name in _TELLERS and len(node.args) > 1:
                    yield node.args[1]
                if name == "CheckResult" and len(node.args) > 3:
                    yield node.args[3]
            case ast.Assign(targets=[ast.Name(id=name)]) if _NAMED.fullmatch(name):
                yield node.value
            case ast.FunctionDef() if _NAMED.fullmatch(node.name):
                returned = (one for one in ast.walk(node) if isinstance(one, ast.Return))
                yield from (one.value for one in returned if one.value is not None)
            case ast.FunctionDef(args=ast.arguments(args=args, defaults=defaults)) if defaults:
                given = zip(args[-len(defaults) :], defaults, strict=True)
                yield from (value for one, value in given if one.arg == "hint")


def _texts(value: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(text)) if " " in text or text.isidentifier() is False:
            yield re.sub(r"\s+", " ", text)
        case ast.JoinedStr():
            parts = (p.value if isinstance(p, ast.Constant) else _HOLE for p in value.values)
            yield "".join(map(str, parts))
        case ast.IfExp():
            yield from _texts(value.body, constants)
            yield from _texts(value.orelse, constants)
        case ast.BinOp(op=ast.Add()):
            left = [*_texts(value.left, constants)] or [_HOLE]
            right = [*_texts(value.right, constants)] or [_HOLE]
            yield from (one + other for one in left for other in right)
        case ast.Name(id=name) if name in constants:
            yield from _texts(constants[name], constants)
