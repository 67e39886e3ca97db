"""age files (C2SP, age.md): who may open one, and what is in it. No git, no files but keys.

Files for recipients are written by pyrage, which does so piece by piece. It opens them piece
by piece as well, but in order only, and it neither writes nor opens files behind a passphrase
in less than all of their memory. So what it can't do is here, on `cryptography`'s primitives:
opening at any place (`payload`), and passphrases (`scrypt`).
"""
