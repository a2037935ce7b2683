"""A topology for people: as an outline, as who shares what, as a drawing.

:mod:`topocal.topo.render.outline` finds the tree in a machine and
:mod:`topocal.topo.render.sharing` who loads each resource; both are data, printed
by ``topocal show``.  :mod:`topocal.topo.render.svg` draws.
"""
