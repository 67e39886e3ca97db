"""FOLD files (.fold, .mind): reading, checking, repairing, writing."""
