"""The format's vectors and files of the original writers, for all kinds of tests.

Every loader fails rather than give nothing: a test that is parametrised over
an empty list would pass.
"""

from __future__ import annotations

import json
import random
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent
VECTORS = DATA / "vectors"
FIXTURES = DATA / "fixtures"
GOLDEN = DATA / "golden"
LEDGERS = DATA / "ledgers"
TEXTS = DATA / "texts"


@dataclass(frozen=True)
class Case:
    """A vector: a text, what goes with it, and what a verifier must say."""

    file: str
    valid: bool
    kinds: frozenset[str]
    expected: dict[str, Any]
    wsum_file: str | None
    hmac_key: bytes | None
    public_keys: tuple[bytes, ...]
    folder: Path = VECTORS

    @property
    def path(self) -> Path:
        return self.folder / self.file

    @property
    def text(self) -> bytes:
        return self.path.read_bytes()

    @property
    def wsum(self) -> bytes | None:
        return None if self.wsum_file is None else (self.folder / self.wsum_file).read_bytes()

    @property
    def is_plain(self) -> bool:
        """Whether the text is all that the case needs."""
        return self.wsum_file is None and self.hmac_key is None and not self.public_keys

    @property
    def given(self) -> dict[str, Any]:
        """What `verify` is given beside the text."""
        return {
            "wsum": self.wsum,
            "hmac_key": self.hmac_key,
            "public_keys": list(self.public_keys),
        }


@cache
def cases() -> tuple[Case, ...]:
    """All vectors, and ours at the edges; each file of their folders belongs to one."""
    manifest = VECTORS / "manifest.json"
    found = (
        *_cases(manifest, VECTORS, VECTORS / "valid", VECTORS / "invalid"),
        *_cases(DATA / "texts.json", DATA, TEXTS),
    )
    assert len({case.path.stem for case in found}) == len(found)
    return found


def valid_cases() -> list[Case]:
    found = [case for case in cases() if case.valid]
    assert found
    return found


def invalid_cases() -> list[Case]:
    found = [case for case in cases() if not case.valid]
    assert found
    return found


def case_named(file: str) -> Case:
    return next(case for case in cases() if case.file == file)


@dataclass(frozen=True)
class LedgerCase:
    """A ledger, and what a verifier that knows these keys must say.

    `signed_by` counts the good signatures of each record; None where there
    are no records to be read.
    """

    file: str
    valid: bool
    kinds: frozenset[str]
    public_keys: tuple[bytes, ...]
    signed_by: tuple[int, ...] | None
    path: Path
    note: str

    @property
    def text(self) -> bytes:
        return self.path.read_bytes()


@cache
def ledger_cases() -> tuple[LedgerCase, ...]:
    """All ledgers of the vectors, and ours of moves and deletions."""
    found = (
        *_ledger_cases(VECTORS / "ledger.json", VECTORS / "ledger"),
        *_ledger_cases(DATA / "ledgers.json", LEDGERS),
    )
    assert len({case.path.stem for case in found}) == len(found)
    return found


def ledger_named(name: str) -> LedgerCase:
    return next(case for case in ledger_cases() if case.path.stem == name)


@dataclass(frozen=True)
class SignatureCase:
    """An ed25519 signature, and whether it holds."""

    name: str
    valid: bool
    public_key: bytes
    message: bytes
    signature: bytes
    note: str


@cache
def signature_cases() -> tuple[SignatureCase, ...]:
    """All signatures; the names of two never are the same."""
    records = json.loads((DATA / "ed25519.json").read_bytes())["cases"]
    assert len({record["name"] for record in records}) == len(records) > 50
    return tuple(
        SignatureCase(
            record["name"],
            record["valid"],
            *(bytes.fromhex(record[key]) for key in ("public_key", "message", "signature")),
            record["note"],
        )
        for record in records
    )


@dataclass(frozen=True)
class FileCase:
    """A file, the format that it is stored as, and the SHA-256 of the text that clean makes."""

    name: str
    format: str
    file: bytes
    layout: str
    bytes: int
    sha256: str
    note: str


@cache
def file_cases() -> tuple[FileCase, ...]:
    """All files at the edges; the names of two never are the same."""
    records = json.loads((DATA / "files.json").read_bytes())["cases"]
    assert len({record["name"] for record in records}) == len(records) > 200
    return tuple(FileCase(**{**one, "file": bytes.fromhex(one["file"])}) for one in records)


@dataclass(frozen=True)
class DeltaCase:
    """A base, a delta and what it makes of that base.

    `hmac_key` fits base and target, `ts` and `build` are given for a plain delta.
    """

    name: str
    base: bytes
    delta: bytes
    target: bytes
    plain: bool
    hmac_key: bytes | None
    ts: str | None
    build: str | None


@dataclass(frozen=True)
class EdgeDelta:
    """A delta on a base: the target that it makes, or the kind of the error that refuses it."""

    name: str
    base: bytes
    delta: bytes
    target: bytes | None
    kind: str | None
    hmac_key: bytes | None
    note: str


@cache
def edge_deltas() -> tuple[EdgeDelta, ...]:
    """All deltas at the edges; the names of two never are the same."""
    records = json.loads((DATA / "deltas.json").read_bytes())["cases"]
    assert len({record["name"] for record in records}) == len(records) > 20
    return tuple(
        EdgeDelta(
            record["name"],
            record["base"].encode("ascii"),
            record["delta"].encode("ascii"),
            None if record["target"] is None else record["target"].encode("ascii"),
            record["kind"],
            None if record["hmac_key"] is None else bytes.fromhex(record["hmac_key"]),
            record["note"],
        )
        for record in records
    )


def edge_delta_named(name: str) -> EdgeDelta:
    return next(case for case in edge_deltas() if case.name == name)


@cache
def delta_cases() -> tuple[DeltaCase, ...]:
    """All deltas of the vectors; each file of the folder belongs to one."""
    records = json.loads((VECTORS / "delta.json").read_bytes())["cases"]
    named = [record[key] for record in records for key in ("base", "delta", "target")]
    there = {f"delta/{path.name}" for path in (VECTORS / "delta").iterdir()}
    assert there
    assert set(named) == there
    assert len(named) == len(there)
    return tuple(map(_delta_case, records))


def delta_named(name: str) -> DeltaCase:
    return next(case for case in delta_cases() if case.name == name)


@cache
def golden() -> dict[str, dict[str, Any]]:
    """What clean makes of each file, by path; the key '' is the empty file.

    A path is below `fixtures`, or starts with `golden/`; each file there is
    listed. Some records have the sums of the file's tensors, in its order.
    """
    older, newer = _records(VECTORS / "cut.json"), _records(GOLDEN / "cut.json")
    assert not older.keys() & newer.keys()
    there = {file.relative_to(DATA).as_posix() for file in GOLDEN.glob("*/**/*") if file.is_file()}
    assert there
    assert {path for path in newer if path.startswith("golden/")} == there
    for path, record in newer.items():
        assert sha256(fixture(path)).hexdigest() == record["file_sha256"], path
    return {**older, **newer}


def golden_of(name: str) -> dict[str, dict[str, Any]]:
    """The records of `golden` whose files are cut as this format."""
    found = {path: record for path, record in golden().items() if record["format"] == name}
    assert found
    return found


def one_of_each() -> list[str]:
    """Of each format the largest file of at most 300,000 bytes."""
    found: dict[str, str] = {}
    for path, record in golden().items():
        size, name = len(fixture(path)), record["format"]
        if size <= 300_000 and size >= len(fixture(found.get(name, ""))):
            found[name] = path
    assert len(found) == len({record["format"] for record in golden().values()})
    return list(found.values())


def fixture(path: str) -> bytes:
    """The bytes of a file of `golden`, or of any fixture."""
    return fixture_path(path).read_bytes() if path else b""


def fixture_path(path: str) -> Path:
    return (DATA if path.startswith("golden/") else FIXTURES) / path


@cache
def entries() -> list[dict[str, Any]]:
    """The fixtures' manifest, folders of several files aside."""
    single = [entry for entry in all_entries() if entry["format"] != "AEROSET"]
    assert single
    return single


@cache
def all_entries() -> list[dict[str, Any]]:
    """The fixtures' manifest, folders of several files too."""
    found: list[dict[str, Any]] = json.loads((FIXTURES / "manifest.json").read_bytes())["entries"]
    assert found
    return found


def path_of(entry: dict[str, Any]) -> Path:
    """The file of an entry; of a folder of several files their index."""
    path = FIXTURES / str(entry["file"])
    return path / "model.aeroset.json" if path.is_dir() else path


def name_of(entry: dict[str, Any], tensor: dict[str, Any]) -> str:
    """The name that a tensor of the manifest has here."""
    if "pt_legacy_pickle" in entry["quirks"]:
        # The saved value is the model's own dict: nothing in it is called model.
        return str(tensor["name"]).removeprefix("model.")
    if entry["format"] != "FOLD":
        return str(tensor["name"])
    chunk, *keys = tensor["path"]
    return f"{chunk}/" + ".".join(map(str, keys))


def signers_lines(public_keys: tuple[bytes, ...]) -> bytes:
    """A signers file: `name ssh-ed25519 KEY comment` a line."""
    lines = [
        b"signer%d ssh-ed25519 %b a comment\n" % (number, b64encode(ssh_wire(key)))
        for number, key in enumerate(public_keys)
    ]
    return b"".join(lines)


def ssh_wire(key: bytes, kind: bytes = b"ssh-ed25519") -> bytes:
    """A public key as SSH strings (RFC 4251, section 5)."""
    return len(kind).to_bytes(4, "big") + kind + len(key).to_bytes(4, "big") + key


def seeded(seed: int | str) -> random.Random:
    """Repeatable noise; nothing that has to be secret."""
    return random.Random(seed)  # noqa: S311


def _records(file: Path) -> dict[str, dict[str, Any]]:
    listed: dict[str, dict[str, Any]] = json.loads(file.read_bytes(), object_pairs_hook=_unique)
    assert listed["files"]
    return listed["files"]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs)
    return found


def _cases(manifest: Path, base: Path, *folders: Path) -> list[Case]:
    """The texts of a manifest; each file of its folders belongs to one."""
    found = [_case(record, base) for record in json.loads(manifest.read_bytes())["cases"]]
    named = {case.path for case in found} | {base / c.wsum_file for c in found if c.wsum_file}
    there = {path for folder in folders for path in folder.iterdir()}
    assert there
    assert named == there
    return found


def _case(record: dict[str, Any], base: Path) -> Case:
    key = record.get("hmac_key")
    return Case(
        record["file"],
        record["valid"],
        frozenset(record["kinds"]),
        record,
        record.get("wsum"),
        None if key is None else bytes.fromhex(key),
        tuple(bytes.fromhex(k) for k in record.get("public_keys", ())),
        base,
    )


def _delta_case(record: dict[str, Any]) -> DeltaCase:
    key = record["hmac_key"]
    return DeltaCase(
        record["name"],
        *((VECTORS / record[role]).read_bytes() for role in ("base", "delta", "target")),
        record["form"] == "plain",
        None if key is None else bytes.fromhex(key),
        record.get("ts"),
        record.get("build"),
    )


def _ledger_cases(manifest: Path, folder: Path) -> list[LedgerCase]:
    """The ledgers of a manifest; each file of its folder belongs to one."""
    records = json.loads(manifest.read_bytes())["cases"]
    found = [_ledger_case(record, folder.parent) for record in records]
    there = set(folder.iterdir())
    assert there
    assert {case.path for case in found} == there
    assert len(found) == len(there)
    return found


def _ledger_case(record: dict[str, Any], base: Path) -> LedgerCase:
    counts = record["signed_by"]
    return LedgerCase(
        record["file"],
        record["valid"],
        frozenset(record["kinds"]),
        tuple(bytes.fromhex(key) for key in record["public_keys"]),
        None if counts is None else tuple(counts),
        base / record["file"],
        record["note"],
    )
