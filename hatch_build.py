"""What the packages hold besides the source tree: the man pages, if `make man` made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MADE = Path("build", "man")
SENT = Path("man")
"""Where they are in a source package, of which the wheel is built."""


class ManPages(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = next((f for f in (MADE, SENT) if Path(self.root, f).is_dir()), None)
        if folder is None or version == "editable":
            return
        for page in sorted(Path(self.root, folder).glob("*.1")):
            if self.target_name == "wheel":
                build_data["shared_data"][str(page)] = f"share/man/man1/{page.name}"
            else:
                build_data["force_include"][str(page)] = str(SENT / page.name)
