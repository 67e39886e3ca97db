"""`wtxtgit finalize`: the root of a text that was written before it."""

from __future__ import annotations

import json

from tests.cli.command import Command
from tests.data import FIXTURES
from wtxtgit.checkpoint.finalize import prev_of

MODEL = FIXTURES / "plain" / "mixed_meta_a.safetensors"


def test_the_command(wtxtgit: Command) -> None:
    wtxtgit("emit", MODEL, "--gen", "2", "--pending", "-o", "p.wtxt")
    wtxtgit("emit", MODEL, "--gen", "1", "-o", "before.wtxt")
    wsum = wtxtgit.folder / "p.wtxt.root.wsum"
    assert b"merkle_prev=" + b"0" * 64 in wsum.read_bytes()
    done = wtxtgit("finalize", "p.wtxt", "--prev", "before.wtxt")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(b"p.wtxt.root.wsum: generation 2, merkle_this ")
    before = wtxtgit.folder / "before.wtxt"
    prev = prev_of(str(before), before).hex()
    assert f"merkle_prev={prev} ".encode() in wsum.read_bytes()
    assert wtxtgit("restore", "p.wtxt", "-o", "x").code == 0
    assert (wtxtgit.folder / "x").read_bytes() == MODEL.read_bytes()
    assert b"safetensors" in wtxtgit("inspect", "p.wtxt").out
    told = json.loads(wtxtgit("finalize", "p.wtxt", "--inline", "--json").out)
    assert (told["output"], told["merkle_prev"]) == ("p.wtxt", prev)
    wtxtgit("emit", MODEL, "--gen", "2", "--prev", prev, "-o", "q.wtxt")
    assert (wtxtgit.folder / "p.wtxt").read_bytes() == (wtxtgit.folder / "q.wtxt").read_bytes()
    assert wtxtgit("finalize", "p.wtxt").code == 3
    assert wtxtgit("finalize", "nothing.wtxt").code == 3
    assert wtxtgit("finalize", "q.wtxt", "--prev", "nothing").code == 5
