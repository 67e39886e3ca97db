"""Work on an existing Dask cluster: by file, by shard of a set, or by blob.

The arguments and results of tasks are plain data. A task does with its file or blob exactly what a
single machine does, so the results are the same, byte for byte. Importing this package does not
import Dask. Guide: `docs/scale.md`.
"""
