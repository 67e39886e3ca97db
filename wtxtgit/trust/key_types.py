"""Keys and options of OpenSSH that say nothing here, each by name and with the reason.

`docs/keys.md`, section "What is not taken".
"""

from __future__ import annotations

import re

KEY_TYPES = re.compile(
    r"(?:sk-)?(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-[a-z0-9]+)(?:-cert-v01)?(?:@openssh\.com)?"
)
"""The first word of a public key's line."""

_CERTIFICATE = re.compile(r".*-cert-v01@openssh\.com")
_SK = "sk-"
_OPTION = re.compile(r"([A-Za-z][A-Za-z0-9-]*)(?:=.*|,.*)?", re.DOTALL)
_CLOCKED = ("valid-after", "valid-before")
_WHY_NO_OPTION = {
    "cert-authority": "no certificate is read here, a signer stands in a line of their own",
    "namespaces": "a key of a signer signs what is sealed here, and nothing else is asked of it",
}


def why_no_key(kind: str) -> str:
    """Why a key of this type, or a line that begins with this word, is not taken."""
    if _CERTIFICATE.fullmatch(kind):
        return (
            f"{kind} is a certificate: it holds from one time to another, and no clock decides here"
        )
    if KEY_TYPES.fullmatch(kind) is None:
        return why_no_option(kind)
    if kind.startswith(_SK):
        return (
            f"{kind} is a key on a token: it signs a hash of the message together with flags and "
            "a counter, for which a signature here has no room"
        )
    return f"{kind} is a key of another type: signatures here are of ssh-ed25519 keys"


def why_no_option(word: str) -> str:
    """Why a line is not taken in which this word stands before the type of its key."""
    match = _OPTION.fullmatch(word)
    if match is None:
        return f'"{word}" is neither ssh-ed25519 nor an option'
    option = match[1].lower()
    if option in _CLOCKED:
        return (
            f"{option} is an option that asks a clock, and no clock decides here: a signer is one "
            "until the line is removed"
        )
    if option in _WHY_NO_OPTION:
        return f"{option} is an option that is not taken: {_WHY_NO_OPTION[option]}"
    return f'"{match[1]}" is an option or another type of key, and only ssh-ed25519 is taken'
