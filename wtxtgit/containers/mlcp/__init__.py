"""MLCP files (.checkpoint): reading, checking, writing."""
