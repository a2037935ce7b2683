"""What to time, timing it, and the raw samples.  Imports :mod:`topocal.topo` only."""
