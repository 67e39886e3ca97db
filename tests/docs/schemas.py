"""The schemas of `docs/schemas/`, made of the reports' classes: `make schemas`.

What `--json` prints is a `JsonObject`, or an object of few keys that a command makes of such.
Which keys a class has stands in its KEYS, which values in its annotations, and what they mean
in its docstring; so a schema says nothing that the code does not. A change of a report is a
change of a file here, which a review sees.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Literal, NotRequired, TypedDict, Union

from tests.docs.pages import ROOT
from wtxtgit.chain.log import LogCommit, LogEntry
from wtxtgit.chain.push import PushedRef
from wtxtgit.chain.seal import SealReport
from wtxtgit.chain.signers import SignersReport
from wtxtgit.checkpoint.convert import Conversion
from wtxtgit.checkpoint.encrypt import RekeyReport
from wtxtgit.checkpoint.finalize import Finalized
from wtxtgit.checkpoint.recover import TextRecovery
from wtxtgit.checkpoint.repack import Recovery, Repacking
from wtxtgit.checkpoint.reseal import Resealing
from wtxtgit.checkpoint.salvage import ContainerRecovery
from wtxtgit.filter.checkout import CheckedOut
from wtxtgit.filter.status import Listing, Status
from wtxtgit.merge.resolve import Resolution
from wtxtgit.model.plain import JsonObject
from wtxtgit.remotes.payload.store_url import StoreUrl
from wtxtgit.report.audit import AuditReport
from wtxtgit.report.check import CheckReport
from wtxtgit.report.diff import DiffReport
from wtxtgit.report.history import History
from wtxtgit.report.inspect import Inspection
from wtxtgit.report.merge import MergeReport
from wtxtgit.report.migrate import HistoryFiles, Migrated
from wtxtgit.report.release import ReleaseReport
from wtxtgit.report.review import Review
from wtxtgit.report.store import (
    PayloadFetched,
    PayloadPushed,
    RemotePruned,
    StoreImported,
    StoreListing,
    StorePruned,
    StoreRepacked,
    StoreVerdict,
)
from wtxtgit.report.verdict import Verdict
from wtxtgit.setup.diagnosis import Diagnosis
from wtxtgit.setup.install import Installed, Uninstalled
from wtxtgit.setup.keys import KeyFacts
from wtxtgit.setup.track import Patterns, Tracking
from wtxtgit.stream.overview import RankedState
from wtxtgit.stream.pull import Pulled
from wtxtgit.stream.state import RingState
from wtxtgit.stream.upkeep import RingVerdict, Sent

FOLDER = ROOT / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}
_LEAVES: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: _NUMBER,
    str: {"type": "string"},
    bool: {"type": "boolean"},
    bytes: {"type": "string"},
    type(None): {"type": "null"},
}


class Conflicts(TypedDict):
    """Without a path: the checkpoints that are in conflict."""

    conflicts: list[str]


class PushedRefs(TypedDict):
    """Of pre-push: each ref that is pushed."""

    refs: list[PushedRef]


class SealedGenerations(TypedDict):
    """The newest first. `commits` are those that changed a file that was never sealed."""

    generations: list[LogEntry]
    commits: NotRequired[list[LogCommit]]


class SentGenerations(TypedDict):
    """Each delivery that was tried."""

    sent: list[Sent]


class PrunedGenerations(TypedDict):
    """The numbers of the generations that were removed."""

    pruned: list[int]


class Keys(TypedDict):
    """The keys of the key ring."""

    keys: list[KeyFacts]


class IndexRow(TypedDict):
    """A row; `ext` and `stem` are null where no table has the row's id."""

    fid: int
    offset: int
    size: int
    crash: int
    keyhash: str
    ext: str | None
    stem: str | None


class Index(TypedDict):
    """What the header says, both tables, and the rows."""

    path: str
    format: Literal["taridx"]
    version: str
    n_stems: int
    n_rows: int
    contiguous: bool
    extensions: list[str]
    crash_stems: list[str]
    rows: list[IndexRow]


REPORTS: dict[str, Any] = {
    "install": Installed,
    "uninstall": Uninstalled,
    "track": Tracking | Patterns,
    "untrack": Tracking,
    "migrate info": HistoryFiles,
    "migrate import": Migrated,
    "migrate export": Migrated,
    "doctor": Diagnosis,
    "checkout": CheckedOut,
    "status": Status,
    "ls-files": Listing,
    "inspect": Inspection,
    "verify": Verdict,
    "diff": DiffReport,
    "review": Review,
    "history": History,
    "merge-file": MergeReport,
    "resolve": Resolution | Conflicts,
    "finalize": Finalized,
    "convert": Conversion,
    "repack": Repacking,
    "reseal": Resealing,
    "recover": TextRecovery | ContainerRecovery | Recovery,
    "rekey": RekeyReport,
    "taridx ls": Index,
    "taridx verify": Verdict,
    "fetch": PayloadFetched,
    "push": PayloadPushed,
    "store ls": StoreListing,
    "store verify": StoreVerdict,
    "store use": StoreUrl,
    "store repack": StoreRepacked,
    "store prune": StorePruned | RemotePruned,
    "store import": StoreImported,
    "ring ls": RingState | RankedState,
    "ring push": SentGenerations,
    "ring retry": SentGenerations,
    "ring prune": PrunedGenerations,
    "ring verify": RingVerdict,
    "pull": Pulled,
    "seal": SealReport,
    "check": CheckReport,
    "key new": KeyFacts,
    "key import": KeyFacts,
    "key list": Keys,
    "key show": KeyFacts,
    "signers add": SignersReport,
    "signers remove": SignersReport,
    "signers threshold": SignersReport,
    "signers list": SignersReport,
    "log": SealedGenerations,
    "audit": AuditReport,
    "release": ReleaseReport | AuditReport,
    "hook": CheckReport | PushedRefs,
}
"""What each command prints."""


class Definitions:
    """The definitions of one schema, made as they are met."""

    def __init__(self) -> None:
        self.made: dict[str, Schema] = {}

    def of(self, kind: Any) -> Schema:
        """The schema of what an annotation says."""
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in (Union, types.UnionType):
            return _any_of([self.of(one) for one in arguments])
        if origin is Literal:
            return {"enum": list(arguments)}
        if kind in _LEAVES:
            return _LEAVES[kind]
        if kind in (Any, object):
            return {}
        held = origin or kind
        if typing.is_typeddict(held):
            return self._reference(held)
        if not isinstance(held, type):
            raise TypeError(f"{kind!r} has no schema")
        if issubclass(held, JsonObject):
            return self._reference(held)
        if issubclass(held, Enum):
            return {"enum": [str(member) for member in held]}
        if issubclass(held, PurePath):
            return {"type": "string"}
        if issubclass(held, Mapping):
            key, value = arguments or (str, Any)
            if isinstance(key, type) and issubclass(key, Enum):
                of_each = {str(member): self.of(value) for member in key}
                return {"type": "object", "properties": of_each, "additionalProperties": False}
            return {"type": "object", "additionalProperties": self.of(value)}
        if issubclass(held, tuple) and arguments and arguments[-1] is not Ellipsis:
            items = [self.of(one) for one in arguments]
            return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
        if issubclass(held, Sequence):
            return {"type": "array", "items": self.of((*arguments, Any)[0])}
        raise TypeError(f"{kind!r} has no schema")

    def _reference(self, kind: type) -> Schema:
        if kind.__name__ not in self.made:
            self.made[kind.__name__] = {}
            made = self._typed(kind) if typing.is_typeddict(kind) else self.object_of(kind)
            self.made[kind.__name__] = made
        return {"$ref": f"#/$defs/{kind.__name__}"}

    def object_of(self, kind: type[JsonObject]) -> Schema:
        properties: dict[str, Schema] = {}
        required: list[str] = []
        closed: object = False
        if kind.entries is not JsonObject.entries and not kind.KEYS:
            raise TypeError(f"{kind.__name__} gives entries of its own, and has no KEYS")
        for word in kind.KEYS.split() or [one.name for one in fields(kind)]:  # type: ignore[arg-type]
            key, _, name = word.strip("*?").removesuffix(":hex").partition("=")
            held = _type_of(kind, name or key)
            if word.startswith("*"):
                inner, is_there = self._merged(held)
                properties |= inner.get("properties", {})
                required += inner.get("required", []) if is_there else []
                closed = closed or inner["additionalProperties"]
                continue
            if word.endswith("?"):
                held = _without_none(held)
            else:
                required.append(key)
            properties[key] = self.of(held)
        told = _told(kind)
        return {
            **({"description": told} if told else {}),
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": closed,
        }

    def _typed(self, kind: Any) -> Schema:
        hints = typing.get_type_hints(kind)
        # `__required_keys__` has these, too, where annotations are strings.
        full = typing.get_type_hints(kind, include_extras=True)
        return {
            "description": _told(kind),
            "type": "object",
            "properties": {key: self.of(held) for key, held in hints.items()},
            "required": [key for key in hints if typing.get_origin(full[key]) is not NotRequired],
            "additionalProperties": False,
        }

    def _merged(self, held: Any) -> tuple[Schema, bool]:
        """An object whose entries stand in another one, and whether it always is there."""
        whole = _without_none(held)
        options = typing.get_args(whole) if _is_union(whole) else (whole,)
        found = [
            self.object_of(one) if isinstance(one, type) and issubclass(one, JsonObject)
            else self.of(one)
            for one in options
        ]  # fmt: skip
        properties = {k: v for one in found for k, v in one.get("properties", {}).items()}
        first, *rest = [one.get("required", []) for one in found]
        required = [key for key in first if all(key in other for other in rest)]
        (closed,) = {json.dumps(one["additionalProperties"]) for one in found}
        told = {"properties": properties, "required": required}
        return {**told, "additionalProperties": json.loads(closed)}, whole == held


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (Union, types.UnionType)


def _without_none(kind: Any) -> Any:
    if not _is_union(kind):
        return kind
    rest = tuple(one for one in typing.get_args(kind) if one is not type(None))
    return Union[rest]  # noqa: UP007 - of as many as there are


def _any_of(schemas: list[Schema]) -> Schema:
    if all(set(one) == {"type"} for one in schemas):
        return {"type": [one["type"] for one in schemas]}
    flat: list[Schema] = []
    for one in schemas:
        flat += [option for option in one.get("anyOf", [one]) if option not in flat]
    return {"anyOf": flat}


def _type_of(kind: Any, name: str) -> Any:
    """The annotation of a field or property; a name may have dots."""
    first, _, rest = name.partition(".")
    if rest:
        return _type_of(_without_none(_type_of(kind, first)), rest)
    if _is_union(kind):
        return Union[tuple(_type_of(one, first) for one in typing.get_args(kind))]  # noqa: UP007
    held = inspect.getattr_static(kind, first, None)
    if isinstance(held, property | cached_property):
        function = held.fget if isinstance(held, property) else held.func
        return typing.get_type_hints(function, _names(kind.__module__))["return"]
    return typing.get_type_hints(kind, _names(kind.__module__))[first]


@cache
def _names(module_name: str) -> dict[str, Any]:
    """The names of a module, with those that it imports for its annotations alone."""
    module = sys.modules[module_name]
    found = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                if one.name not in found:
                    found[one.name] = getattr(import_module(node.module), one.name)
    return found


def _told(kind: type) -> str:
    """What a class says of itself, as one line."""
    told = vars(kind).get("__doc__") or ""
    if told.startswith(f"{kind.__name__}("):
        return ""
    plain = " ".join(told.split())
    for ours, of_json in (("None", "null"), ("True", "true"), ("False", "false")):
        plain = re.sub(rf"\b{ours}\b", of_json, plain)
    return plain


def schema_of(command: str) -> Schema:
    """The schema of what `--json` prints of a command."""
    definitions = Definitions()
    whole = definitions.of(REPORTS[command])
    return {
        "$schema": DIALECT,
        "title": f"wtxtgit {command} --json",
        **whole,
        "$defs": dict(sorted(definitions.made.items())),
    }


def file_of(command: str) -> Path:
    return FOLDER / f"{command.replace(' ', '-')}.json"


def spelled(command: str) -> str:
    return json.dumps(schema_of(command), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.json"):
        file.unlink()
    for command in REPORTS:
        file_of(command).write_text(spelled(command))


if __name__ == "__main__":
    main()
