"""Merges of the driver: recorded, done alike by the other repository's driver, and proven.

Git without wtxtgit can't merge tensors. So what wtxtgit's driver makes of three files is written
down by the files' bytes; plain git's driver looks it up, and both go on from the same. That a
result is right is proven here, by readers that are not ours.
"""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tests.e2e.weights import Model
from tests.kit import LAUNCHER
from tests.torture.operations.contents import is_made_here, read
from wtxtgit.filter.smudge import smudge

Tensor = NDArray[Any] | None

_RECORD = """\
place=$(mktemp -d "$1/XXXXXXXX") && shift
cp "$1" "$place/base" && cp "$2" "$place/ours" && cp "$3" "$place/theirs"
printf %s "$4" > "$place/name"
ours=$2
shift 4
"$@"
code=$?
cp "$ours" "$place/result"
echo $code > "$place/code"
exit $code
"""
_LOOK_UP = """\
key=$(git hash-object --no-filters "$2" "$3" "$4" | tr '\\n' -)
[ -e "$1/$key" ] || exit 200
cat "$1/$key" > "$3"
exit "$(cat "$1/$key.code")"
"""


def raw_of(blob: bytes) -> bytes:
    """The file that a blob stands for."""
    return b"".join(map(bytes, smudge(memoryview(blob), threads=1).pieces()))


def blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()  # noqa: S324 - git's


class Merges:
    """The merges of a history; `kinds` counts how each was proven."""

    def __init__(self, folder: Path) -> None:
        self._recorded, self._known = folder / "recorded", folder / "known"
        self.kinds: Counter[str] = Counter()
        for place in (self._recorded, self._known):
            place.mkdir(parents=True)
        self._record, self._look_up = folder / "record.sh", folder / "look-up.sh"
        self._record.write_text(_RECORD)
        self._look_up.write_text(_LOOK_UP)

    def recording(self) -> dict[str, str]:
        """Configuration of the repository with wtxtgit."""
        record = shlex.join(["sh", str(self._record), str(self._recorded)])
        made = {}
        for driver, option in (("wtxt", ""), ("wtxt-ledger", "--ledger ")):
            command = LAUNCHER.command(f"merge-driver {option}-- %O %A %B %L %P")
            made[f"merge.{driver}.driver"] = f"{record} %O %A %B %P {command}"
        return made

    def looking_up(self) -> dict[str, str]:
        """Configuration of the one without."""
        look_up = shlex.join(["sh", str(self._look_up), str(self._known)])
        drivers = ("wtxt", "wtxt-ledger")
        commands = {f"merge.{driver}.driver": f"{look_up} %O %A %B" for driver in drivers}
        return commands | {f"merge.{driver}.recursive": "binary" for driver in drivers}

    def learn(self) -> list[str]:
        """Let plain git know of the merges since the last time; gives what is wrong with them."""
        wrong = []
        for place in sorted(self._recorded.iterdir()):
            name = (place / "name").read_text()
            parts = ("base", "ours", "theirs", "result")
            blobs = [(place / part).read_bytes() for part in parts]
            code = int((place / "code").read_text())
            base, ours, theirs, result = map(raw_of, blobs)
            key = "-".join(map(blob_id, (base, ours, theirs))) + "-"
            known = self._known / key
            if known.exists() and known.read_bytes() != result:
                wrong.append(f"{name}: merged again it is another file")
            known.write_bytes(result)
            known.with_name(f"{key}.code").write_text(str(code))
            told = self._proof(name, base, ours, theirs, result, code)
            if told:
                wrong.append(f"{name}: {told}")
            for file in place.iterdir():
                file.unlink()
            place.rmdir()
        return wrong

    def _proof(
        self, name: str, base: bytes, ours: bytes, theirs: bytes, result: bytes, code: int
    ) -> str:
        if code not in (0, 1):
            return f"the merge driver ended with {code}"
        if code == 1:
            self.kinds["merge driver: in conflict"] += 1
            if result != ours:
                return "in conflict it is not ours"
        elif result in (ours, theirs):
            self.kinds["merge driver: one side taken"] += 1
            other = theirs if result == ours else ours
            if name.endswith(".wsum"):
                return ""
            if other not in (base, result) and not _says(name, base, other, result):
                return "one side is taken though the other one changed it"
            return ""
        old = _base(name, base)
        mine, other_model = (read(name, side) if side else None for side in (ours, theirs))
        if old is None or mine is None or other_model is None:
            if code == 0:
                self.kinds["merge driver: merged, no reader but ours"] += 1
            return ""
        wanted = merged(old, mine, other_model)
        if code == 1:
            # In other files more may be in conflict than tensors; damaged ones are not merged.
            is_simple = all(is_made_here(name, side) for side in (ours, theirs) if side)
            told = "a conflict, though no row changed on both sides"
            return told if is_simple and wanted is not None else ""
        found = read(name, result)
        self.kinds["merge driver: merged by rows, proven"] += 1
        if wanted is None:
            return "merged, though a row changed on both sides"
        if found is None or not same(found, wanted):
            return "the merged file does not hold what each side changed"
        return ""


def _base(name: str, content: bytes) -> Model | None:
    """What both sides began with: nothing, where both added the file."""
    return read(name, content) if content else {}


def _says(name: str, base: bytes, other: bytes, result: bytes) -> bool:
    """Whether a side that is not taken holds nothing of its own but another spelling."""
    old, unused, taken = _base(name, base), read(name, other), read(name, result)
    # Dtypes that numpy lacks: nobody but us reads them.
    if old is None or unused is None or taken is None:
        return True
    wanted = merged(old, unused, taken)
    return wanted is not None and same(wanted, taken)


def same(left: Model, right: Model) -> bool:
    return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)


def _same(left: Tensor, right: Tensor) -> bool:
    if left is None or right is None:
        return left is right
    return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


def merged(base: Model, ours: Model, theirs: Model) -> Model | None:
    """What each side changed of the other one's base, by rows; None where both changed a row."""
    made: Model = {}
    for name in sorted(base.keys() | ours.keys() | theirs.keys()):
        old, mine, other = base.get(name), ours.get(name), theirs.get(name)
        if _same(old, mine) or _same(mine, other):
            taken = other
        elif _same(old, other):
            taken = mine
        else:
            taken = _merged_rows(old, mine, other)
            if taken is None:
                return None
        if taken is not None:
            made[name] = taken
    return made


def _merged_rows(old: Tensor, mine: Tensor, other: Tensor) -> Tensor:
    """Of a tensor that both sides changed; None where it has no rows, or both changed one."""
    if old is None or mine is None or other is None or not old.ndim:
        return None
    if {(one.dtype, one.shape) for one in (mine, other)} != {(old.dtype, old.shape)}:
        return None
    made = mine.copy()
    for number in range(len(old)):
        row, ours, theirs = (one[number : number + 1] for one in (old, mine, other))
        if _same(row, ours):
            made[number] = other[number]
        elif not (_same(row, theirs) or _same(ours, theirs)):
            return None
    return made
