"""The file of signers, beside ssh-keygen, which reads it too."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import ssh_wire
from tests.trust.peers import keygen, needs_keygen, new_key
from wtxtgit.text import ledger
from wtxtgit.trust.openssh import (
    HEADER,
    MAX_THRESHOLD,
    KeyFileError,
    Signer,
    SignerList,
    format_signer,
    parse,
    parse_public_file,
    parse_signers,
)

KEYS = [bytes([number]) * 32 for number in range(1, 5)]
A, B, C = (Signer(name, key, name) for name, key in zip("abc", KEYS, strict=False))
K = [b64encode(ssh_wire(key)).decode() for key in KEYS]

FILE = f"""\
# Who may sign.
# threshold: 2

a ssh-ed25519 {K[0]} a
  b \t ssh-ed25519   {K[1]} with  blanks\t
# c follows
c@example.com ssh-ed25519 {K[2]}
"""


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


class TestParse:
    def test_a_file(self) -> None:
        found = parse(FILE.encode(), "signers").signers
        wanted = (
            Signer("a", KEYS[0], "a"),
            Signer("b", KEYS[1], "with  blanks"),
            Signer("c@example.com", KEYS[2]),
        )
        assert found == SignerList(wanted, 2)
        assert found.public_keys == frozenset(KEYS[:3])

    @pytest.mark.parametrize("content", [b"", b"\n", b"# nothing\n", HEADER.encode()])
    def test_a_file_without_signers(self, content: bytes) -> None:
        assert parse(content, "signers").signers == SignerList((), 1)

    @pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
    def test_the_last_line_may_lack_its_end(self, ending: str) -> None:
        line = f"a ssh-ed25519 {K[0]} a{ending}"
        assert parse(line.encode(), "signers").signers.signers == (A,)

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (f"ssh-ed25519 {K[0]}", "not of the form principal"),
            ("a", "not of the form"),
            ("a ssh-ed25519", "not of the form"),
            ("a ssh-rsa AAAA", "ssh-rsa is a key of another type"),
            ("a ecdsa-sha2-nistp256 AAAA", "ecdsa-sha2-nistp256 is a key of another type"),
            (f"a ssh-ed25519-cert-v01@openssh.com {K[0]}", "is a certificate: .* no clock"),
            (f"a sk-ecdsa-sha2-nistp256-cert-v01@openssh.com {K[0]}", "is a certificate"),
            (f"a sk-ssh-ed25519@openssh.com {K[0]}", "a key on a token: .* flags and a counter"),
            (f"a sk-ecdsa-sha2-nistp256@openssh.com {K[0]}", "a key on a token"),
            (f"a cert-authority ssh-ed25519 {K[0]}", "cert-authority is an option .* certificate"),
            (f'a cert-authority,namespaces="x" ssh-ed25519 {K[0]}', "cert-authority is an option"),
            (f'a namespaces="git" ssh-ed25519 {K[0]}', "namespaces is an option"),
            (f'a namespaces="a b" ssh-ed25519 {K[0]}', "namespaces is an option"),
            (f"a valid-before=20300101 ssh-ed25519 {K[0]}", "valid-before .* no clock decides"),
            (f'a valid-after="20300101" ssh-ed25519 {K[0]}', "valid-after .* no clock decides"),
            (f'a Valid-Before="2030" ssh-ed25519 {K[0]}', "valid-before .* no clock decides"),
            (f"a verify-required ssh-ed25519 {K[0]}", '"verify-required" is an option'),
            (f'"a" ssh-ed25519 {K[0]}', "not of the form"),
            (f"a,b ssh-ed25519 {K[0]}", "not one principal"),
            (f"*@example.com ssh-ed25519 {K[0]}", "not one principal"),
            (f"a? ssh-ed25519 {K[0]}", "not one principal"),
            (f"!a ssh-ed25519 {K[0]}", "not one principal"),
            (f"a\x1b[2J ssh-ed25519 {K[0]}", "not one principal"),
            (f"a\u202eb ssh-ed25519 {K[0]}", "not one principal"),
            (f"{'a' * 256} ssh-ed25519 {K[0]}", "not one principal"),
            (f"a ssh-ed25519 {K[0]} \x1b[2J", "comment"),
            (f"a ssh-ed25519 {K[0][:-4]}", "not an ed25519"),
            (f"a ssh-ed25519 {K[0]}AAAA", "not an ed25519"),
            (f"a ssh-ed25519 {K[0][:-1]}", "base64"),
            (f"a\xa0b ssh-ed25519 {K[0]}", "not of the form"),
            (f"d ssh-ed25519 {K[3]} the same", "stands in line 1 already"),
        ],
    )
    def test_what_is_refused(self, line: str, said: str) -> None:
        with pytest.raises(KeyFileError, match=said) as caught:
            parse(text(f"z ssh-ed25519 {K[3]}", line), "signers")
        assert caught.value.message.startswith("signers: line 2: ")

    def test_what_is_no_text_is_refused(self) -> None:
        with pytest.raises(KeyFileError, match="UTF-8 at byte 1"):
            parse(b"a\xff", "signers")

    @pytest.mark.parametrize("count", range(1, MAX_THRESHOLD + 1))
    def test_a_threshold(self, count: int) -> None:
        assert parse(text(f"# threshold: {count}"), "signers").signers.threshold == count

    @pytest.mark.parametrize(
        "line",
        [
            "# threshold: 0",
            "# threshold: 9",
            "# threshold: 10",
            "# threshold: 100",
            "# threshold: 01",
            "# threshold: -1",
            "# threshold: 2 of 3",
            "# threshold: two",
            "# threshold:",
            "# threshold 2",
            "# threshold = 2",
            "#threshold: 2",
            "#  threshold: 2",
            " # threshold: 2",
            "# Threshold: 2",
            "## threshold: 2",
            "# thresholds: 2",
            "# threshold: ２",
        ],
    )
    def test_a_threshold_in_another_spelling_is_not_passed_over(self, line: str) -> None:
        with pytest.raises(KeyFileError, match="line 1: a threshold is spelled"):
            parse(text(line), "signers")

    def test_a_second_threshold_is_refused(self) -> None:
        with pytest.raises(KeyFileError, match="line 2: a second threshold"):
            parse(text("# threshold: 1", "# threshold: 1"), "signers")

    def test_other_comments_may_speak_of_it(self) -> None:
        assert parse(text("# the threshold: 5"), "signers").signers.threshold == 1

    @given(st.text(max_size=200))
    def test_any_text_raises_our_error_alone(self, line: str) -> None:
        for content in (line, f"{line} ssh-ed25519 {K[0]}", f"a ssh-ed25519 {K[0]} {line}"):
            data = content.encode("utf-8", "surrogatepass")
            try:
                file = parse(data, "signers")
            except KeyFileError:
                continue
            assert parse(file.content(), "signers") == file
            for signer in file.signers.signers:
                again = parse(format_signer(signer).encode(), "signers").signers.signers
                assert again == (signer,)


class TestPrincipals:
    def test_several_keys_of_one_count_once(self) -> None:
        second = Signer("a", KEYS[3], "laptop")
        found = SignerList((A, B, second), 2)
        assert found.principals == {"a", "b"}

    def test_a_threshold_has_no_more_room_than_a_record(self) -> None:
        assert MAX_THRESHOLD == ledger.MAX_SIGNATURES


class TestEdit:
    @pytest.mark.parametrize("content", [FILE, FILE.replace("\n", "\r\n"), "", HEADER])
    def test_what_is_not_edited_stays(self, content: str) -> None:
        assert parse(content.encode(), "signers").content() == content.encode()

    def test_a_signer_is_added_at_the_end(self) -> None:
        file = parse(FILE.encode(), "signers").with_signer(Signer("d", KEYS[3], "of d"), "signers")
        assert file.content() == (FILE + f"d ssh-ed25519 {K[3]} of d\n").encode()
        assert file.signers.signers[-1] == Signer("d", KEYS[3], "of d")
        assert file.signers.threshold == 2

    def test_after_a_line_without_its_end(self) -> None:
        file = parse(format_signer(A).encode(), "signers").with_signer(B, "signers")
        assert file.content() == text(format_signer(A), format_signer(B))

    @pytest.mark.parametrize("signer", [A, Signer("z", KEYS[0]), Signer("a b", KEYS[3])])
    def test_what_can_not_stand_there_is_not_added(self, signer: Signer) -> None:
        with pytest.raises(KeyFileError):
            parse(FILE.encode(), "signers").with_signer(signer, "signers")

    @pytest.mark.parametrize(
        "name",
        ["", "# x", "x\n# threshold: 9\ny", f"x ssh-ed25519 {K[3]}\ny", "ssh-ed25519", "x\r"],
    )
    def test_a_name_adds_no_line_of_its_own(self, name: str) -> None:
        file = parse(FILE.encode(), "signers")
        with pytest.raises(KeyFileError):
            file.with_signer(Signer(name, bytes([9]) * 32), "signers")

    def test_nor_does_a_comment(self) -> None:
        file = parse(FILE.encode(), "signers")
        for comment in ("x\ny ssh-ed25519 " + K[3], "x\r"):
            with pytest.raises(KeyFileError, match="comment"):
                file.with_signer(Signer("d", bytes([9]) * 32, comment), "signers")

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("# threshold: 2", "# threshold: 3"),
            ("# threshold: 2 \t", "# threshold: 3"),
            ("# threshold: 2\r", "# threshold: 3\r"),
        ],
    )
    def test_a_threshold_takes_the_lines_place(self, before: str, after: str) -> None:
        around = (f"# ours\n{format_signer(A)}\n", f"\n\n{format_signer(B)}\n# end\n")
        file = parse(before.join(around).encode(), "s").with_threshold(3, "s")
        assert file.content() == after.join(around).encode()
        assert file.signers.threshold == 3

    def test_a_threshold_where_there_was_none(self) -> None:
        file = parse(text("# ours", format_signer(A)), "s").with_threshold(2, "s")
        assert file.content() == text("# threshold: 2", "# ours", format_signer(A))
        assert file.signers.threshold == 2

    @pytest.mark.parametrize("count", [0, -1, MAX_THRESHOLD + 1, 100])
    def test_a_threshold_that_no_file_has(self, count: int) -> None:
        with pytest.raises(KeyFileError, match="a threshold is spelled"):
            parse(FILE.encode(), "s").with_threshold(count, "s")

    def test_a_signer_is_removed(self) -> None:
        file = parse(FILE.encode(), "signers").without({KEYS[1]}, "signers")
        lines = FILE.splitlines(keepends=True)
        assert file.content() == "".join(lines[:4] + lines[5:]).encode()
        assert file.signers.public_keys == {KEYS[0], KEYS[2]}


class TestBesideSshKeygen:
    def signature(self, folder: Path, key: Path) -> Path:
        message = folder / "message"
        message.write_text("x")
        keygen("-q", "-Y", "sign", "-f", key, "-n", "wtxtgit", message)
        return message.with_suffix(".sig")

    @needs_keygen
    @pytest.mark.parametrize("principal", ["alice@example.com", "a", "mail:a+b@x", "Zoë", "a/b'"])
    def test_it_finds_our_principals(self, tmp_path: Path, principal: str) -> None:
        key = new_key(tmp_path / "key")
        public = parse_public_file((tmp_path / "key.pub").read_bytes(), "key.pub")
        file = parse(HEADER.encode(), "s").with_signer(B, "s")
        signer = Signer(principal, public.key, public.comment)
        (tmp_path / "signers").write_bytes(file.with_signer(signer, "s").content())
        signature = self.signature(tmp_path, key)
        arguments = ("-Y", "find-principals", "-s", signature, "-f", tmp_path / "signers")
        assert keygen(*arguments).decode() == f"{principal}\n"
        (tmp_path / "signers").write_bytes(file.content())
        assert keygen(*arguments, ok=False) == b""

    @needs_keygen
    def test_what_it_can_not_find_is_refused_here_too(self, tmp_path: Path) -> None:
        """A line without a principal."""
        key = new_key(tmp_path / "key")
        public = tmp_path / "key.pub"
        signature = self.signature(tmp_path, key)
        keygen("-Y", "find-principals", "-s", signature, "-f", public, ok=False)
        with pytest.raises(KeyFileError):
            parse(public.read_bytes(), "signers")
        assert len(parse_signers(public.read_bytes(), "signers")) == 1


def test_for_verify_the_same_lines_are_refused() -> None:
    for line, said in (
        (f"ssh-ed25519-cert-v01@openssh.com {K[0]}", "is a certificate"),
        (f"sk-ssh-ed25519@openssh.com {K[0]}", "is a key on a token"),
        (f"a sk-ssh-ed25519@openssh.com {K[0]}", "is a key on a token"),
        ("ssh-rsa AAAA x", "is a key of another type"),
        (f'a valid-before="2030" ssh-ed25519 {K[0]}', "no clock decides"),
    ):
        with pytest.raises(KeyFileError, match=f"^s: line 2: .*{said}"):
            parse_signers(text("# one", line), "s")


def test_for_verify_patterns_and_lines_without_a_name_are_known_keys() -> None:
    content = text(f"*@example.com ssh-ed25519 {K[0]}", f"ssh-ed25519 {K[1]} x", "# threshold: x")
    found = parse_signers(content, "s")
    assert found == (Signer("*@example.com", KEYS[0]), Signer("", KEYS[1], "x"))
