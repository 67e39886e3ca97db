"""age files: armor, header, payload, keys."""
