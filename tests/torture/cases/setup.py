"""Commands that write git's configuration, hooks and attributes."""

from __future__ import annotations

from tests.kit import ATTRIBUTES
from tests.torture.cases.places import CONFIG, Killed, Place
from tests.torture.cases.starts import NEW, OTHER, changed, damaged, missing, plain


def ill(place: Place) -> None:
    """All that `doctor --fix` mends."""
    damaged(place)
    (place.repo / OTHER).write_bytes(place.git("cat-file", "blob", f"HEAD:{OTHER}"))
    place.git("update-index", "-q", "--refresh", ok=None)
    place.write("raw.safetensors", NEW)
    place.write(".gitattributes", f"*.safetensors {ATTRIBUTES}\n*.npz filter=wtxt\n".encode())
    off = ("filter.wtxt.process=", "filter.wtxt.clean=", "filter.wtxt.required=false")
    settings = [word for setting in off for word in ("-c", setting)]
    place.git(*settings, "add", "raw.safetensors")
    place.git("config", "--global", "--unset", "diff.wtxt.command")


def installed(place: Place) -> None:
    """With the driver and all hooks, beside a hook of somebody else's."""
    plain(place)
    hook = place.repo / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    place.call("install", "--local", "--hooks")


def bare_home(place: Place) -> None:
    """Texts in the work tree, and no driver; a hook of somebody else's."""
    missing(place)
    (place.top / "home/.gitconfig").write_text(CONFIG)
    hook = place.repo / ".git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)


SETUP = (
    Killed("install", bare_home, ("install", "--hooks")),
    Killed("install --hooks", missing, ("install", "--local", "--hooks")),
    Killed("uninstall", installed, ("uninstall", "--local")),
    Killed("uninstall --global", missing, ("uninstall",)),
    Killed("track", changed, ("track", "*.npz")),
    Killed("untrack", changed, ("untrack", "*.safetensors"), over=2),
    Killed("doctor --fix", ill, ("doctor", "--fix")),
)  # fmt: skip
