"""age files (C2SP, age.md): who can decrypt one, and reading what is in it.

No git, no files but keys. Files for recipients are written by pyrage, piece by piece. pyrage also
decrypts piece by piece, but only from start to end; and files with a passphrase it neither writes
nor reads without holding all of them in memory. What it can't do is implemented here with
`cryptography`'s primitives: random access (`payload`), and passphrases (`scrypt`).
"""
