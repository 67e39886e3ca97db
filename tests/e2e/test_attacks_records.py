"""Attacks on ledgers: records that nobody made, were made for something else, or are gone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import hostile
from tests.e2e.hostile import (
    NEW,
    NEW_LEDGER,
    REWRITTEN,
    SECOND,
    UNTRUSTED,
    appended,
    assert_refused,
    at_once,
    commit_of,
    joined,
    record,
    records,
    shortened,
    stage,
    unstage,
)
from tests.e2e.sealed import LEDGER, MODEL, OTHER_LEDGER, ROOT, SIGNERS_LEDGER, Sealed, text

pytestmark = pytest.mark.slow

BROKEN = ("bad-record", REWRITTEN, "ledger-removed", "unsealed", *UNTRUSTED)
Change = Callable[[bytes], bytes]


@pytest.fixture
def long(base: Sealed) -> Sealed:
    """Four generations."""
    for number in (3.0, 4.0):
        base.generation(number)
    base.git("tag", "long")
    hostile.honest(base)
    return base


def rows(ledger: bytes, order: list[int]) -> bytes:
    """Its records in another order."""
    head, made = records(ledger)
    return joined(head, [made[number] for number in order])


def without_signatures(ledger: bytes) -> bytes:
    return re.sub(rb"sign ed25519=\S+ keyid=\S+\n", b"", ledger)


class TestAppended:
    """Without a trusted key: a generation more."""

    @pytest.mark.parametrize("who", [(), ("mallory",), ("bob", "mallory")], ids=str)
    def test_by_nobody_who_is_trusted(self, base: Sealed, who: tuple[str, ...]) -> None:
        stage(base, MODEL, text(66.0))
        stage(base, LEDGER, appended(base.blob(LEDGER), text(66.0), *who))
        assert_refused(base, at_once(base), *UNTRUSTED, was=SECOND)

    def test_two_of_which_the_last_is_of_what_was_sealed(self, base: Sealed) -> None:
        """Nobody signed either; the content is the honest one."""
        made = appended(base.blob(LEDGER), text(66.0), "mallory")
        stage(base, LEDGER, appended(made, text(2.0)))
        assert_refused(base, at_once(base), *UNTRUSTED, was=SECOND)

    def test_the_last_one_once_more(self, long: Sealed) -> None:
        head, made = records(long.blob(LEDGER))
        stage(long, LEDGER, joined(head, [*made, made[-1]]))
        assert_refused(long, at_once(long), "bad-record", was="long")

    def test_an_old_one_once_more(self, long: Sealed) -> None:
        """With its content: a rollback that its signer signed, at another place of the chain."""
        head, made = records(long.blob(LEDGER))
        stage(long, LEDGER, joined(head, [*made, made[1]]))
        stage(long, MODEL, text(2.0))
        assert_refused(long, at_once(long), "bad-record", was="long")

    def test_an_old_one_for_the_end_of_the_chain(self, long: Sealed) -> None:
        """Its hashes made anew, its signature as it was."""
        made = record(long.blob(LEDGER), text(2.0))
        old = records(long.blob(LEDGER))[1][1]
        stage(long, LEDGER, long.blob(LEDGER) + b"".join((*made, old[-1])))
        stage(long, MODEL, text(2.0))
        assert_refused(long, at_once(long), "bad-signature", was="long")

    def test_one_of_another_ledger(self, base: Sealed) -> None:
        """The same signer's record for another checkpoint, after hashes of this one."""
        base.generation(3.0, name="other.safetensors")
        main = base.head
        theirs = records(base.blob(OTHER_LEDGER))[1][-1]
        head, made = records(base.blob(LEDGER))
        stage(base, LEDGER, joined(head, [*made, theirs]))
        stage(base, MODEL, text(3.0))
        assert_refused(base, at_once(base), "bad-record", was=main)

    def test_by_a_key_that_signs_something_else(self, base: Sealed) -> None:
        """A signature of a trusted key over the ledger's bytes without its first line."""
        ledger = base.blob(LEDGER)
        lines = record(ledger, text(66.0))
        signed = hostile.signatures(b"".join(lines), "alice")
        stage(base, LEDGER, ledger + b"".join((*lines, *signed)))
        stage(base, MODEL, text(66.0))
        assert_refused(base, at_once(base), "bad-signature", was=SECOND)

    def test_a_generation_that_jumps_and_goes_back(self, base: Sealed) -> None:
        """A signer's generation 999999, after which mallory's 3 would be a lower one."""
        made = appended(base.blob(LEDGER), text(3.0), "alice", gen=999_999)
        stage(base, LEDGER, made)
        stage(base, MODEL, text(3.0))
        main = at_once(base)
        hostile.honest(base)
        stage(base, LEDGER, appended(made, text(4.0), "alice", gen=3))
        stage(base, MODEL, text(4.0))
        assert_refused(base, at_once(base), "bad-record", was=main)

    def test_its_content_is_another(self, base: Sealed) -> None:
        """A generation that was sealed and never came in, with a model of the attacker's."""
        base.branch("pr")
        base.generation(3.0)
        base.switch("main")
        stage(base, LEDGER, base.blob(LEDGER, "pr"))
        stage(base, MODEL, text(66.0))
        assert_refused(base, at_once(base), "content-mismatch", was=SECOND)

    def test_the_record_says_another_algorithm(self, base: Sealed) -> None:
        """Lines that a lenient reader passes over."""
        ledger = base.blob(LEDGER)
        for line in (b"WSUM 2 sha1=" + b"0" * 40 + b"\n", b"sign none=\n", b"# x\n", b"\n"):
            stage(base, LEDGER, ledger + line)
            assert_refused(base, commit_of(base, SECOND), "bad-record", was=SECOND)


class TestTaken:
    """Without a key: records or signatures are gone, or changed."""

    @pytest.mark.parametrize("keep", [1, 2, 3])
    def test_the_last_ones(self, long: Sealed, keep: int) -> None:
        """With the content that was sealed by what is left."""
        stage(long, LEDGER, shortened(long.blob(LEDGER), keep))
        stage(long, MODEL, text(float(keep)))
        assert_refused(long, at_once(long), REWRITTEN, was="long")

    @pytest.mark.parametrize("order", [[0, 2, 1, 3], [0, 1, 3], [1, 2, 3], [0, 1, 1, 2, 3]])
    def test_reordered_or_left_out(self, long: Sealed, order: list[int]) -> None:
        stage(long, LEDGER, rows(long.blob(LEDGER), order))
        assert_refused(long, at_once(long), "bad-record", REWRITTEN, was="long")

    def test_all_signatures(self, long: Sealed) -> None:
        stage(long, LEDGER, without_signatures(long.blob(LEDGER)))
        assert_refused(long, at_once(long), REWRITTEN, *UNTRUSTED, was="long")

    def test_all_signatures_but_a_strangers(self, long: Sealed) -> None:
        head, made = records(without_signatures(long.blob(LEDGER)))
        signed = [[*row, *hostile.signatures(head + b"".join(row), "mallory")] for row in made]
        stage(long, LEDGER, joined(head, signed))
        assert_refused(long, at_once(long), REWRITTEN, *UNTRUSTED, was="long")

    def test_the_signature_of_an_old_one(self, long: Sealed) -> None:
        head, made = records(long.blob(LEDGER))
        stage(long, LEDGER, joined(head, [made[0], made[1][:-1], *made[2:]]))
        assert_refused(long, at_once(long), REWRITTEN, *UNTRUSTED, was="long")

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (b" host=any ", b" host=evil "),
            (b" schema=safetensors/v1 ", b" schema=opaque/v1 "),
            (b" build=none ", b" build=release "),
            (b" gen=000004 ", b" gen=000005 "),
            (b"keyid=", b"keyid=0"),
            (b"sha256_all=", b"sha256_all=A"),
            (b"WSUM 1 ", b"WSUM  1 "),
            (b"\n", b"\r\n"),
        ],
        ids=["host", "schema", "build", "gen", "keyid", "case", "space", "crlf"],
    )
    def test_words_of_it(self, long: Sealed, old: bytes, new: bytes) -> None:
        """What no hash of the chain covers is signed; what is misspelled is refused."""
        ledger = long.blob(LEDGER)
        assert old in ledger
        stage(long, LEDGER, ledger.replace(old, new))
        assert_refused(long, at_once(long), *BROKEN, was="long")

    @pytest.mark.parametrize(
        "change",
        [
            lambda ledger: re.sub(rb"repo=[0-9a-f]{64}", b"repo=" + b"0" * 64, ledger),
            lambda ledger: re.sub(rb"repo=[0-9a-f]{64}", b"repo=" + b"1" * 64, ledger),
            lambda ledger: ledger.replace(b"path=model", b"path=other", 1),
            lambda ledger: ledger.replace(b"WLEDGER 1 ", b"WLEDGER 2 ", 1),
            lambda ledger: b"\xef\xbb\xbf" + ledger,
            lambda ledger: ledger[:-1],
            lambda _: b"",
            lambda ledger: ledger.splitlines(keepends=True)[0],
            lambda _: b"a note\n",
            lambda ledger: ledger + b"x" * 20_000 + b"\n",
            lambda ledger: ledger + b"\0",
        ],
        ids=[
            "no-repo",
            "another-repo",
            "path",
            "version",
            "bom",
            "cut",
            "empty",
            "head",
            "note",
            "line-limit",
            "nul",
        ],
    )
    def test_broken(self, long: Sealed, change: Change) -> None:
        """A ledger that does not read is neither passed over nor begun anew."""
        stage(long, LEDGER, change(long.blob(LEDGER)))
        bad = at_once(long)
        assert_refused(long, bad, *BROKEN, was="long")
        # With a content of the attacker's.
        stage(long, MODEL, text(66.0))
        assert_refused(long, at_once(long), *BROKEN, "content-mismatch", was=bad)

    def test_broken_and_mended_shorter(self, long: Sealed) -> None:
        stage(long, LEDGER, b"WLEDGER 1\n")
        broken = at_once(long)
        stage(long, LEDGER, shortened(long.blob(LEDGER, "long"), 2))
        stage(long, MODEL, text(2.0))
        mended = at_once(long)
        assert_refused(long, mended, REWRITTEN, was="long")
        assert_refused(long, mended, REWRITTEN, was=broken)

    def test_broken_and_begun_anew(self, long: Sealed) -> None:
        """By a record for this path that its signer made elsewhere."""
        long.branch("elsewhere", ROOT)
        unstage(long, MODEL, LEDGER)
        (long.path / LEDGER).unlink()
        at_once(long)
        long.generation(70.0)
        long.git("checkout", "-q", "-f", "main")
        stage(long, LEDGER, b"WLEDGER 1\n")
        broken = at_once(long)
        stage(long, LEDGER, long.blob(LEDGER, "elsewhere"))
        stage(long, MODEL, text(70.0))
        assert_refused(long, at_once(long), REWRITTEN, was="long")
        assert_refused(long, long.head, REWRITTEN, was=broken)

    def test_begun_anew_by_its_signer(self, long: Sealed) -> None:
        """Not even a trusted key may let go of what a chain has told."""
        unstage(long, LEDGER)
        (long.path / LEDGER).unlink()
        long.generation(5.0)
        assert long.ledger().count(b"WSUM 1") == 1
        assert_refused(long, "HEAD", REWRITTEN, was="long")

    def test_of_the_signers(self, long: Sealed) -> None:
        stage(long, SIGNERS_LEDGER, b"WLEDGER 1\n")
        assert_refused(long, at_once(long), *BROKEN, "signers-changed", was="long")

    def test_a_fork_in_the_middle(self, long: Sealed) -> None:
        """A signer's own other generation 2: what came after it is dropped."""
        long.branch("fork", ROOT)
        long.generation(22.0)
        long.switch("main")
        stage(long, LEDGER, long.blob(LEDGER, "fork"))
        stage(long, MODEL, text(22.0))
        assert_refused(long, at_once(long), REWRITTEN, was="long")

    def test_a_fork_with_what_came_after(self, long: Sealed) -> None:
        """The same by a trusted key: a ledger beside main's, at its full length."""
        made = shortened(long.blob(LEDGER), 2)
        for number in (33.0, 44.0, 55.0):
            made = appended(made, text(number), "alice")
        stage(long, LEDGER, made)
        stage(long, MODEL, text(55.0))
        assert_refused(long, at_once(long), REWRITTEN, was="long")


class TestElsewhere:
    """Records that a trusted key made for another place or another repository."""

    @pytest.fixture
    def foreign(self, tmp_path: Path, keys: None) -> Sealed:
        """Another repository of alice's."""
        (tmp_path / "foreign").mkdir()
        repo = Sealed(tmp_path / "foreign")
        repo.git("init", "-q")
        repo.track("*.safetensors")
        repo.add_signer("bob")
        repo.add_signer("alice")
        repo.generation(66.0, name=NEW)
        repo.seal()
        repo.commit()
        return repo

    def test_a_new_checkpoint_of_another_repository(self, base: Sealed, foreign: Sealed) -> None:
        for path in (NEW, NEW_LEDGER):
            stage(base, path, foreign.blob(path, "HEAD"))
        assert_refused(base, at_once(base), "bad-record", was=SECOND)

    def test_a_ledger_that_names_no_repository(self, base: Sealed) -> None:
        """As one that began before there were signers: anybody may have it from anywhere."""
        head = f"WLEDGER 1 repo={'0' * 64} path={NEW}\n".encode()
        donor = re.sub(rb"\A.*\n", head, base.blob(OTHER_LEDGER))
        made = joined(head, [self.first(head, donor, text(66.0))])
        stage(base, NEW, text(66.0))
        stage(base, NEW_LEDGER, made)
        assert_refused(base, at_once(base), "bad-record", was=SECOND)

    def first(self, head: bytes, donor: bytes, content: bytes) -> list[bytes]:
        """A first record, signed by alice."""
        meta, *_ = records(donor)[1][0]
        fields = dict(re.findall(rb"(\w+)=(\S+)", meta))
        content_hash = hostile.hash_of(content).encode()
        this = hashlib.sha256(
            bytes(32)
            + bytes.fromhex(content_hash.decode())
            + fields[b"ts"] + fields[b"gen"] + fields[b"build"]
        ).hexdigest().encode()  # fmt: skip
        wsum = b"WSUM 1 sha256_all=%s merkle_prev=%s merkle_this=%s\n"
        lines = [meta, wsum % (content_hash, b"0" * 64, this)]
        return [*lines, *hostile.signatures(head + b"".join(lines), "alice")]

    def test_a_ledger_that_begins_at_another_path(self, base: Sealed) -> None:
        """A new chain that says that it stands elsewhere, where nothing is."""
        repo = base.blob(LEDGER).split()[2].decode()
        head = f"WLEDGER 1 {repo} path=elsewhere.safetensors\n".encode()
        made = joined(head, [self.first(head, base.blob(OTHER_LEDGER), text(66.0))])
        stage(base, NEW, text(66.0))
        stage(base, NEW_LEDGER, made)
        assert_refused(base, at_once(base), "bad-record", "moved-unsealed", was=SECOND)
        # The very same one is in order at its path: it is the place that is wrong.
        base.git("read-tree", SECOND)
        stage(base, "elsewhere.safetensors", text(66.0))
        stage(base, "elsewhere.safetensors.wsum", made)
        hostile.honest(base, commit_of(base, SECOND))

    def test_the_signers_chain_for_a_model(self, base: Sealed) -> None:
        """The list of signers, sealed as it is, where a program is looked for."""
        stage(base, "run.sh", base.blob(".wtxt/signers"))
        stage(base, "run.sh.wsum", base.blob(SIGNERS_LEDGER))
        assert_refused(base, at_once(base), "bad-record", "moved-unsealed", was=SECOND)


def test_more_signatures_than_a_record_may_have(base: Sealed) -> None:
    """Nine lines, of which eight are a stranger's inventions: no signer can add one."""
    head, made = records(base.blob(LEDGER))
    line = made[-1][-1]
    own = line.split(b"keyid=")[1].strip()
    others = [line.replace(own, b"%016x" % number) for number in range(8)]
    signed = sorted((line, *others), key=lambda row: row.split(b"keyid=")[1])
    stage(base, LEDGER, joined(head, [*made[:-1], [*made[-1][:-1], *signed]]))
    assert_refused(base, at_once(base), "bad-record", *UNTRUSTED, was=SECOND)


@pytest.mark.parametrize("revision", [ROOT, SECOND])
def test_a_removed_ledger_of_a_file_that_stays(base: Sealed, revision: str) -> None:
    """The content is as sealed; the next one would have nothing to go on from."""
    unstage(base, LEDGER)
    stage(base, MODEL, base.blob(MODEL, revision))
    assert_refused(base, at_once(base), "ledger-removed", "unsealed", was=SECOND)
