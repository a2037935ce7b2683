"""Measurements from the files that people have, one file per kind."""
