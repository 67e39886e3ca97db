"""Container formats: one package a format, of which the others know its record alone.

`any_format` has what can be done with a file whose format is not known before.
Everything here is a pure function of the file's bytes, and nothing in a file is
executed. Spec: `docs/spec/containers.md`.
"""
