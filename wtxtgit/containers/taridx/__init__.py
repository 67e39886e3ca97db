"""TARIDX files: reading, checking, building, looking up."""
