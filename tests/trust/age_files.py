"""Another writer of age's passphrase files (C2SP, age.md), with any scrypt cost."""

from __future__ import annotations

import hmac
import os
from base64 import b64encode

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt


def encrypted(plain: bytes, passphrase: str, work: int = 4, *, claimed: int | None = None) -> bytes:
    """Encrypt at the cost 2^work, in a header that claims the cost 2^claimed."""
    file_key, salt, nonce = os.urandom(16), os.urandom(16), os.urandom(16)
    salted = b"age-encryption.org/v1/scrypt" + salt
    wrap = Scrypt(salt=salted, length=32, n=2**work, r=8, p=1).derive(passphrase.encode())
    wrapped = ChaCha20Poly1305(wrap).encrypt(bytes(12), file_key, None)
    cost = work if claimed is None else claimed
    header = b"age-encryption.org/v1\n-> scrypt %b %d\n%b\n---" % (_b64(salt), cost, _b64(wrapped))
    mac = hmac.digest(_hkdf(file_key, None, b"header"), header, "sha256")
    payload = ChaCha20Poly1305(_hkdf(file_key, nonce, b"payload"))
    # One chunk, the last: its counter is 0, its final byte 1.
    return (
        header + b" " + _b64(mac) + b"\n" + nonce + payload.encrypt(bytes(11) + b"\1", plain, None)
    )


def armored(binary: bytes) -> bytes:
    body = b64encode(binary)
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    begin, end = b"-----BEGIN AGE ENCRYPTED FILE-----", b"-----END AGE ENCRYPTED FILE-----"
    return b"\n".join([begin, *lines, end, b""])


def _b64(data: bytes) -> bytes:
    return b64encode(data).rstrip(b"=")


def _hkdf(key: bytes, salt: bytes | None, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, info).derive(key)
