"""The payload of detached texts: chunks, found by their SHA-256, in packs. `docs/spec/store.md`."""
