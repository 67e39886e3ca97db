"""A step: what a commit adds to the state, and which rules it violates.

Pure: a tree and the state before it go in, the state after it and the violations come out. The
rules are those of `docs/spec/trust.md`, "A step"; comments have their numbers. What violates a rule
adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wtxtgit.model.ledger import (
    LEDGER_SUFFIX,
    NO_REPO,
    SIGNERS_LEDGER,
    SIGNERS_PATH,
    Ledger,
    equal_records,
    extends,
    shared,
)
from wtxtgit.trust.state import (
    Introduction,
    LedgerLine,
    LineId,
    SignedBy,
    SignersContent,
    SignersState,
    Tree,
    TrustState,
    Violation,
    accepted_length,
    added,
    begins,
    comes_after,
    cut,
    held_ledgers,
    is_later,
    lets_go,
    line_of,
    open_ledgers,
    quoted,
    reuse,
    sole_ledgers,
    standing_lengths,
)


def step(tree: Tree, before: TrustState, signed_by: SignedBy) -> tuple[TrustState, list[Violation]]:
    """Return the state after a commit and its violations; `before` joins the states of its
    parents.
    """
    work = _StepWork(tree, before, signed_by)
    work.take_signers()  # (1)
    work.take_ledgers()  # (2)
    failed = [one for one in work.violations if one.path == SIGNERS_PATH]
    if before.is_signed and work.has_changed_signers and failed:
        # Otherwise signers whose own ledger is not accepted would be the newest, and nothing could
        # follow them.
        work = _StepWork(tree, before, signed_by)
        work.refuse_signers("its ledger is not valid")
        work.take_ledgers()
        work.violations += failed
    return work.after(), list(dict.fromkeys(work.violations))


class _StepWork:
    """A step in progress."""

    def __init__(self, tree: Tree, before: TrustState, signed_by: SignedBy) -> None:
        self._tree = tree
        self._before = before
        self._signed_by = signed_by
        self._open = open_ledgers(before, signed_by)
        self._signers = before.signers
        self._lines: dict[LineId, LedgerLine] = {}
        """The lines that the commit changes, as they are after it."""
        self._keys = before.trusted
        """Keys that are trusted before or after the commit."""
        self._is_refused = False
        """Whether the tree has a change of the signers that does not count."""
        self._repos = self._known_repos()
        self._is_first_repo = not self._repos
        self._tree_ledgers: dict[LineId, list[tuple[bytes, Ledger]]] = {}
        self._joined: set[Ledger] = set()
        self._deleted: list[Ledger] = []
        """Open ledgers that have released their places, and that no ledger of the tree extends."""
        self.violations: list[Violation] = []

    def after(self) -> TrustState:
        before = self._before
        places = before.places | self._tree.artifacts  # (3)
        if len(places) == len(before.places):
            places = before.places
            if not self._lines and not self.has_changed_signers:
                return before
        lines = {**before.lines, **self._lines}
        state = TrustState(before.signers, lines, places, before.introductions)
        if self.has_changed_signers:
            # All that is held here counts under the changed signers as well.
            ledgers = frozenset(
                one for name in lines for one in held_ledgers(state, name, self._signed_by)
            )
            introductions = before.introductions | {
                Introduction(one, ledgers) for one in self._signers - before.signers
            }
            state = TrustState(self._signers, lines, places, introductions)
        reuse(state, before)
        return state

    def _line(self, name: LineId) -> LedgerLine:
        return self._lines.get(name) or self._before.lines.get(name) or LedgerLine()

    def _report(self, kind: str, path: bytes, message: str, gen: int | None = None) -> None:
        self.violations.append(Violation(kind, path, message, gen))

    # (1) Signers.

    @property
    def has_changed_signers(self) -> bool:
        return self._signers is not self._before.signers

    def take_signers(self) -> None:
        """Follow a change of the signers if the previous ones have sealed it."""
        newest = self._before.newest
        file, ledger = self._tree.signers, self._tree.ledgers.get(SIGNERS_LEDGER)
        # A trust root that is a file is never replaced: `docs/spec/trust.md`, "State".
        if any(one.is_fixed for one in newest) or self._is_as_before(file, ledger):
            return
        reason = self._why_refused(file, ledger)
        if reason is not None:
            self.refuse_signers(reason)
            return
        if ledger is not None and ledger.place != SIGNERS_PATH:
            ledger = None  # the first file, beside which another one's stands
        accepted = SignersState(file, ledger)
        if ledger is not None:
            self._repos |= {ledger.records[0].merkle_this}
            # All previous signers have sealed it, including those whose own ledger is not accepted
            # beside others.
            for old in newest:
                if old.keys and old.ledger is not None and not begins(old.ledger, ledger):
                    self._add_joined(old.ledger, ledger)
        self._signers = self._before.signers | {accepted}
        self._keys |= accepted.keys

    def refuse_signers(self, reason: str) -> None:
        self._is_refused = True
        message = f"{reason}; the signers stay as before"
        self._report("signers-changed", SIGNERS_PATH, message)

    def _is_as_before(self, file: SignersContent | None, ledger: Ledger | None) -> bool:
        """Tell whether a tree has the newest signers, and no record about them that was not
        there.
        """
        newest = self._before.newest
        if file is None and self._tree.signers_fault is None:
            return not any(one.keys for one in newest)
        if file is None or len(newest) != 1:
            return False
        (one,) = newest
        if not file.keys and not one.keys:
            return True
        if one.file is None or file.sha256_all != one.file.sha256_all:
            return False
        return ledger is None or (one.ledger is not None and begins(ledger, one.ledger))

    def _why_refused(self, file: SignersContent | None, ledger: Ledger | None) -> str | None:
        """Return why a signers file changes nothing; None if it is sealed as all newest states
        demand.
        """
        newest = self._before.newest
        deciding = [one for one in newest if one.file is not None and one.keys]
        if file is None:
            return self._tree.signers_fault or "the file is gone"
        if not file.keys:
            return "it names no signer"
        if not deciding:
            # Trust on first use, which callers have to report.
            return None
        # From here on in the order of the spec: place, extension, content, time, keys, threshold.
        if ledger is None:
            return "its change is not sealed"
        if ledger.place != SIGNERS_PATH:
            return "its ledger belongs to another path"
        if not any(one.ledger is None or extends(ledger, one.ledger) for one in newest):
            return "its ledger does not extend the trusted one"
        if ledger.last.sha256_all != file.sha256_all:
            return "its change is not sealed: the last record is for different content"
        if any(one.ledger is not None and begins(ledger, one.ledger) for one in newest):
            return "two changes of the signers were merged, and neither is sealed by both sides"
        if any(one.ledger is not None and not is_later(ledger.last, one.ledger) for one in newest):
            return "its record is not later than those of all other changes of the signers"
        if file.keys & self._removed_keys(ledger):
            return "it brings back a key that the other side removed"
        for one in deciding:
            valid = self._signed_by(ledger, len(ledger.records) - 1, one.keys).valid
            count = one.file.count(valid) if one.file is not None else 0
            if count < one.threshold:
                return f"it is sealed by {count} of the previous signers, but needs {one.threshold}"
        return None

    def _removed_keys(self, ledger: Ledger) -> frozenset[bytes]:
        """Return keys that newest signers have removed in histories that this ledger does not
        continue.

        Whoever sealed the ledger may not have known of that.
        """
        diverged = [
            one
            for one in self._before.newest
            if one.ledger is not None and not begins(one.ledger, ledger)
        ]
        return frozenset(
            key
            for one in diverged
            for old in self._before.signers
            if comes_after(one, old)
            for key in old.keys - one.keys
        )

    # (2) Ledgers.

    def take_ledgers(self) -> None:
        ledgers = self._tree.ledgers
        sole = sole_ledgers(self._before)
        as_before = {path for path, one in sole.items() if ledgers.get(path) is one}
        changed = [path for path in ledgers if path not in as_before]
        for path in changed:
            self._tree_ledgers.setdefault(line_of(ledgers[path]), []).append((path, ledgers[path]))
        for name, tree_ledgers in self._tree_ledgers.items():
            paths = (one.place + LEDGER_SUFFIX for one in self._open.get(name, ()))
            tree_ledgers += [(path, ledgers[path]) for path in paths if path in as_before]
        not_extended = [
            one
            for name, open_ones in self._open.items()
            for one in open_ones
            if one.place + LEDGER_SUFFIX not in as_before
            and not any(extends(other, one) for _, other in self._tree_ledgers.get(name, ()))
        ]
        # Only a ledger that released its place may be missing; (2.5) requires more if another
        # ledger is there.
        missing = [one for one in not_extended if not lets_go(one)]
        self._deleted = [one for one in not_extended if lets_go(one)]
        # An unchanged ledger is checked again if others have its line or its place.
        rechecked = {
            path
            for tree_ledgers in self._tree_ledgers.values()
            for path, _ in tree_ledgers
            if path in as_before
        } | ({one.place + LEDGER_SUFFIX for one in missing} & as_before)
        # The signers' ledger first: other ledgers refer to the repository by it.
        for path in sorted({*changed, *rechecked}, key=lambda path: (path != SIGNERS_LEDGER, path)):
            self._take_ledger(path, ledgers[path], missing)
        rewritten = {one.path for one in self.violations if one.kind == "ledger-rewritten"}
        for one in missing:
            if one not in self._joined and one.place not in rewritten:
                self._report_missing(one)

    def _take_ledger(self, path: bytes, ledger: Ledger, missing: Sequence[Ledger]) -> None:
        place, name = path.removesuffix(LEDGER_SUFFIX), line_of(ledger)
        known = self._open.get(name, ())
        is_at_place = ledger.place == place
        same_line = self._tree_ledgers.get(name, [(path, ledger)])
        continued = [one for one in known if extends(ledger, one)]
        if not is_at_place:  # (2.1)
            if not self._is_moved(ledger, continued):
                self._report("bad-record", place, f"the ledger belongs to {quoted(ledger.place)}")
                return
            message = f"it was moved from {quoted(ledger.place)}, but the move is not sealed"
            self.violations.append(Violation("moved-unsealed", place, message, moved=ledger))
        if known and not continued:  # (2.2)
            self._report("ledger-rewritten", place, _why_not_continued(ledger, known))
            return
        # (2.3) A ledger of another repository proves nothing about this one.
        if name not in self._before.lines and not self._is_of_repository(path, ledger):
            self._report("bad-record", place, "the ledger belongs to another repository")
            return
        # (2.4) Of two copies of a ledger the one that continued counts; the other lacks records.
        if any(other_path != path and begins(ledger, other) for other_path, other in same_line):
            self._report("ledger-rewritten", place, "the ledger has been continued at another path")
            return
        # (2.5) Whoever joins histories must have known all of them, which a later record proves.
        others = [one for one in missing if one.place == ledger.place]
        can_join = any(one.place == ledger.place for one in continued) or all(
            line_of(one) == name for one in others
        )
        if others and not (can_join and self._has_joining_record(name, ledger, others)):
            not_joined = (
                "both sides added records, and no later record by a key that is trusted now "
                "joins them"
            )
            message = not_joined if can_join else "another ledger is in its place"
            self._report("ledger-rewritten", place, message)
            return
        deleted = [one for one in self._deleted if one.place == ledger.place]
        if not all(is_later(ledger.last, one) for one in deleted):
            message = "it is older than a sealed deletion, and no later record brings it back"
            self._report("ledger-rewritten", place, message)
            return
        self._take_records(path, ledger, others)

    def _take_records(self, path: bytes, ledger: Ledger, others: Sequence[Ledger]) -> None:
        """Add a ledger's records up to the first that violates a rule: (2.6)."""
        place, name = path.removesuffix(LEDGER_SUFFIX), line_of(ledger)
        line = self._before.lines.get(name) or LedgerLine()
        accepted = accepted_length(self._before, ledger, self._signed_by)
        if path == SIGNERS_LEDGER and self._is_refused:
            return  # its records count with the change that they seal
        # A record that a known ledger has with the same signatures got no new one.
        known = max((equal_records(ledger, one) for one, _ in line.stands), default=0)
        bad = [
            n
            for n in range(known, accepted)
            if self._report_fault(place, ledger, n, self._why_not_added(line, ledger, n))
        ]
        if bad:
            return
        # Records after one that does not count are not examined, because they continue from it.
        length = accepted
        while length < len(ledger.records):
            if self._report_fault(place, ledger, length, self._why_not_signed(ledger, length)):
                break
            length += 1
        if length:
            self._add(name, cut(ledger, length), is_sealed=length > accepted)
            if path == SIGNERS_LEDGER:
                self._repos |= {ledger.records[0].merkle_this}
        if length == len(ledger.records):
            self._joined.update(others)
            for one in others:
                self._add_joined(one, ledger)

    def _add(self, name: LineId, ledger: Ledger, *, is_sealed: bool) -> None:
        """Add a ledger, under all signers states if its last record was sealed in this step.

        Otherwise only under those for which it needs no introduction, since there may be more
        introductions than are known here.
        """
        before = self._line(name)
        signers = self._before.signers
        # Nothing to add: a longer ledger with the same records is known.
        if not is_sealed and any(extends(other, ledger) for other, _ in before.stands):
            return
        if not is_sealed:
            length, last = len(ledger.records), len(ledger.records) - 1
            lengths = standing_lengths(self._before, before, ledger)
            signers = frozenset(
                one
                for one in signers
                if lengths[one] == length
                or not one.keys
                or self._signed_by(ledger, last, one.keys).valid
            )
        line = added(before, ledger, signers)
        if line is not before:
            self._lines[name] = line

    def _add_joined(self, one: Ledger, by: Ledger) -> None:
        line = self._line(line_of(one))
        self._lines[line_of(one)] = LedgerLine(line.stands, line.joined | {(one, by)})

    def _report_fault(
        self, place: bytes, ledger: Ledger, n: int, fault: tuple[str, str] | None
    ) -> bool:
        if fault is not None:
            kind, message = fault
            gen = ledger.records[n].meta.gen
            self._report(kind, place, f"generation {gen} {message}", gen)
        return fault is not None

    def _why_not_signed(self, ledger: Ledger, n: int) -> tuple[str, str] | None:
        """Return why a record that is not accepted yet does not count; None if it does."""
        signed = self._signed_by(ledger, n, self._keys)
        if signed.invalid:
            return "bad-signature", f"has a signature that was not made by key {signed.invalid[0]}"
        if signed.valid or not (self._before.is_signed or self._keys):
            return None
        if not ledger.records[n].signatures:
            return "missing-signature", "is not signed"
        return "untrusted-signer", "is not signed by any key that is trusted now"

    def _why_not_added(self, line: LedgerLine, ledger: Ledger, n: int) -> tuple[str, str] | None:
        """Return why signatures that were added to an accepted record do not count; None if they
        do.
        """
        record = ledger.records[n]
        known_signatures = {
            signature
            for other, _ in line.stands
            if n < len(other.records) and other.records[n].merkle_this == record.merkle_this
            for signature in other.records[n].signatures
        }
        added = {one.keyid for one in record.signatures if one not in known_signatures}
        if not added:
            return None
        signed = self._signed_by(ledger, n, self._keys)
        for keyid in signed.invalid:
            if keyid in added:
                return "bad-signature", f"has a signature that was not made by key {keyid}"
        for keyid in signed.unknown:
            if keyid in added and (self._before.is_signed or self._keys):
                return "untrusted-signer", f"got a signature by key {keyid}, which is not trusted"
        return None

    def _has_joining_record(self, name: LineId, ledger: Ledger, others: Sequence[Ledger]) -> bool:
        """Tell whether an unknown record is later than all others, and signed by a currently
        trusted key.
        """
        line = self._before.lines.get(name) or LedgerLine()
        known = max((shared(ledger, other) for other, _ in line.stands), default=0)
        later = [
            n
            for n in range(known, len(ledger.records))
            if all(is_later(ledger.records[n], one) for one in others)
        ]
        if not (self._before.is_signed or self._keys):
            return bool(later)
        return any(self._signed_by(ledger, n, self._keys).valid for n in later)

    def _is_moved(self, ledger: Ledger, continued: Sequence[Ledger]) -> bool:
        """Tell whether a ledger was moved with its file, and nothing remained in its old place."""
        old_path = ledger.place + LEDGER_SUFFIX
        old_remains = old_path in self._tree.ledgers or old_path in self._tree.broken
        return bool(continued) and not old_remains and old_path != SIGNERS_LEDGER

    def _known_repos(self) -> frozenset[bytes]:
        """Return the ids that ledgers may use for the repository: first records of signers'
        ledgers.
        """
        ledgers = [one.ledger for one in self._before.signers if one.ledger is not None]
        for open_ones in self._open.values():
            ledgers += [one for one in open_ones if one.place == SIGNERS_PATH]
        return frozenset(ledger.records[0].merkle_this for ledger in ledgers)

    def _is_of_repository(self, path: bytes, ledger: Ledger) -> bool:
        """Tell whether a ledger that begins here names this repository.

        A ledger that began before there were signers may come in together with them.
        """
        if path == SIGNERS_LEDGER:
            return ledger.head.repo == NO_REPO
        return ledger.head.repo in self._repos or (
            ledger.head.repo == NO_REPO and self._is_first_repo
        )

    def _report_missing(self, ledger: Ledger) -> None:
        """Report an open ledger that no ledger of the tree continues."""
        path = ledger.place + LEDGER_SUFFIX
        if path in self._tree.broken:
            return  # reported as an invalid ledger
        if path in self._tree.ledgers:
            message = "another ledger is in its place"
            self._report("ledger-rewritten", ledger.place, message)
        else:
            message = (
                "the ledger is gone: a deleted checkpoint must keep its ledger, or its "
                "deletion must be sealed"
            )
            self._report("ledger-removed", ledger.place, message)


def _why_not_continued(ledger: Ledger, known: Iterable[Ledger]) -> str:
    if any(begins(ledger, one) for one in known):
        return "the ledger lacks known records: an older state came back"
    return "the ledger does not continue from its known records"
