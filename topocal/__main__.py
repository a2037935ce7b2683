"""``python -m topocal``."""

from topocal.cli import main

main()
