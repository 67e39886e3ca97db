"""The payload of detached texts: packs of chunks, found by their SHA-256. `docs/spec/store.md`."""
