"""A machine and its capacities in the formats of other programs."""
