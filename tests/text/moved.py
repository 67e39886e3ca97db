"""The ledgers of `tests/data/ledgers`, made from the words of the spec alone.

Nothing but `hashlib`, PyNaCl and `docs/spec/ledger.md`: a fault of the package
is not in them. Seeds, times and contents are fixed, and so are the bytes.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256

import xxhash
from nacl.signing import SigningKey

ALICE, BOB = (SigningKey(sha256(name).digest()) for name in (b"alice", b"bob"))
REPO = sha256(b"a repository").hexdigest()
BEGAN = b"models/a.fold"
HEAD = f"WLEDGER 1 repo={REPO} path={BEGAN.decode()}\n".encode()
NOTHING = bytes.fromhex("e8624cf466515a0fb7a24b13ee5b4dc822a5da9853d9b595cd5ec75b8f1bca79")


@dataclass(frozen=True)
class Made:
    """A ledger and what a verifier that knows these keys must say of it."""

    text: bytes
    kinds: tuple[str, ...]
    signed_by: tuple[int, ...] | None
    note: str
    public_keys: tuple[bytes, ...] = (bytes(ALICE.verify_key),)


class Chain:
    """Records that follow one another; each is signed by alice unless told otherwise."""

    def __init__(self) -> None:
        self.lines = [HEAD]
        self._gen = 0
        self._prev = bytes(32)

    def seal(
        self,
        *before: bytes,
        signed: bytes | None = None,
        keys: tuple[SigningKey, ...] = (ALICE,),
        content: bytes | None = None,
        build: str | None = None,
        form: bytes = b"",
        signed_form: bytes | None = None,
    ) -> Chain:
        """Add a record after the lines `before`; `signed` replaces those in what is signed.

        `form` are lines between the WSUM line and the signatures, and `signed_form` what
        is signed in their place.
        """
        self._gen += 1
        gen, build = f"{self._gen:06d}", build or f"c{self._gen}"
        schema = "fold/v1" if content is None else "opaque/v1"
        ts = f"2026-03-{self._gen:02d}T00:00:00Z"
        content = content or sha256(f"content {self._gen}".encode()).digest()
        this = sha256(self._prev + content + f"{ts}{gen}{build}".encode()).digest()
        meta = f"meta schema={schema} gen={gen} ts={ts} build={build} endian=LE host=any cuda=off\n"
        wsum = (
            f"WSUM 1 sha256_all={content.hex()} merkle_prev={self._prev.hex()} "
            f"merkle_this={this.hex()}\n"
        )
        rest = f"{meta}{wsum}".encode()
        covered = rest + (form if signed_form is None else signed_form)
        rest += form
        move = b"".join(before) if signed is None else signed
        self.lines += [*before, *rest.splitlines(keepends=True)]
        self.lines += sorted((_sign(key, HEAD + move + covered) for key in keys), key=_keyid)
        self._prev = this
        return self

    @property
    def text(self) -> bytes:
        return b"".join(self.lines)


def at(spelled: bytes) -> bytes:
    return b"at path=" + spelled + b"\n"


def made() -> dict[str, Made]:
    """All cases, by the name of their file without its ending."""
    b, c, same = at(b"models/b.fold"), at(b"models/c.fold"), at(BEGAN)
    moved = Chain().seal().seal(b)
    head, meta, wsum, sign = moved.lines[:4]
    deletion = {"content": NOTHING, "build": "deleted"}
    return {
        "moved": _good(moved, "the second record moves the ledger"),
        "moved_twice": _good(Chain().seal().seal(b).seal().seal(c), "two moves"),
        "moved_back": _good(Chain().seal().seal(b).seal(same), "away and back"),
        "moved_there_again": _good(
            Chain().seal().seal(b).seal(same).seal(b), "the same path twice, with another between"
        ),
        "moved_at_once": _good(Chain().seal(b).seal(), "the first record moves the ledger"),
        "moved_escaped": _good(
            Chain().seal().seal(at(b"gr%C3%B6%C3%9Fe/100%25%20b.fold")), "a path with escapes"
        ),
        "moved_co_signed": Made(
            Chain().seal().seal(b, keys=(ALICE, BOB)).text,
            (),
            (1, 2),
            "every signature covers the move",
            (bytes(ALICE.verify_key), bytes(BOB.verify_key)),
        ),
        "moved_unsigned": Made(
            Chain().seal().seal(b, keys=()).text, (), (1, 0), "a move that nobody signed"
        ),
        "moved_then_stays": Made(
            Chain().seal().seal(b).seal(b).text,
            ("structure",),
            (1, 1, 1),
            "the third record moves the ledger to where the second moved it",
        ),
        "moved_to_its_beginning": Made(
            Chain().seal(same).seal().text,
            ("structure",),
            (1, 1),
            "the first record moves the ledger to where it began",
        ),
        "moved_to_where_it_stayed": Made(
            Chain().seal().seal(same).text,
            ("structure",),
            (1, 1),
            "no record moved the ledger before: it stands where it began",
        ),
        "move_not_signed_for": Made(
            Chain().seal().seal(b, signed=b"").text,
            ("signature",),
            (1, 0),
            "the at line was put before a record that was signed without one",
        ),
        "move_taken_away": Made(
            Chain().seal().seal(signed=b).text,
            ("signature",),
            (1, 0),
            "the record was signed with an at line",
        ),
        "move_to_another_path": Made(
            Chain().seal().seal(c, signed=b).text,
            ("signature",),
            (1, 0),
            "the record was signed with an at line of another path",
        ),
        "move_in_lower_hex": _bad(
            Chain().seal().seal(at(b"gr%c3%b6%c3%9fe.fold")), "escapes have upper-case digits"
        ),
        "move_needless_escape": _bad(
            Chain().seal().seal(at(b"models%2Fb.fold")), "a byte that needs no escape has none"
        ),
        "move_above": _bad(Chain().seal().seal(at(b"../b.fold")), "a part .."),
        "move_nowhere": _bad(Chain().seal().seal(at(b"")), "no path"),
        "move_after_meta": _bad(head + meta + b + wsum + sign, "at stands before meta"),
        "move_after_wsum": _bad(head + meta + wsum + b + sign, "at stands before meta"),
        "move_twice": _bad(Chain().seal().seal(b, c), "one at line a record"),
        "move_alone": _bad(moved.text + c, "a record follows an at line"),
        **_detached(),
        "deleted": _good(Chain().seal().seal(**deletion), "the last record is a sealed deletion"),
        "deleted_and_back": _good(
            Chain().seal().seal(**deletion).seal(), "content is sealed after a deletion"
        ),
        "emptied": _good(
            Chain().seal().seal(content=NOTHING), "an empty file: no deletion by its build"
        ),
    }


def detached(spelled: bytes) -> bytes:
    return b"detached sha256=" + spelled + b"\n"


def _detached() -> dict[str, Made]:
    """Records of detached texts."""
    one, other = (detached(sha256(name).hexdigest().encode()) for name in (b"D", b"E"))
    head, meta, wsum, line, sign = Chain().seal(form=one).lines
    both = bytes(ALICE.verify_key), bytes(BOB.verify_key)
    chain = Chain().seal(form=one, keys=(ALICE, BOB))
    first, second = chain.lines[-2:]
    return {
        "detached": _good(Chain().seal(form=one), "the blob is a detached text"),
        "detached_of_some": _good(
            Chain().seal().seal(form=one).seal().seal(form=other), "the form changes in a chain"
        ),
        "detached_moved": _good(
            Chain().seal().seal(at(b"models/b.fold"), form=one), "beside a move"
        ),
        "detached_co_signed": Made(chain.text, (), (2,), "every signature covers the line", both),
        "detached_signatures_turned": Made(
            b"".join([*chain.lines[:-2], second, first]),
            ("structure",),
            (2,),
            "signatures out of order behind the line",
            both,
        ),
        "detached_not_signed_for": Made(
            Chain().seal(form=one, signed_form=b"").text,
            ("signature",),
            (0,),
            "the line was put into a record that was signed without one",
        ),
        "detached_taken_away": Made(
            Chain().seal(signed_form=one).text,
            ("signature",),
            (0,),
            "the record was signed with the line",
        ),
        "detached_another": Made(
            Chain().seal(form=other, signed_form=one).text,
            ("signature",),
            (0,),
            "the record was signed with another detached text",
        ),
        "detached_twice": _bad(Chain().seal(form=one + other), "one line a record"),
        "detached_before_meta": _bad(head + line + meta + wsum + sign, "it stands behind WSUM"),
        "detached_before_wsum": _bad(head + meta + line + wsum + sign, "it stands behind WSUM"),
        "detached_behind_sign": _bad(head + meta + wsum + sign + line, "it stands before sign"),
        "detached_upper_hex": _bad(
            Chain().seal(form=detached(b"AB" * 32)), "hashes are in lower case"
        ),
        "detached_short": _bad(Chain().seal(form=detached(b"ab" * 31)), "64 digits"),
        "detached_field_more": _bad(
            Chain().seal(form=one[:-1] + b" bytes=1\n"), "a line has no other fields"
        ),
    }


def _good(chain: Chain, note: str) -> Made:
    records = sum(line.startswith(b"meta ") for line in chain.lines)
    return Made(chain.text, (), (1,) * records, note)


def _bad(text: Chain | bytes, note: str) -> Made:
    return Made(text if isinstance(text, bytes) else text.text, ("syntax",), None, note)


def _sign(key: SigningKey, message: bytes) -> bytes:
    signature = b64encode(key.sign(message).signature).decode()
    keyid = f"{xxhash.xxh64_intdigest(bytes(key.verify_key), 0):016x}"
    return f"sign ed25519={signature} keyid={keyid}\n".encode()


def _keyid(line: bytes) -> bytes:
    return line.rpartition(b"=")[2]
