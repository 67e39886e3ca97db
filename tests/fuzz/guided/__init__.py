"""Fuzzing that coverage guides (atheris): one target for each parser of what others made."""
