"""Work on a Dask cluster that is there already: by file, by shard of a set, by blob.

What a task gets and gives is plain data; what it does is what one machine does
with that file or blob, so the results are the same, byte for byte. Importing
this package imports no Dask. Guide: `docs/scale.md`.
"""
