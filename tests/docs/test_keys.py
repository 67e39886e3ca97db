"""docs/keys.md: its commands in order, and what it says of limits and places."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docs.pages import blocks, prose, tables
from tests.docs.shell import assert_as_shown, run, steps
from tests.kit import Repo
from tests.trust.peers import keygen, needs_agent, needs_keygen, new_key
from wtxtgit.setup.keys import CONFIG_KEY, VARIABLE
from wtxtgit.trust import openssh, signing
from wtxtgit.trust.age import scrypt
from wtxtgit.trust.keyring import unprotect
from wtxtgit.trust.openssh import KEY_TYPES

PAGE = "docs/keys.md"
AGENT = "An ssh-agent"


@pytest.mark.slow
@needs_keygen
def test_the_examples_do_what_the_page_shows(tmp_path: Path, home: Path) -> None:
    printed = [block for block in blocks(PAGE, "console") if block.section != AGENT]
    done = run(steps(*printed), tmp_path)
    assert_as_shown(done)
    assert sum(bool(one.step.output) for one in done) >= 11

    keys = home / ".config/wtxtgit/keys"
    assert {path.name for path in keys.iterdir()} == {
        name + ending for name in ("alice", "laptop", "release") for ending in ("", ".pub")
    }
    (listed,) = [one for one in done if one.step.command.endswith("key list --json")]
    protected = {key["name"]: key["protected"] for key in json.loads(listed.output)["keys"]}
    assert protected == {"alice": False, "laptop": False, "release": True}
    assert b"OPENSSH" in unprotect((keys / "release").read_bytes(), "correct horse battery", "k")
    repo = Repo(tmp_path / "repo")
    assert repo.git("config", CONFIG_KEY) == b"alice\n"
    written = (repo.path / ".wtxt/signers").read_text().splitlines()
    printed_keys = {line.split()[2] for line in written if "@" in line}
    assert {(keys / f"{name}.pub").read_text().split()[1] for name in ("alice", "laptop")} == (
        printed_keys
    )


@needs_agent
def test_an_agents_key_is_named_by_its_fingerprint(repo: Repo, home: Path) -> None:
    (home / ".ssh").mkdir(mode=0o700)
    key = new_key(home / ".ssh/id_ed25519")
    done = run(steps(*blocks(PAGE, "console", AGENT)), repo.path)
    assert_as_shown(done)
    told = keygen("-l", "-f", key).decode().split()[1]
    assert repo.git("config", CONFIG_KEY).decode() == f"agent:{told}\n"


def test_limits() -> None:
    assert f"2^{scrypt.MAX_WORK} rounds of scrypt (2 GiB" in prose(PAGE, "Passphrases")
    assert 2**scrypt.MAX_WORK * 8 * 128 == 2 * 1024**3
    assert f"It has {signing.LIST_SECONDS} seconds to list" in prose(PAGE, AGENT)
    assert signing.SIGN_SECONDS == 120
    assert f"at most {openssh.MAX_PRINCIPAL} characters" in prose(PAGE, "Signers")
    assert f"from 1 to {openssh.MAX_THRESHOLD}, says" in prose(PAGE, "Signers")


def test_what_no_principal_holds() -> None:
    found = re.search(r"without spaces and `(.*?)`: no pattern", prose(PAGE, "Signers"))
    assert found
    key = new_line()
    for character in found[1].split():
        with pytest.raises(openssh.KeyFileError):
            openssh.parse(f"a{character}b {key}".encode(), "s")
    assert openssh.parse(f"a@b:c/d-e_f.g+h~ {key}".encode(), "s").signers.signers


def test_what_is_not_taken_is_refused_by_name() -> None:
    (table,) = tables(PAGE, "Keys and options that are refused")
    words = [word for row in table for word in re.findall(r"`([^`]+)`", row[0])]
    assert len(words) >= 11
    key = new_line().removeprefix("ssh-ed25519 ")
    for word in words:
        is_type = KEY_TYPES.fullmatch(word) is not None
        lines = (
            [f"a {word} {key}"]
            if is_type
            else [f"a {word}{more} ssh-ed25519 {key}" for more in ("", '="x"', '="x y"')]
        )
        for line in lines:
            for read in (openssh.parse, openssh.parse_signers):
                with pytest.raises(openssh.KeyFileError, match=f's: line 1: "?{word}"? is a'):
                    read(line.encode(), "s")
    assert "SHA-256(application) || flags || counter || SHA-256(M)" in (
        blocks(PAGE, "", "Keys and options that are refused")[0].text
    )


def new_line() -> str:
    return openssh.format_signer(openssh.Signer("x", b"\3" * 32)).removeprefix("x ")


def test_the_table_has_the_names_of_the_program() -> None:
    (table,) = tables(PAGE, "Which key signs")
    named = [row[0].strip("`") for row in table]
    assert named[:3] == ["--key", VARIABLE, CONFIG_KEY]
