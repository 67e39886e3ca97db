"""The commands and hooks that are killed, and what each starts from.

`CASES` is the table: whatever writes files, the index, git's configuration, keys or rings.
"""

from __future__ import annotations

from tests.torture.cases.by_git import BY_GIT
from tests.torture.cases.files import FILES
from tests.torture.cases.migrations import MIGRATIONS
from tests.torture.cases.payload import PAYLOAD
from tests.torture.cases.rings import RINGS
from tests.torture.cases.setup import SETUP
from tests.torture.cases.trust import TRUST

CASES = (*FILES, *TRUST, *SETUP, *RINGS, *PAYLOAD, *MIGRATIONS, *BY_GIT)
