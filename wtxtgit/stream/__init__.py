"""Snapshots while training: taken without slowing the loop, kept in a ring, sent to targets."""
