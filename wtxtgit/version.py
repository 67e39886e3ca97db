"""The version of wtxtgit, and where it keeps files of its own: below all else."""

__version__ = "0.1.0"
STATE_FOLDER = "wtxtgit"
"""Our folder within a git repository's."""
