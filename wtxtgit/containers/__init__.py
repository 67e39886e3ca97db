"""Container formats: one package per format; everything else knows a format only by its record.

`any_format` has the operations on files whose format is not known in advance. Everything here is a
pure function of the file's bytes, and nothing in a file is executed. Spec:
`docs/spec/containers.md`.
"""
