"""AERO files and AEROSET folders: reading, checking, writing."""
