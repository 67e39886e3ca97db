"""age files (C2SP, age.md): who can decrypt one, and reading what is in it.

No git, no files but keys. Files for recipients are written by pyrage, piece by piece. pyrage also
decrypts piece by piece, but only from start to end, and files with a passphrase only as a whole in
memory. So random access (`payload`) and passphrases (`scrypt`) are implemented here, with
`cryptography`'s primitives.
"""
