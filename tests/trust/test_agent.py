"""An ssh-agent: the real one, and hostile ones."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey, VerifyKey

from tests.trust.peers import needs_agent, new_key
from wtxtgit.trust.openssh import (
    blob_fingerprint,
    fingerprint,
    number,
    parse_secret_key,
    public_blob,
    string,
)
from wtxtgit.trust.signing import (
    MAX_ANSWER,
    Agent,
    AgentError,
    AgentKey,
    AgentKeys,
    Identity,
    OtherKey,
    agent_key,
    connect,
)

SECRET = SigningKey(bytes(range(32)))
PUBLIC = bytes(SECRET.verify_key)
ON_TOKEN = string(b"sk-ssh-ed25519@openssh.com") + string(PUBLIC) + string(b"ssh:")
RSA = string(b"ssh-rsa") + string(b"e") + string(b"n")
SIGNATURE = string(b"ssh-ed25519") + string(bytes(64))


def answer(kind: int, body: bytes) -> bytes:
    return string(bytes([kind]) + body)


def listed(*keys: tuple[bytes, bytes], count: int | None = None, more: bytes = b"") -> bytes:
    body = number(len(keys) if count is None else count)
    return answer(12, body + b"".join(string(k) + string(c) for k, c in keys) + more)


def asked(said: bytes) -> Agent:
    return Agent(BytesIO(said).read, BytesIO().write)


class TestOnBuffers:
    def test_what_is_asked_is_spelled_as_the_draft_says(self) -> None:
        sent = BytesIO()
        agent = Agent(BytesIO(listed() + answer(14, string(SIGNATURE))).read, sent.write)
        assert agent.list_keys() == AgentKeys((), ())
        assert agent.sign(PUBLIC, b"message") == bytes(64)
        blob = public_blob(PUBLIC)
        wanted = bytes([13]) + string(blob) + string(b"message") + bytes(4)
        assert sent.getvalue() == b"\0\0\0\1\x0b" + string(wanted)

    def test_keys_of_other_types_are_passed_over(self) -> None:
        other = string(b"ssh-rsa") + string(b"e") + string(b"n")
        said = listed((other, b"r"), (public_blob(PUBLIC), b"a\xff"), (b"", b""))
        held = asked(said).list_keys()
        assert held.keys == (Identity(PUBLIC, "a\\xff"),)
        assert held.others == (OtherKey(other, "r"), OtherKey(b"", ""))
        assert [key.kind for key in held.others] == ["ssh-rsa", "?"]

    @pytest.mark.parametrize(
        ("blob", "kind"),
        [
            (ON_TOKEN, "sk-ssh-ed25519@openssh.com"),
            (number(2**32 - 1) + b"x" * 200, "x" * 64),
            (string(b"\xff"), "\\xff"),
            (b"\0\0", "?"),
            (string(b"ssh-ed25519") + string(bytes(31)), "ssh-ed25519"),
        ],
    )
    def test_types_as_an_agent_spells_them(self, blob: bytes, kind: str) -> None:
        assert OtherKey(blob, "").kind == kind

    def test_an_answer_in_pieces(self) -> None:
        class Slow(BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                return super().read(1)

        assert Agent(Slow(listed((public_blob(PUBLIC), b""))).read, BytesIO().write).list_keys()

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            (b"", "ends in the middle"),
            (b"\0\0", "ends in the middle"),
            (number(5) + b"\x0c", "ends in the middle"),
            (number(0), "answer of 0 bytes"),
            (number(MAX_ANSWER + 1) + bytes(9), "answer of 262145 bytes"),
            (number(2**32 - 1), "answer of 4294967295 bytes"),
            (answer(5, b""), "refuses"),
            (answer(14, b""), "type 14"),
            (answer(12, b""), "cut short"),
            (listed(count=1), "more keys than it sends"),
            (listed(count=2**32 - 1), "more keys than it sends"),
            (listed(more=b"x"), "more than it claims"),
            (answer(12, number(1) + number(2**32 - 1) + number(0)), "cut short"),
        ],
    )
    def test_hostile_lists(self, said: bytes, told: str) -> None:
        with pytest.raises(AgentError, match=told):
            asked(said).list_keys()

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            (answer(5, b""), "refuses to sign"),
            (answer(12, b""), "type 12"),
            (answer(14, b""), "cut short"),
            (answer(14, string(b"")), "no ed25519 signature"),
            (answer(14, string(string(b"ssh-rsa") + string(bytes(64)))), "no ed25519 signature"),
            (answer(14, string(SIGNATURE[:-1])), "no ed25519 signature"),
            (answer(14, string(SIGNATURE) + b"x"), "no ed25519 signature"),
        ],
    )
    def test_hostile_signatures(self, said: bytes, told: str) -> None:
        with pytest.raises(AgentError, match=told):
            asked(said).sign(PUBLIC, b"m")

    @given(st.binary(max_size=200))
    def test_any_answer_raises_our_error_alone(self, data: bytes) -> None:
        for said in (data, answer(12, data), answer(14, data)):
            for ask in (Agent.list_keys, lambda agent: agent.sign(PUBLIC, b"m")):
                try:
                    ask(asked(said))
                except AgentError:
                    continue


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Callable[[bytes], Path]]:
    """Start agents that say one thing to whoever connects, and wait for the other to go."""
    threads = []

    def start(said: bytes, connections: int = 1) -> Path:
        path = tmp_path / f"s{len(threads)}"
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            with server:
                for _ in range(connections):
                    client, _ = server.accept()
                    with client:
                        client.sendall(said)
                        while client.recv(1 << 16):
                            pass

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return path

    yield start
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()


class TestConnections:
    def test_there_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(AgentError, match="SSH_AUTH_SOCK is not set"):
            agent_key(None, None)
        (tmp_path / "file").write_bytes(b"")
        for path in (tmp_path / "missing", tmp_path / "file", tmp_path / ("x" * 200)):
            with pytest.raises(AgentError, match="can't be reached"):
                agent_key(path, None)

    @pytest.mark.parametrize("said", [b"", b"\0\0\0\x09\x0c"])
    def test_one_that_says_nothing_is_not_waited_for(
        self, listening: Callable[[bytes], Path], said: bytes
    ) -> None:
        path = listening(said)
        with pytest.raises(AgentError, match=r"no answer in 0\.2 s"), connect(path, 0.2) as agent:
            agent.list_keys()

    def test_a_signature_that_does_not_hold_is_no_signature(
        self, listening: Callable[[bytes], Path]
    ) -> None:
        key = AgentKey("agent:x", PUBLIC, listening(answer(14, string(SIGNATURE))))
        with pytest.raises(AgentError, match="signature is not valid"):
            key.sign(b"m")

    @pytest.mark.parametrize(
        ("keys", "wanted", "told"),
        [
            ((), None, "no ed25519 key"),
            ((PUBLIC, bytes(32)), None, "2 ed25519 keys"),
            ((PUBLIC,), "SHA256:x", "does not hold"),
            ((PUBLIC,), PUBLIC.hex(), "does not hold"),
        ],
    )
    def test_the_key_is_not_there(
        self,
        listening: Callable[[bytes], Path],
        keys: tuple[bytes, ...],
        wanted: str | None,
        told: str,
    ) -> None:
        path = listening(listed(*((public_blob(key), b"") for key in keys)))
        with pytest.raises(AgentError, match=told):
            agent_key(path, wanted)

    @pytest.mark.parametrize(
        ("keys", "wanted", "told"),
        [
            ((ON_TOKEN, RSA), None, "no ed25519 key, only sk-ssh-ed25519@openssh.com, ssh-rsa$"),
            ((ON_TOKEN,), blob_fingerprint(ON_TOKEN), "is a key on a token: .* a counter"),
            ((RSA, public_blob(PUBLIC)), blob_fingerprint(RSA), "ssh-rsa is another type of key"),
        ],
    )
    def test_a_key_of_another_type_is_passed_over_by_name(
        self,
        listening: Callable[[bytes], Path],
        keys: tuple[bytes, ...],
        wanted: str | None,
        told: str,
    ) -> None:
        path = listening(listed(*((key, b"") for key in keys)))
        with pytest.raises(AgentError, match=told):
            agent_key(path, wanted)

    def test_the_only_ed25519_key_is_taken_among_others(
        self, listening: Callable[[bytes], Path]
    ) -> None:
        path = listening(listed((ON_TOKEN, b""), (public_blob(PUBLIC), b""), (RSA, b"")))
        assert agent_key(path, None).public_key == PUBLIC

    def test_of_several_keys_the_one_that_is_named(
        self, listening: Callable[[bytes], Path]
    ) -> None:
        path = listening(listed((public_blob(bytes(32)), b""), (public_blob(PUBLIC), b"")))
        assert agent_key(path, fingerprint(PUBLIC)).public_key == PUBLIC


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A real ssh-agent's socket."""
    path = tmp_path / "agent"
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.readline()  # it says where it listens once it does
    yield path
    process.send_signal(signal.SIGTERM)
    process.wait()
    process.stdout.close()


def ssh_add(path: Path, *arguments: str | Path) -> str:
    done = subprocess.run(
        ["ssh-add", *arguments],
        env={**os.environ, "SSH_AUTH_SOCK": str(path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode()


@needs_agent
class TestRealAgent:
    def test_it_signs(self, running: Path, tmp_path: Path) -> None:
        file = new_key(tmp_path / "key")
        ssh_add(running, file)
        ssh_add(running, new_key(tmp_path / "other", "ecdsa"))
        public = parse_secret_key(file.read_bytes(), "k").public_key
        told = ssh_add(running, "-l").splitlines()[0].split()[1]
        for wanted in (None, told):
            key = agent_key(running, wanted)
            assert (key.public_key, key.name) == (public, f"agent:{told}")
            VerifyKey(public).verify(b"message", key.sign(b"message"))
        with connect(running, 10) as agent:
            held = agent.list_keys()
        assert held.keys == (Identity(public, "a b@c"),)
        assert [other.kind for other in held.others] == ["ecdsa-sha2-nistp256"]

    def test_it_refuses_what_it_does_not_hold(self, running: Path, tmp_path: Path) -> None:
        with pytest.raises(AgentError, match="no ed25519 key"):
            agent_key(running, None)
        with pytest.raises(AgentError, match="refuses to sign"):
            AgentKey("x", PUBLIC, running).sign(b"m")
        ssh_add(running, new_key(tmp_path / "key"))
        key = agent_key(running, None)
        ssh_add(running, "-D")
        with pytest.raises(AgentError, match="refuses to sign"):
            key.sign(b"m")

    def test_a_long_message(self, running: Path, tmp_path: Path) -> None:
        ssh_add(running, new_key(tmp_path / "key"))
        key = agent_key(running, None)
        message = bytes(100_000)
        VerifyKey(key.public_key).verify(message, key.sign(message))
