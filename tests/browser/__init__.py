"""Pages in a real Chromium, by `make test-browser`."""
