"""A checkpoint over a limit is not checked: no command says that it is damaged."""

from __future__ import annotations

import json
import struct

from tests.cli.command import Command

COUNT = 70_000


def many() -> bytes:
    """A file that the safetensors library reads, with more tensors than are read in its size."""
    items = (
        f'"s{n}":{{"dtype":"U8","shape":[1],"data_offsets":[{n},{n + 1}]}}' for n in range(COUNT)
    )
    header = ("{" + ",".join(items) + "}").encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + bytes(COUNT)


def test_verify_says_not_checked(wtxtgit: Command) -> None:
    wtxtgit.folder.joinpath("m.safetensors").write_bytes(many())
    done = wtxtgit("verify", "m.safetensors")
    assert done.code == 5
    first, second = done.out.decode().splitlines()
    assert first == "not checked m.safetensors  (safetensors)"
    assert second.startswith("        limit: byte 8: header lists more items than are allowed")
    report = json.loads(wtxtgit("verify", "m.safetensors", "--json").out)
    assert (report["ok"], report["files"][0]["errors"][0]["kind"]) == (False, "limit")


def test_damage_beside_a_limit_is_a_failure(wtxtgit: Command) -> None:
    wtxtgit.folder.joinpath("m.safetensors").write_bytes(many())
    wtxtgit.folder.joinpath("bad.npy").write_bytes(b"\x93NUMPY")
    assert wtxtgit("verify", "m.safetensors", "bad.npy").code == 1


def test_recover_and_convert_do_not_call_it_lost(wtxtgit: Command) -> None:
    wtxtgit.folder.joinpath("m.safetensors").write_bytes(many())
    done = wtxtgit("recover", "m.safetensors", "-o", "out.npz")
    assert done.code == 5
    assert b"lost" not in done.out
    assert done.out.endswith(b"m.safetensors: not read: over a limit\n")
    assert wtxtgit("convert", "m.safetensors", "out.npz").code == 5
    assert wtxtgit.names() == ["m.safetensors"]
