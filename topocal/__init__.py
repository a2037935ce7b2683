"""topocal: what a set of concurrent transfers takes, and which resource says so."""
