"""Audits to be rendered: one with all that is hostile, one that holds."""

from __future__ import annotations

from wtxtgit.report.audit import HINTS, AuditReport, Finding, Severity

COMMIT = "0123456789abcdef0123456789abcdef01234567"

HOLDS = AuditReport(
    commits=12,
    artifacts=3,
    generations=20,
    signers=("alice@example.com", "bob@example.com"),
    unjudged=1,
)

HOSTILE_PATHS = (
    b"plain/model.fold",
    b"with blank & 100%.fold",
    b"a\n::set-output name=ok::true\n.fold",
    b"::error::x.fold",
    b"##[set-output name=ok]true.fold",
    b"a|b`c`*d*_e_[f](g)<img src=x>@h#1.fold",
    b"\x1b[31mred\r.fold",
    b"not utf-8 \xff\xfe.fold",
    "name-\u00e9-\u202egnp.fold".encode(),
    b"%2e%2e/a:b?c#d,e;f.fold",
    b"www.example.com.fold",
)

HOSTILE = AuditReport(
    commits=2,
    artifacts=len(HOSTILE_PATHS),
    generations=4,
    signers=("a|b`c`@example.com<br>", "\u202eevil"),
    findings=(
        Finding("", b"", "shallow", "the history is not whole: the clone is shallow"),
        *(
            Finding(COMMIT, path, "raw-binary", "a binary, not the text that the filter makes")
            for path in HOSTILE_PATHS
        ),
        Finding(COMMIT, b"m.fold", "missing-signature", "generation 2 is not signed"),
        Finding(COMMIT, b"m.fold", "missing-signature", "generation 3 is not signed"),
        Finding(COMMIT, b"m.fold", "unsealed", "no record in any ledger", Severity.WARNING),
        Finding(
            COMMIT,
            b"m.fold",
            "corrupt-text",
            'array "a|b\n::error::\x1b[31m%0A <b>`x`</b> \udcff", https://example.com @all #1',
        ),
    ),
    notes=("trust starts at <script>, ::notice::\n| `x` |",),
)

ALL_KINDS = AuditReport(1, findings=tuple(Finding(COMMIT, b"m", kind, "m") for kind in HINTS))
