"""`.wtxt/signers` in a work tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit import Repo
from wtxtgit.chain import signers
from wtxtgit.errors import CheckError, EnvironmentFailure, InputError, UsageError
from wtxtgit.setup import keys
from wtxtgit.text.digest import keyid
from wtxtgit.trust.keyring import Keyring
from wtxtgit.trust.openssh import HEADER, KeyFileError, PublicKey, fingerprint, format_public

KEYS = [PublicKey(bytes([number]) * 32, f"of {number}") for number in range(1, 5)]
LINES = [format_public(key) for key in KEYS]


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "keys")


def content(repo: Repo) -> str:
    return (repo.path / ".wtxt/signers").read_text()


def add(repo: Repo, principal: str, key: str, ring: Keyring) -> signers.SignersReport:
    return signers.add(repo.repository, principal, key, ring)


def principals(repo: Repo) -> list[str]:
    return [signer.principal for signer in signers.list_signers(repo.repository).signers]


class TestAdd:
    def test_a_key_by_its_name(self, repo: Repo, ring: Keyring) -> None:
        made = keys.new(ring, "alice", None)
        report = add(repo, "alice@example.com", "alice", ring)
        assert content(repo) == f"{HEADER}alice@example.com {made.public}\n"
        assert report.changed
        assert (report.signers[0].fingerprint, report.signers[0].keyid) == (
            made.fingerprint,
            made.keyid,
        )
        assert not list((repo.path / ".wtxt").glob(".*")), "no temporary file is left"

    @pytest.mark.parametrize("ending", ["", "\n"])
    def test_a_key_by_its_line(self, repo: Repo, ring: Keyring, ending: str) -> None:
        add(repo, "a", LINES[0] + ending, ring)
        assert content(repo) == f"{HEADER}a {LINES[0]}\n"

    def test_a_key_by_its_file(self, repo: Repo, ring: Keyring, tmp_path: Path) -> None:
        for number, name in enumerate(("a.pub", "b")):
            (tmp_path / name).write_text(LINES[number] + "\n")
            add(repo, name, str(tmp_path / name), ring)
        assert content(repo) == f"{HEADER}a.pub {LINES[0]}\nb {LINES[1]}\n"

    def test_from_a_folder_below_it_is_the_same_file(
        self, repo: Repo, ring: Keyring, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (repo.path / "sub").mkdir()
        monkeypatch.chdir(repo.path / "sub")
        signers.add(signers.Repository.discover(), "a", LINES[0], ring)
        assert principals(repo) == ["a"]
        assert not (repo.path / "sub/.wtxt").exists()

    def test_the_same_again_changes_nothing(self, repo: Repo, ring: Keyring) -> None:
        add(repo, "a", LINES[0], ring)
        before = (repo.path / ".wtxt/signers").stat()
        assert not add(repo, "a", LINES[0], ring).changed
        assert (repo.path / ".wtxt/signers").stat().st_ino == before.st_ino

    def test_a_key_is_one_signers(self, repo: Repo, ring: Keyring) -> None:
        add(repo, "a", LINES[0], ring)
        before = content(repo)
        with pytest.raises(CheckError, match="the key is already in"):
            add(repo, "b", LINES[0], ring)
        assert content(repo) == before

    def test_a_signer_may_have_several_keys(self, repo: Repo, ring: Keyring) -> None:
        add(repo, "a", LINES[0], ring)
        add(repo, "a", LINES[1], ring)
        assert principals(repo) == ["a", "a"]

    @pytest.mark.parametrize(
        ("principal", "key", "error"),
        [
            ("a b", LINES[0], KeyFileError),
            ("*", LINES[0], KeyFileError),
            ("a,b", LINES[0], KeyFileError),
            ("a\nb", LINES[0], KeyFileError),
            ("", LINES[0], KeyFileError),
            ("a", "ssh-ed25519 AAAA", KeyFileError),
            ("a", LINES[0] + "\nb " + LINES[1], KeyFileError),
            ("a", "ssh-rsa AAAA", KeyFileError),
            ("a", "sk-ssh-ed25519@openssh.com AAAA", KeyFileError),
            ("a", "nobody", UsageError),
            ("a", "./nothing.pub", InputError),
            ("a", "nothing.pub", InputError),
        ],
    )
    def test_what_is_refused_leaves_no_file(
        self, repo: Repo, ring: Keyring, principal: str, key: str, error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            add(repo, principal, key, ring)
        assert not (repo.path / ".wtxt").exists()

    def test_a_secret_file_is_no_public_key(self, repo: Repo, ring: Keyring) -> None:
        keys.new(ring, "alice", None)
        with pytest.raises(KeyFileError, match="a secret key"):
            add(repo, "a", str(ring.path("alice")), ring)

    def test_a_file_that_does_not_hold_is_not_touched(self, repo: Repo, ring: Keyring) -> None:
        repo.write(".wtxt/signers", "a cert-authority ssh-ed25519 AAAA\n")
        with pytest.raises(KeyFileError, match=r"\.wtxt/signers: line 1: "):
            add(repo, "a", LINES[0], ring)
        assert content(repo) == "a cert-authority ssh-ed25519 AAAA\n"

    def test_other_lines_stay_as_they_are(self, repo: Repo, ring: Keyring) -> None:
        held = f"# threshold: 2\n\n# of us\n a   {LINES[1]}\t\nc {LINES[2]}\n"
        repo.write(".wtxt/signers", held)
        assert add(repo, "b", LINES[0], ring).threshold == 2
        assert content(repo) == f"{held}b {LINES[0]}\n"

    def test_as_many_principals_as_the_threshold_asks_for(self, repo: Repo, ring: Keyring) -> None:
        """A file that no change could follow is not written; a second key makes no principal."""
        for held in ("# threshold: 2\n", f"# threshold: 2\na {LINES[1]}\n"):
            repo.write(".wtxt/signers", held)
            with pytest.raises(CheckError) as caught:
                add(repo, "a", LINES[0], ring)
            assert caught.value.message == (
                "with 1 principal and a threshold of 2, no change of the file would ever count"
            )
            assert (caught.value.hint or "").startswith("wtxtgit signers threshold 1; ")
            assert content(repo) == held
        assert add(repo, "b", LINES[0], ring).threshold == 2


class TestLinks:
    def test_a_link_in_the_files_place(self, repo: Repo, ring: Keyring, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").write_text(f"x {LINES[3]}\n")
        (repo.path / ".wtxt").mkdir()
        (repo.path / ".wtxt/signers").symlink_to(tmp_path / "elsewhere")
        self.assert_refused(repo, ring, "signers is not a regular file")
        assert (tmp_path / "elsewhere").read_text() == f"x {LINES[3]}\n"

    def test_a_link_in_the_folders_place(self, repo: Repo, ring: Keyring, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (repo.path / ".wtxt").symlink_to(tmp_path / "elsewhere")
        self.assert_refused(repo, ring, r"\.wtxt is not a folder")
        assert not list((tmp_path / "elsewhere").iterdir())

    def test_a_pipe_is_not_waited_for(self, repo: Repo, ring: Keyring) -> None:
        (repo.path / ".wtxt").mkdir()
        os.mkfifo(repo.path / ".wtxt/signers")
        self.assert_refused(repo, ring, "not a regular file")

    def assert_refused(self, repo: Repo, ring: Keyring, said: str) -> None:
        with pytest.raises(EnvironmentFailure, match=said):
            add(repo, "a", LINES[0], ring)
        with pytest.raises(EnvironmentFailure, match=said):
            signers.remove(repo.repository, "a")
        with pytest.raises(EnvironmentFailure, match=said):
            signers.list_signers(repo.repository)


class TestRemove:
    @pytest.fixture
    def filled(self, repo: Repo, ring: Keyring) -> Repo:
        for name, line in zip("abac", LINES, strict=True):
            add(repo, name, line, ring)
        return repo

    @pytest.mark.parametrize(
        ("which", "left"),
        [
            ("a", ["b", "c"]),
            ("b", ["a", "a", "c"]),
            (fingerprint(KEYS[0].key), ["b", "a", "c"]),
            (keyid(KEYS[2].key), ["a", "b", "c"]),
        ],
    )
    def test_by_what_is_told_of_it(self, filled: Repo, which: str, left: list[str]) -> None:
        report = signers.remove(filled.repository, which)
        assert report.changed
        assert principals(filled) == left
        assert len(report.signers) + len(left) == 4
        assert content(filled).startswith(HEADER)

    @pytest.mark.parametrize("which", ["", "A", "a ", "SHA256:x", "of 1", "0" * 16])
    def test_nobody_is_meant(self, filled: Repo, which: str) -> None:
        before = content(filled)
        with pytest.raises(UsageError, match="no signer"):
            signers.remove(filled.repository, which)
        assert content(filled) == before

    def test_a_principal_that_is_called_as_anothers_key(self, filled: Repo, ring: Keyring) -> None:
        for told in (keyid(KEYS[0].key), fingerprint(KEYS[1].key)):
            add(filled, told, format_public(PublicKey(os.urandom(32))), ring)
            before = content(filled)
            with pytest.raises(UsageError, match="several"):
                signers.remove(filled.repository, told)
            assert content(filled) == before

    def test_keys_that_share_a_keyid(self, filled: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(signers, "keyid", lambda _: "0123456789abcdef")
        with pytest.raises(UsageError, match="several"):
            signers.remove(filled.repository, "0123456789abcdef")

    def test_the_last_signer_stays(self, repo: Repo, ring: Keyring) -> None:
        add(repo, "a", LINES[0], ring)
        with pytest.raises(CheckError, match="no signer would remain"):
            signers.remove(repo.repository, "a")
        assert principals(repo) == ["a"]

    def test_as_many_stay_as_the_threshold_asks_for(self, repo: Repo, ring: Keyring) -> None:
        for name, line in zip("abcb", LINES, strict=True):
            add(repo, name, line, ring)
        signers.set_threshold(repo.repository, 2)
        signers.remove(repo.repository, "a")
        with pytest.raises(CheckError) as caught:
            signers.remove(repo.repository, "c")
        assert caught.value.message == "1 principal would remain for a threshold of 2"
        assert (caught.value.hint or "").endswith("wtxtgit signers threshold 1")
        assert principals(repo) == ["b", "c", "b"]
        signers.remove(repo.repository, fingerprint(KEYS[1].key))
        assert principals(repo) == ["c", "b"]

    def test_it_tells_what_becomes_of_branches(self, filled: Repo) -> None:
        report = signers.remove(filled.repository, "b")
        assert report.as_dict()["consequence"] == {
            "message": "records by a removed key stay valid on branches that already have them; "
            "a branch that adds more of them needs a countersignature",
            "hint": "one of the remaining signers runs wtxtgit seal --countersign on that branch",
        }
        assert "consequence" not in signers.list_signers(filled.repository).as_dict()


class TestThreshold:
    @pytest.fixture
    def three(self, repo: Repo, ring: Keyring) -> Repo:
        """Three principals, one of them with two keys."""
        for name, line in zip("abca", LINES, strict=True):
            add(repo, name, line, ring)
        return repo

    def test_it_is_set(self, three: Repo) -> None:
        before = content(three)
        for number in (2, 3, 1):
            report = signers.set_threshold(three.repository, number)
            assert (report.threshold, report.changed, len(report.signers)) == (number, True, 4)
            assert signers.list_signers(three.repository).threshold == number
            told = f"# threshold: {number}"
            assert content(three) == before.replace("# threshold: 1", told)

    def test_the_same_again_changes_nothing(self, three: Repo) -> None:
        before = (three.path / ".wtxt/signers").stat()
        assert not signers.set_threshold(three.repository, 1).changed
        assert (three.path / ".wtxt/signers").stat().st_ino == before.st_ino

    @pytest.mark.parametrize("number", [-1, 0, 9, 10**30])
    def test_a_number_that_no_file_has(self, three: Repo, number: int) -> None:
        before = content(three)
        with pytest.raises(UsageError, match=f"from 1 to 8, not {number}$"):
            signers.set_threshold(three.repository, number)
        assert content(three) == before

    def test_more_than_there_are_principals(self, three: Repo) -> None:
        before = content(three)
        with pytest.raises(CheckError) as caught:
            signers.set_threshold(three.repository, 4)
        assert caught.value.message == (
            "a threshold of 4 needs as many principals, but .wtxt/signers has 3"
        )
        assert "several keys of one principal count once" in (caught.value.hint or "")
        assert content(three) == before

    def test_without_signers_there_is_nothing_to_set(self, repo: Repo) -> None:
        with pytest.raises(CheckError, match="has 0"):
            signers.set_threshold(repo.repository, 1)
        assert not (repo.path / ".wtxt").exists()

    def test_what_was_written_by_hand_can_be_lowered(self, repo: Repo) -> None:
        repo.write(".wtxt/signers", f"# threshold: 3\na {LINES[0]}\n")
        assert signers.set_threshold(repo.repository, 1).changed
        assert content(repo) == f"# threshold: 1\na {LINES[0]}\n"


def test_without_a_file_there_is_nobody(repo: Repo) -> None:
    assert signers.list_signers(repo.repository).as_dict() == {
        "threshold": 1,
        "changed": False,
        "signers": [],
    }
    with pytest.raises(UsageError, match="no signer"):
        signers.remove(repo.repository, "a")
    assert not (repo.path / ".wtxt").exists()


def test_a_bare_repository_has_no_work_tree(repo: Repo, ring: Keyring) -> None:
    bare = repo.clone("bare", "--bare")
    with pytest.raises(EnvironmentFailure, match="work tree"):
        add(bare, "a", LINES[0], ring)
