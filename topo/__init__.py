"""What the machine is and what it does: graph, resources, routes, simulation.

Imports nothing of ours outside this folder.
"""
