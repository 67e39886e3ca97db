"""Every command that reads a checkpoint takes a detached text: with all payload, some, and none."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

import wtxtgit as api
from tests.cli.command import Command
from tests.kit import text_of
from tests.text.naive_detached import detached
from wtxtgit.errors import LacksPayload
from wtxtgit.git.repository import Repository
from wtxtgit.store.place import store_of

CHANCE = np.random.default_rng(3)
SAME = CHANCE.standard_normal((100, 256), "f4")
CHANGED = CHANCE.standard_normal((100, 256), "f4")
STATES = ("complete", "partly", "absent")


def model(change: float) -> bytes:
    """`same` is in both versions, a row of `changed` is another; `bias` stands in the text."""
    other = CHANGED.copy()
    other[7] += change
    tensors = {"bias": np.arange(8, dtype="f4"), "changed": other, "same": SAME}
    header, place = {}, 0
    for name, values in tensors.items():
        offsets = [place, place := place + values.nbytes]
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": offsets}
    spelled = json.dumps(header).encode()
    content = b"".join(values.tobytes() for values in tensors.values())
    return struct.pack("<Q", len(spelled)) + spelled + content


FILES = {"old": model(0), "new": model(1)}
TEXTS = {name: detached(text_of(file)) for name, file in FILES.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    """A repository for each state of payload: two commits, and the texts of both in files as well.

    Of what is partly at hand, `same` is.
    """
    folder = tmp_path_factory.mktemp("texts")
    first = _repository(folder / STATES[0], folder)
    for state in STATES[1:]:
        shutil.copytree(first.folder, folder / state)
    for state in STATES:
        _keep(folder / state, state)
    return {state: Command(folder / state, folder) for state in STATES}


def _keep(folder: Path, state: str) -> None:
    shared = SAME.tobytes()
    with store_of(Repository.discover(folder)).writing() as writer:
        for _, payload in TEXTS.values():
            for name, chunk in payload.items():
                if state == "complete" or (state == "partly" and chunk in shared):
                    writer.put(bytes.fromhex(name), memoryview(chunk), 4)


def _repository(folder: Path, home: Path) -> Command:
    folder.mkdir()
    here = Command(folder, home)
    git(folder, "init", "-q", "--initial-branch=main")
    attributes = "*.safetensors filter=wtxt-detached diff=wtxt merge=wtxt -text\n"
    (folder / ".gitattributes").write_text(attributes)
    for version, (text, _) in TEXTS.items():
        (folder / f"{version}.wtxt").write_bytes(text)
        (folder / "m.safetensors").write_bytes(text)
        (folder / f"{version}.whole").write_bytes(text_of(FILES[version]))
        git(folder, "add", ".gitattributes", "m.safetensors")
        git(folder, "commit", "-qm", version)
    (folder / "new.safetensors").write_bytes(FILES["new"])
    done = here("delta", "make", "old.whole", "new.whole", "-o", "step.wtxtdelta")
    assert done.code == 0, done
    return here


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@x")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


ALL, EVERY = STATES[:1], STATES
RECIPIENT = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj"
TAKES: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("inspect", "new.wtxt"), EVERY),
    (("inspect", "HEAD:m.safetensors"), EVERY),
    (("cat", "new.wtxt", "bias", "-o", "out"), EVERY),
    (("cat", "HEAD:m.safetensors", "changed", "-o", "out"), ALL),
    (("verify", "new.wtxt"), EVERY),
    (("verify", "HEAD:m.safetensors"), EVERY),
    (("diff", "new.wtxt", "HEAD:m.safetensors"), EVERY),
    (("diff", "old.wtxt", "new.wtxt"), ALL),
    (("diff", "HEAD~1:m.safetensors", "new.safetensors"), ALL),
    (("review", "HEAD~1...HEAD"), EVERY),
    (("restore", "new.wtxt", "-o", "out"), ALL),
    (("restore", "new.wtxt", "-o", "-"), ALL),
    (("emit", "new.wtxt", "-o", "out"), ALL),
    (("emit", "--gen", "3", "new.wtxt", "-o", "out"), ALL),
    (("emit", "--detached", "new.wtxt", "-o", "out"), ALL),
    (("attach", "new.wtxt", "-o", "out"), ALL),
    (("detach", "new.wtxt", "-o", "out"), EVERY),
    (("convert", "new.wtxt", "out.npz"), ALL),
    (("convert", "HEAD:m.safetensors", "out.npz"), ALL),
    (("delta", "make", "old.wtxt", "new.wtxt", "-o", "out"), ALL),
    (("delta", "apply", "old.wtxt", "step.wtxtdelta", "-o", "out"), ALL),
    (("encrypt", "new.wtxt", "-o", "out", "-r", RECIPIENT), ALL),
    (("merge-file", "old.wtxt", "new.wtxt", "old.wtxt", "-o", "out"), EVERY),
    (("recover", "new.wtxt"), ALL),
    (("status",), EVERY),
    (("ls-files",), EVERY),
    (("check", "--staged"), EVERY),
    (("audit",), EVERY),
]
"""What is asked, and how much has to be at hand for it."""


@pytest.mark.parametrize(("words", "states"), TAKES, ids=lambda one: " ".join(one))
def test_a_command(
    made: dict[str, Command], words: tuple[str, ...], states: tuple[str, ...]
) -> None:
    outputs = set()
    for state, here in made.items():
        done = here(*words)
        if state in states:
            assert done.code == 0, (state, done)
            outputs.add(b"".join(one.read_bytes() for one in here.folder.glob("out*")) or state)
        else:
            assert done.code == 1, (state, done)
            assert "wtxtgit fetch" in done.err + done.out.decode(), (state, done)
            assert "Traceback" not in done.err
            # Nothing is begun.
            assert not list(here.folder.glob("out*"))
        for one in here.folder.glob("out*"):
            one.unlink()
    assert len(outputs) in (1, len(states))


def test_what_is_at_hand_is_read_from_python(made: dict[str, Command]) -> None:
    for state, here in made.items():
        with api.open(here.folder / "new.wtxt") as snapshot:
            assert (snapshot["bias"][...] == np.arange(8)).all()
            if state == "absent":
                with pytest.raises(LacksPayload, match="not available here"):
                    snapshot["same"][0]
            else:
                assert (snapshot["same"][...] == SAME).all()
            if state != "complete":
                with pytest.raises(LacksPayload, match="not available here"):
                    snapshot["changed"][0]


def test_how_much_is_at_hand_is_told(made: dict[str, Command]) -> None:
    for state, here in made.items():
        report = json.loads(here("verify", "--json", "new.wtxt").out)
        assert report["files"][0]["payload"] == state
        demanded = here("verify", "--require-payload", "new.wtxt")
        assert (demanded.code, b"payload-missing" in demanded.out) == (
            (0, False) if state == "complete" else (1, True)
        )
        risks = json.loads(here("review", "--json", "HEAD~1...HEAD").out)["artifacts"][0]["flags"]
        told = [risk for risk in risks if risk["risk"] != "unsealed"]
        assert [risk["risk"] for risk in told] == ([] if state == "complete" else ["not-compared"])
        assert all("wtxtgit fetch" in risk["message"] for risk in told)


def test_a_detached_text_is_not_finalized(made: dict[str, Command]) -> None:
    done = made["absent"]("finalize", "new.wtxt")
    assert (done.code, "always has a root" in done.complaint()) == (3, True)
