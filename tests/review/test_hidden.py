"""What somebody may have changed in a file beside its tensors: a review names and flags it.

Each pair of files is in two variants: as it is, and under a change of the weights, since whatever
is told only of files that differ in nothing else can be hidden so.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.containers import aero_files as aero
from tests.containers import fold_files as fold
from tests.containers import samples, torch_files
from tests.containers import test_mlcp_shards as mlcp_sets
from tests.containers.aero_files import Chunk
from tests.data import FIXTURES
from tests.kit import Repo, text_of
from tests.review.repos import reviewed, reviews
from wtxtgit.containers.fold import read as fold_read
from wtxtgit.report.review import Risk

pytestmark = pytest.mark.slow

OTHER_WEIGHTS = bytes(7 * n % 251 for n in range(400))


SECOND = aero.entry("b", [5, 10], 200, 200)


def aero_file(
    weights: bytes = aero.WEIGHTS,
    *more: Chunk,
    shard: dict[str, Any] | None = None,
    entries: list[dict[str, Any]] | None = None,
    index: Callable[[bytes], bytes] = bytes,
    **header: Any,
) -> bytes:
    """A file of two tensors; `index` makes other bytes of those of the index."""
    tidx = aero.tidx(*(entries or [aero.entry("a", [50], 0, 200), SECOND]))
    tidx = replace(tidx, content=index(tidx.content))
    chunks = [tidx, aero.shard(weights, **(shard or {})), *more]
    return aero.file(chunks, **header)


UNKNOWN = Chunk(b"XXXX", b"x", b"bytes")


def hashed(weights: bytes, of: bytes) -> list[dict[str, Any]]:
    """Tensors of which the second has the hash of other bytes."""
    digests = [aero.digest(weights[:200]).hex(), aero.digest(of[200:]).hex()]
    return [
        aero.entry("a", [50], 0, 200, hash_b3=digests[0]),
        aero.entry("b", [5, 10], 200, 200, hash_b3=digests[1]),
    ]


def fold_file(
    noise: bytes = fold.NOISE,
    notes: bytes = b'{"a":1}',
    *more: tuple[str, bytes, bytes],
    licence: str = "",
    blanks: int = 0,
    beyond: int = 0,
    **options: Any,
) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"license": licence}} if licence else {}
    header["w"] = samples.tensor_item("F32", [125, 2], 0, 1000 + beyond)
    spelled = json.dumps(header).encode() + b" " * blanks
    model = len(spelled).to_bytes(8, "little") + spelled + noise
    return fold.built(("model", b"STEN", model), ("notes", b"JSON", notes), *more, **options)


Made = Callable[[bool], bytes]
"""Makes a file, with other weights if so asked."""


def of_aero(*more: Chunk, **options: Any) -> Made:
    return lambda other: aero_file(OTHER_WEIGHTS if other else aero.WEIGHTS, *more, **options)


def other_noise(other: bool) -> bytes:
    return bytes(reversed(fold.NOISE)) if other else fold.NOISE


def of_fold(
    edit: Callable[[dict[str, Any]], object] | None = None,
    notes: bytes = b'{"a":1}',
    *more: tuple[str, bytes, bytes],
) -> Made:
    def made(other: bool) -> bytes:
        file = fold_file(other_noise(other), notes, *more)
        return fold.edited(file, edit) if edit else file

    return made


def named(second: str) -> Made:
    """A file whose second tensor has another name."""
    entries = [aero.entry("a", [50], 0, 200), aero.entry(second, [5, 10], 200, 200)]
    return of_aero(entries=entries)


def put(made: Made, offset: int, layout: str, value: object) -> Made:
    return lambda other: aero.changed(made(other), offset, layout, value)


def paged(weights: bytes) -> Chunk:
    return aero.phsh("weights.shard0", 128, aero.pages(weights, 128))


def appended(made: Made, content: bytes) -> Made:
    return lambda other: made(other) + content


def respelled(made: Made) -> Made:
    """The file with spaces in its index."""

    def spaced(other: bool) -> bytes:
        data = made(other)
        start = fold_read.read(memoryview(data)).index_start
        raw = json.dumps(fold.index_of(data)).encode()
        return struct.pack(">8sIQQ", b"FOLDv1\0\0", 28, start, len(raw)) + data[28:start] + raw

    return spaced


def in_zstd(level: int) -> Made:
    """A JSON chunk in a frame of this level, after the weights."""
    notes = json.dumps({str(n): n * n % 251 for n in range(2000)}, separators=(",", ":")).encode()

    def made(other: bool) -> bytes:
        chunks = ("model", b"NPZ0", other_noise(other)), ("notes", b"JSON", notes)
        return fold.built(*chunks, compression="zstd", level=level)

    return made


def mjsn(content: bytes) -> Chunk:
    return Chunk(b"MJSN", b"meta.json", content)


def turned(fields: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(fields.items()))


def wide(raw: bytes) -> bytes:
    """MessagePack whose first 50 takes two bytes."""
    at = raw.index(b"\x91\x32")
    return raw[: at + 1] + b"\xcc\x32" + raw[at + 2 :]


def in_npz(comment: bytes = b"", **members: bytes) -> Made:
    """An npz file in a chunk, with further members."""

    def made(other: bool) -> bytes:
        file = io.BytesIO()
        np.savez(file, w=np.full(60, float(other)))
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = comment
            for name, held in members.items():
                archive.writestr(name, held)
        return fold.built(("model", b"NPZ0", file.getvalue()))

    return made


def in_torch(value: str) -> Made:
    """A torch file in a chunk, with a text beside its tensor."""

    def made(other: bool) -> bytes:
        content = torch_files.named(w=torch_files.vector("0", 50), v=torch_files.text(value))
        storage = np.full(50, float(other), "f4").tobytes()
        return fold.built(("model", b"TSAV", torch_files.archive(content, {"0": storage})))

    return made


TURNED = [aero.entry("b", [5, 10], 200, 200), aero.entry("a", [50], 0, 200)]


def apart(between: int) -> Made:
    """A file with zeros between its tensors."""
    start = 200 + between
    entries = [aero.entry("a", [50], 0, 200), aero.entry("b", [5, 10], start, 200)]

    def made(other: bool) -> bytes:
        weights = OTHER_WEIGHTS if other else aero.WEIGHTS
        return aero_file(weights[:200] + bytes(between) + weights[200:], entries=entries)

    return made


def shards(numbers: tuple[int, int]) -> Made:
    """Two tensors, each at the start of its shard, and a third one in the first shard."""
    places = [("a", 0), ("b", numbers[0]), ("c", numbers[1])]
    entries = [
        aero.entry(name, [50], 0 if name == "a" else 200, 200, shard_id=number)
        for name, number in places
    ]

    def made(other: bool) -> bytes:
        weights = OTHER_WEIGHTS if other else aero.WEIGHTS
        return aero_file(weights, aero.shard(weights, 1), entries=entries)

    return made


def of_mlcp(metadata: object, body: bytes = b"") -> Made:
    """A file of one tensor with its bytes after its record."""

    def made(other: bool) -> bytes:
        tensor = bytes([other, *range(7)])
        record = samples.mlcp_record(b"w", "Float32", [2], 8)
        return samples.mlcp(metadata, samples.count(1) + record + tensor + body)

    return made


def mlcp_shards(*names: bytes) -> Made:
    """Tensors of which each shard lists as many as its string is long."""

    def made(other: bool) -> bytes:
        body = b""
        for listed in names:
            body += samples.count(len(listed))
            for n in listed:
                tensor = bytes([other, n, 0, 0])
                body += samples.mlcp_record(bytes([n]), "Float32", [1], 4) + tensor
        return samples.mlcp({"shards": [{}] * len(names)}, body)

    return made


def told_shard(checksum: str) -> dict[str, Any]:
    return {"shards": [{"filePath": "shard_0.shard", "checksum": checksum}]}


def listing(more: dict[str, Any]) -> dict[str, Any]:
    """Metadata that list the tensor of `of_mlcp`."""
    item = {"name": "w", "shape": [2], "dataType": 1, "offset": 0, "size": 8, **more}
    return {"shards": [{"tensors": [item]}]}


def longer(made: Made) -> Made:
    """The file with the length of its version, 5, in two bytes."""
    return lambda other: made(other).replace(b"PCLM\5", b"PCLM\x85\0", 1)


def of_taridx(*stems: bytes) -> Made:
    """Rows of another size, and stems whose hashes collide (so it says)."""

    def made(other: bool) -> bytes:
        rows = struct.pack("<HQQHIQ", 0, 0, 1 + other, 0, 0, 7)
        return samples.taridx(b"txt", b"\n".join(stems), rows, n_crash=len(stems))

    return made


CASES: dict[str, tuple[Made, Made, set[Risk]]] = {
    "reserved bytes of the header.aero": (
        of_aero(), of_aero(reserved=b"secret"), {Risk.DAMAGED},
    ),
    "reserved bytes of the table of contents.aero": (
        of_aero(), put(of_aero(), 100, "<I", 7), {Risk.DAMAGED},
    ),
    "a chunk's reserved field.aero": (of_aero(), of_aero(shard={"reserved": 7}), {Risk.DAMAGED}),
    "flags of the file.aero": (of_aero(), of_aero(flags=5), {Risk.DAMAGED}),
    "a stale hash.aero": (of_aero(), of_aero(shard={"digest": bytes(range(32))}), {Risk.DAMAGED}),
    "a hash that is gone.aero": (of_aero(), of_aero(shard={"digest": bytes(32)}), {Risk.PART}),
    "a tensor's stale hash.aero": (
        lambda _: aero_file(entries=hashed(aero.WEIGHTS, aero.WEIGHTS)),
        lambda _: aero_file(OTHER_WEIGHTS, entries=hashed(OTHER_WEIGHTS, aero.WEIGHTS)),
        {Risk.DAMAGED},
    ),
    "stale pages.aero": (
        of_aero(paged(aero.WEIGHTS)), of_aero(paged(bytes(400))), {Risk.DAMAGED},
    ),
    "two tensors of one name.aero": (
        of_aero(),
        of_aero(entries=[aero.entry("a", [50], 0, 200), aero.entry("b", [5, 10], 200, 200),
                         aero.entry("b", [5, 10], 0, 200)]),
        {Risk.DAMAGED},
    ),
    "tensors that share bytes.aero": (
        of_aero(),
        of_aero(entries=[aero.entry("a", [50], 0, 200), aero.entry("b", [5, 10], 0, 200)]),
        {Risk.PART, Risk.HIDDEN},
    ),
    "an unknown chunk.aero": (of_aero(), of_aero(UNKNOWN), {Risk.PART}),
    "another unknown chunk.aero": (
        of_aero(UNKNOWN), of_aero(Chunk(b"XXXX", b"x", b"OTHER")), {Risk.PART},
    ),
    "a shard of which no tensor is.aero": (
        of_aero(), of_aero(aero.shard(b"secret", 7)), {Risk.PART},
    ),
    "a second index.aero": (
        of_aero(), of_aero(aero.tidx(aero.entry("a", [50], 200, 200))), {Risk.PART},
    ),
    "flags of a chunk.aero": (of_aero(), of_aero(shard={"flags": 0x12}), {Risk.METADATA}),
    "a name that turns the text round.aero": (of_aero(), named("b\u202ea"), {Risk.NAME}),
    "a name with a control character.aero": (of_aero(), named("b\x1b[2K"), {Risk.NAME}),
    "a name that looks the same.aero": (of_aero(), named("\u0430"), {Risk.NAME, Risk.REMOVED}),
    "another name.aero": (of_aero(), named("c"), {Risk.REMOVED}),
    "a key of a tensor.aero": (
        of_aero(),
        of_aero(entries=[aero.entry("a", [50], 0, 200, evil="x"), aero.entry("b", [50], 200, 200)]),
        {Risk.METADATA},
    ),
    "hashes of pages that are gone.aero": (
        lambda _: aero_file(aero.WEIGHTS, paged(aero.WEIGHTS)), of_aero(), {Risk.METADATA},
    ),
    "a key of the index.fold": (
        of_fold(), of_fold(lambda index: index.update(evil=1)), {Risk.METADATA},
    ),
    "a chunk with a key twice.fold": (of_fold(), of_fold(None, b'{"a":5,"a":1}'), {Risk.PART}),
    "an unknown chunk.fold": (
        of_fold(), of_fold(None, b'{"a":1}', ("x", b"EVIL", b"x")), {Risk.PART},
    ),
    "metadata of a chunk.fold": (
        of_fold(), lambda other: fold_file(bytes(1000) if other else fold.NOISE, licence="none"),
        {Risk.METADATA},
    ),
    "a stale sha256.fold": (
        of_fold(), of_fold(lambda index: index["chunks"][0].update(sha256="0" * 64)),
        {Risk.DAMAGED},
    ),
    "the order of the tensors.aero": (of_aero(), of_aero(entries=TURNED), {Risk.PART}),
    "zeros at the end.aero": (of_aero(), appended(of_aero(), bytes(64)), {Risk.HIDDEN}),
    "zeros at the end.fold": (of_fold(), appended(of_fold(), bytes(64)), {Risk.HIDDEN}),
    "zeros between tensors.aero": (apart(8), apart(24), {Risk.HIDDEN}),
    "bytes after the names.aero": (of_aero(), put(of_aero(), 295, "B", 7), {Risk.HIDDEN}),
    "another shard.aero": (shards((0, 1)), shards((1, 0)), {Risk.PART}),
    "a further key of a chunk.fold": (
        of_fold(), of_fold(lambda index: index["chunks"][1].update(evil=1)), {Risk.METADATA},
    ),
    "what is no word of encryption.fold": (
        of_fold(), of_fold(lambda index: index["chunks"][1].update(encrypted=0)), {Risk.METADATA},
    ),
    "a key that only encrypted chunks have.fold": (
        of_fold(), of_fold(lambda index: index["chunks"][1].update(nonce_hex="00" * 12)),
        {Risk.METADATA},
    ),
    "another shard.checkpoint": (
        mlcp_shards(b"ab", b"c"), mlcp_shards(b"a", b"bc"), {Risk.PART},
    ),
    "a checksum that is gone.checkpoint": (
        of_mlcp(told_shard("sha256:" + "a" * 64)), of_mlcp(told_shard("none")), {Risk.METADATA},
    ),
    "stems of which others have the hash.taridx": (
        of_taridx(b"a", b"b"), of_taridx(b"a", b"c"), {Risk.PART},
    ),
    "the order of keys in JSON.fold": (
        of_fold(None, b'{"a":1,"b":2}'), of_fold(None, b'{"b":2,"a":1}'), {Risk.PART},
    ),
    "spaces in JSON.fold": (
        of_fold(None, b'{"a":1,"b":2}'), of_fold(None, b'{"a":1, "b":2}'), {Risk.PART},
    ),
    "spaces after JSON.fold": (
        of_fold(None, b'{"a":1}'), of_fold(None, b'{"a":1}' + 9 * b" "), {Risk.PART},
    ),
    "escapes in JSON.fold": (
        of_fold(None, b'{"a":"b"}'), of_fold(None, b'{"a":"\\u0062"}'), {Risk.PART},
    ),
    "the form of a number.fold": (
        of_fold(None, b'{"a":0.5}'), of_fold(None, b'{"a":0.500}'), {Risk.PART},
    ),
    "spaces where values change, too.fold": (
        of_fold(None, b'{"a":"b"}'), of_fold(None, b'{"a" : "c"}'), {Risk.PART, Risk.METADATA},
    ),
    "the spelling of the index.fold": (of_fold(), respelled(of_fold()), {Risk.PART}),
    "the header of tensors in a chunk.fold": (
        of_fold(), lambda other: fold_file(other_noise(other), blanks=16), {Risk.PART},
    ),
    "another compression of a chunk.fold": (
        in_zstd(1), in_zstd(19), {Risk.PART},
    ),
    "the header of tensors in a compressed chunk.fold": (
        lambda other: fold_file(other_noise(other), compression="zstd"),
        lambda other: fold_file(other_noise(other), blanks=64, compression="zstd"),
        {Risk.PART},
    ),
    "a member of a file in a chunk.fold": (
        in_npz(), in_npz(**{"a note": b"x"}), {Risk.PART},
    ),
    "bytes in a file in a chunk.fold": (in_npz(), in_npz(comment=b"x"), {Risk.HIDDEN}),
    "a value of a pickle in a chunk.fold": (in_torch("a"), in_torch("b"), {Risk.METADATA}),
    "the order of keys in JSON.aero": (
        of_aero(mjsn(b'{"a": 1, "b": 2}')), of_aero(mjsn(b'{"b": 2, "a": 1}')), {Risk.PART},
    ),
    "the order of keys of a tensor.aero": (
        of_aero(), of_aero(entries=[turned(aero.entry("a", [50], 0, 200)), SECOND]), {Risk.PART},
    ),
    "the width of a number.aero": (of_aero(), of_aero(index=wide), {Risk.PART}),
    "what follows the index.aero": (of_aero(), of_aero(index=lambda raw: raw + b"\0"), {Risk.PART}),
    "the spelling of the metadata.checkpoint": (
        of_mlcp(b'{"shards": [{}], "format": null}'),
        of_mlcp(b'{"shards": [{}],  "format": null}'),
        {Risk.PART},
    ),
    "a key of a map that is no text.aero": (
        of_aero(), of_aero(index=lambda raw: b"\x82" + raw[1:] + b"\x81\1\2\3"), {Risk.METADATA},
    ),
    "a number that fits no single float.aero": (
        of_aero(entries=[aero.entry("a", [50], 0, 200, evil=1e300), SECOND]),
        of_aero(entries=[aero.entry("a", [50], 0, 200, evil=2e300), SECOND]),
        {Risk.METADATA},
    ),
    "a number for a tensor.aero": (
        of_aero(), of_aero(entries=[aero.entry("a", [50], 0, 200, evil=1), SECOND]),
        {Risk.METADATA},
    ),
    "a byte beyond a tensor's items.fold": (
        of_fold(), lambda other: fold_file(other_noise(other) + b"x", beyond=1),
        {Risk.HIDDEN, Risk.PART},
    ),
    "a space after JSON.aero": (
        of_aero(mjsn(b'{"a": 1}')), of_aero(mjsn(b'{"a": 1} ')), {Risk.PART},
    ),
    "a key of a listed tensor.checkpoint": (
        of_mlcp(listing({})), of_mlcp(listing({"evil": 1})), {Risk.METADATA},
    ),
    "a list that is gone.checkpoint": (
        of_mlcp({"shards": [{}], "tensorInfos": []}), of_mlcp({"shards": [{}]}), {Risk.METADATA},
    ),
    "a length in more bytes.checkpoint": (
        of_mlcp({"shards": [{}]}), longer(of_mlcp({"shards": [{}]})), {Risk.PART},
    ),
    "another root of hashes.fold": (
        of_fold(), of_fold(lambda index: index.update(merkle_root="0" * 64)), {Risk.DAMAGED},
    ),
}  # fmt: skip
"""By name and ending: the file before, the file after, and the risks that it has at least."""


def variants() -> dict[str, tuple[bytes, bytes, set[Risk]]]:
    files = {}
    for name, (before, after, wanted) in CASES.items():
        files[name] = before(False), after(False), wanted
        files[f"under other weights, {name}"] = before(False), after(True), wanted
    return files


def mlcp_file(*tensors: tuple[bytes, int]) -> bytes:
    """Tensors of f32 with their bytes after each record, by name and number of items."""
    body = samples.count(len(tensors))
    for name, items in tensors:
        body += samples.mlcp_record(name, "Float32", [items], 4 * items) + name[:1] * (4 * items)
    return samples.mlcp({"shards": [{}]}, body)


HONEST: dict[str, tuple[bytes, bytes]] = {
    "a.checkpoint": (mlcp_file((b"a", 2)), mlcp_file((b"a", 2), (b"b", 3))),
    "a.aero": (
        of_aero(paged(aero.WEIGHTS), ihsh=True)(False),
        of_aero(paged(OTHER_WEIGHTS), ihsh=True, uuid=bytes(16))(True),
    ),
    "a.fold": (of_fold()(False), of_fold(notes=b'{"a":2}')(True)),
}
"""Files that a writer saved again, with other weights."""


def test_each_is_flagged(repo: Repo) -> None:
    cases = variants()
    found = reviews(repo, {name: (before, after) for name, (before, after, _) in cases.items()})
    missed = {
        name: wanted - {flag.risk for flag in found[name].flags}
        for name, (_, _, wanted) in cases.items()
    }
    assert {name: risks for name, risks in missed.items() if risks} == {}


def test_what_a_writer_saves_again_is_not(repo: Repo) -> None:
    found = reviews(repo, HONEST)
    assert {name: one.flags for name, one in found.items()} == dict.fromkeys(HONEST, ())


def test_rows_of_an_index_of_tars(repo: Repo) -> None:
    """Also where the number of rows, which the header has, changes."""
    folder = FIXTURES / "taridx"
    before, after = (next((folder / name).glob("*.taridx")) for name in ("pair_v1", "pair_v2"))
    (one,) = reviews(repo, {"a.taridx": (before.read_bytes(), after.read_bytes())}).values()
    assert [(flag.risk, flag.message) for flag in one.flags] == [
        (Risk.PART, "part rows: changed bytes, 960 before, 1344 after")
    ]


def test_reserved_bytes_of_an_index_of_tars(repo: Repo) -> None:
    """Under other rows."""
    folder = FIXTURES / "taridx"
    before, after = (next((folder / name).glob("*.taridx")) for name in ("pair_v1", "pair_v2"))
    edited = aero.changed(after.read_bytes(), 60, "B", 1)
    (one,) = reviews(repo, {"a.taridx": (before.read_bytes(), edited)}).values()
    assert "wtxtgit verify: byte 57: reserved bytes are not 0" in [
        flag.message for flag in one.flags
    ]


def test_a_checksum_that_each_save_sets_anew_is_shown(repo: Repo) -> None:
    sides = (of_mlcp(told_shard("sha256:" + digit * 64)) for digit in "ab")
    before, after = (made(n > 0) for n, made in enumerate(sides))
    (one,) = reviews(repo, {"a.checkpoint": (before, after)}).values()
    assert one.diff is not None
    assert [change.path for change in one.diff.metadata] == ["/metadata/shards/0/checksum"]
    assert one.flags == ()


def of_set(files: dict[str, bytes], edited: dict[str, bytes]) -> dict[str, tuple[bytes, bytes]]:
    return {f"set/{name}": (content, edited[name]) for name, content in files.items()}


def test_keys_of_the_files_of_an_aeroset(repo: Repo) -> None:
    files = {file.name: file.read_bytes() for file in (FIXTURES / "aero/aeroset_multi_a").iterdir()}
    index = json.loads(files["model.aeroset.json"])
    index["parts"][0]["evil"] = 1
    edited = {**files, "model.aeroset.json": json.dumps(index).encode()}
    one = reviews(repo, of_set(files, edited))["set/model.aeroset.json"]
    path = index["parts"][0]["path"]
    messages = {flag.risk: flag.message for flag in one.flags}
    assert messages[Risk.METADATA] == f"1 value: added /further/{path}/evil"


def test_keys_of_tensors_of_an_mlcp_in_shards(repo: Repo) -> None:
    files = mlcp_sets.made()
    edited = mlcp_sets.edited(files, lambda index: index["shards"][0]["tensors"][0].update(evil=1))
    one = reviews(repo, of_set(files, edited))[f"set/{mlcp_sets.INDEX}"]
    assert Risk.METADATA in {flag.risk for flag in one.flags}


def test_the_spelling_of_the_index_of_a_set(repo: Repo) -> None:
    files = mlcp_sets.made()
    index = files[mlcp_sets.INDEX]
    edited = {**files, mlcp_sets.INDEX: index.replace(b": ", b":  ", 1)}
    one = reviews(repo, of_set(files, edited))[f"set/{mlcp_sets.INDEX}"]
    assert [(flag.risk, flag.message) for flag in one.flags] == [
        (Risk.PART, "part index: values are spelled in another way")
    ]


def test_a_problem_that_the_base_had_is_not_told_again(repo: Repo) -> None:
    stale = {"digest": bytes(range(32))}
    made = of_aero(shard=stale)
    (one,) = reviews(repo, {"a.aero": (made(False), made(True))}).values()
    assert one.flags == ()


def test_a_new_file_with_a_stale_hash(repo: Repo) -> None:
    repo.track("*")
    repo.commit("base")
    repo.git("checkout", "-q", "-b", "topic")
    repo.write("a.aero", text_of(of_aero(shard={"digest": bytes(range(32))})(False)))
    repo.add()
    repo.commit("new")
    (one,) = (one for one in reviewed(repo).artifacts if one.path == b"a.aero")
    (flag,) = (flag for flag in one.flags if flag.risk is Risk.DAMAGED)
    assert flag.message.startswith('wtxtgit verify: chunk "weights.shard0", byte ')
