"""Which number each GPU or NIC of a file gets in its id."""

from __future__ import annotations

from collections.abc import Sequence

from topocal.topo.readers.pci import bus_id_key, normal_bus_id

__all__ = ["number_devices"]


def number_devices(
    stated: Sequence[int | None], bus_ids: Sequence[str | None]
) -> tuple[list[int], bool]:
    """Distinct numbers for devices: the tool's own where it gives them, else by PCI address.

    Parameters
    ----------
    stated
        What the file says, per device; negative numbers count as nothing said.
    bus_ids
        PCI addresses, per device; devices without one come last, in file order.

    Returns
    -------
    The numbers, and whether the stated ones had to be given up because two
    devices claim the same.

    >>> number_devices([None, None], ["0000:10:1d.0", "0000:10:1c.0"])
    ([1, 0], False)
    >>> number_devices([0, 0], ["0000:02:00.0", "0000:01:00.0"])
    ([1, 0], True)
    """
    numbers = [n if n is not None and n >= 0 else None for n in stated]
    claimed = [n for n in numbers if n is not None]
    clash = len(set(claimed)) < len(claimed)
    if clash:
        numbers, claimed = [None] * len(numbers), []
    taken = set(claimed)
    following = 0

    def place(k: int) -> tuple[bool, tuple[int, ...], int]:
        bus_id = bus_ids[k]
        known = bus_id is not None and normal_bus_id(bus_id) == bus_id
        return (not known, bus_id_key(bus_id) if known and bus_id else (), k)

    for k in sorted(range(len(numbers)), key=place):
        if numbers[k] is None:
            while following in taken:
                following += 1
            taken.add(following)
            numbers[k] = following
    return [n for n in numbers if n is not None], clash
