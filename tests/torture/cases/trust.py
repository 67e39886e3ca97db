"""Commands that write keys, signers and ledgers."""

from __future__ import annotations

import subprocess

from tests.kit import safetensors
from tests.torture.cases.places import Killed, Place
from tests.torture.cases.starts import (
    KEY,
    MODEL,
    NEW,
    OLD,
    OTHER,
    keys,
    plain,
    sealed,
    signers,
    unsealed,
)


def both_changed(place: Place) -> None:
    unsealed(place)
    place.call("seal", *KEY)
    place.write(OTHER, NEW)


def both_staged(place: Place) -> None:
    signers(place)
    for name in (MODEL, OTHER):
        place.write(name, NEW)
    place.call("add", ".")


def imported(place: Place) -> None:
    plain(place)
    made = ("-q", "-t", "ed25519", "-N", "", "-C", "", "-f", place.top / "openssh")
    subprocess.run(("ssh-keygen", *made), check=True)


def audited(place: Place) -> None:
    sealed(place)
    place.git("config", "wtxtgit.trustRoot", "HEAD~1")


def sealed_once(place: Place) -> None:
    """Sealed by one of two, and staged."""
    sealed(place)
    place.call("seal", "--staged", *KEY)


def moved(place: Place) -> None:
    """A sealed checkpoint under another name."""
    sealed_once(place)
    place.commit()
    place.git("mv", MODEL, "moved.safetensors")


def deleted(place: Place) -> None:
    """A sealed checkpoint that is gone."""
    sealed_once(place)
    place.commit()
    place.git("rm", "-q", MODEL)


def not_counting(place: Place) -> None:
    """A merge that brings a record of somebody whom the signers do not name any more."""
    unsealed(place)
    place.call("seal", "--staged", *KEY)
    place.commit()
    place.git("tag", "root")
    place.git("checkout", "-q", "-b", "side")
    place.write(MODEL, OLD)
    place.call("add", MODEL)
    place.call("seal", "--staged", "--key", "bob")
    place.commit()
    place.git("checkout", "-q", "main")
    place.call("signers", "remove", "bob@example.com")
    place.git("add", ".wtxt")
    place.call("seal", "--staged", *KEY)
    place.commit()
    place.git("merge", "-q", "--no-edit", "side")


def four_generations(place: Place) -> None:
    """A trust root, and three commits after it; the last but one has a tag."""
    signers(place)
    place.call("seal", *KEY)
    place.commit()
    place.git("tag", "root")
    for number in range(3):
        place.write(MODEL, safetensors(*range(number, 300)))
        place.call("add", MODEL)
        place.call("seal", "--staged", *KEY)
        place.commit()
        if number == 1:
            place.git("tag", "-a", "-m", "t", "v1")


TRUST = (
    Killed("key new", plain, ("key", "new", "--name", "alice", "--no-passphrase"), is_random=True,
           over=2),
    Killed("key import", imported,
           ("key", "import", "../openssh", "--name", "carol", "--no-passphrase"), is_random=True,
           over=2),
    Killed("signers add", keys, ("signers", "add", "alice@example.com", "alice")),
    Killed("signers remove", signers, ("signers", "remove", "bob@example.com"), over=2),
    Killed("signers threshold", signers, ("signers", "threshold", "2")),
    Killed("seal", unsealed, ("seal", *KEY), is_random=True),
    Killed("seal --staged", sealed, ("seal", "--staged", *KEY), is_random=True),
    Killed("seal --reseal", sealed, ("seal", "--reseal", *KEY), is_random=True),
    Killed("seal --cosign", sealed_once, ("seal", "--cosign", "--key", "bob"), is_random=True,
           over=2),
    Killed("seal --countersign", not_counting,
           ("seal", "--countersign", *KEY, "--trust-root", "root"), is_random=True),
    Killed("seal: moved", moved, ("seal", "--staged", *KEY), is_random=True),
    Killed("seal: deleted", deleted, ("seal", "--staged", *KEY, MODEL), is_random=True),
    Killed("check", sealed_once, ("check", "--staged")),
    Killed("audit", audited, ("audit",), is_random=True),
    Killed("release", four_generations,
           ("release", "v1", "--trust-root", "root", *KEY, "-o", "model.sig")),
)  # fmt: skip
