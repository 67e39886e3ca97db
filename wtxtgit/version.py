"""The version of wtxtgit, below all else, for what is kept in files of one version only."""

__version__ = "0.1.0"
