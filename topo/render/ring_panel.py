"""The GPU fabric of a machine: GPUs on a ring, links as chords, NVSwitches in the middle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from topocal.topo.naming import natural_key
from topocal.topo.render.drawing import (
    FONT,
    SMALL,
    Box,
    Drawing,
    Line,
    Text,
    each_way,
    text_width,
)
from topocal.topo.render.outline import Connection, Machine
from topocal.topo.resource import NodeKind

__all__ = ["draw_ring"]

_LEVEL_TEXTS: Final = 16
"""Up to so many GPUs names stand level; beyond, they point outwards."""
_DOT: Final = 10.0
_LEAST: Final = 84.0
"""Radius of the smallest ring."""
_MOST_HUBS: Final = 6
"""More switches than that are one box."""
_COLOURS: Final = 6
"""Kinds of chords that look different; further ones look like the last."""


def draw_ring(
    machine: Machine, name_of: Callable[[str], str], kind_of: Callable[[str], NodeKind]
) -> Drawing:
    """The fabric of a machine, and a line for each kind of link in it.

    Parameters
    ----------
    machine
        A machine with connections in ``peers``.
    name_of, kind_of
        What is written beside a GPU, and what a node is.
    """
    ends = {end for link in machine.peers for end in (link.a, link.b)}
    gpus = sorted((e for e in ends if kind_of(e) is NodeKind.GPU), key=natural_key)
    switches = sorted((e for e in ends if kind_of(e) is not NodeKind.GPU), key=natural_key)
    names = {gpu: name_of(gpu) for gpu in gpus}
    hubs = _hub_names(switches, name_of)
    inner = _inner_radius(hubs)
    radius = max(_radius(names), inner + max(map(text_width, hubs), default=0.0) / 2 + 34)
    room = max(map(text_width, names.values()), default=0.0) + 16
    centre = radius + room
    drawing = Drawing(width=2 * centre, height=2 * centre)
    angles = {gpu: 2 * math.pi * (k + 0.5) / len(gpus) - math.pi / 2 for k, gpu in enumerate(gpus)}
    place = {gpu: _on_circle(centre, radius, angle) for gpu, angle in angles.items()}
    for gpu, angle in angles.items():
        _name(drawing, names[gpu], centre, radius, angle, turned=len(gpus) > _LEVEL_TEXTS)
    order = _by_direction(switches, angles, machine.peers) if len(hubs) > 1 else switches
    for k, switch in enumerate(order):
        angle = 2 * math.pi * (k + 0.5) / len(hubs) - math.pi / 2
        place[switch] = _on_circle(centre, inner if len(hubs) > 1 else 0.0, angle)
    looks = _looks(machine.peers)
    for link in machine.peers:
        (x1, y1), (x2, y2) = place[link.a], place[link.b]
        style, thick = looks[link.text]
        drawing.lines.append(Line(x1=x1, y1=y1, x2=x2, y2=y2, style=style, thick=thick))
    for gpu in gpus:
        x, y = place[gpu]
        drawing.boxes.append(
            Box(x=x - _DOT / 2, y=y - _DOT / 2, width=_DOT, height=_DOT, style="dot gpu")
        )
    for switch, hub in zip(order, hubs if len(hubs) == 1 else map(name_of, order), strict=False):
        x, y = place[switch]
        width = text_width(hub) + 16
        drawing.label(
            Box(x=x - width / 2, y=y - 11, width=width, height=22, style="node nvswitch"), hub
        )
    _legend(drawing, machine.peers, looks)
    return drawing


def _on_circle(centre: float, radius: float, angle: float) -> tuple[float, float]:
    return centre + radius * math.cos(angle), centre + radius * math.sin(angle)


def _hub_names(switches: list[str], name_of: Callable[[str], str]) -> list[str]:
    """What is written on the switches in the middle: each its name, or how many they are."""
    if len(switches) > _MOST_HUBS:
        return [f"{len(switches)} switches"]
    return [name_of(switch) for switch in switches]


def _inner_radius(hubs: list[str]) -> float:
    """Wide enough that the boxes of several switches do not touch."""
    if len(hubs) < 2:
        return 0.0
    return (max(map(text_width, hubs)) + 28) / (2 * math.sin(math.pi / len(hubs)))


def _by_direction(
    switches: list[str], angles: dict[str, float], links: tuple[Connection, ...]
) -> list[str]:
    """Switches in the order of the GPUs that hang on them."""
    found = {}
    for switch in switches:
        near = [
            angles[end]
            for link in links
            if switch in (link.a, link.b)
            for end in (link.a, link.b)
            if end in angles
        ]
        found[switch] = sum(near) / len(near) if near else 0.0
    return sorted(switches, key=lambda switch: (found[switch], natural_key(switch)))


def _radius(names: dict[str, str]) -> float:
    """Wide enough that neighbouring names do not touch."""
    n = max(len(names), 3)
    if len(names) <= _LEVEL_TEXTS:
        # At the top and bottom, names of neighbours stand side by side.
        side = max((text_width(name) for name in names.values()), default=0.0) + 8
        return max(_LEAST, side / (2 * math.sin(math.pi / n)) if n > 4 else _LEAST)
    return max(_LEAST, (FONT + 3) / (2 * math.sin(math.pi / n)))


def _name(
    drawing: Drawing, name: str, centre: float, radius: float, angle: float, *, turned: bool
) -> None:
    reach = radius + _DOT / 2 + 5
    x, y = centre + reach * math.cos(angle), centre + reach * math.sin(angle)
    if turned:
        outwards = math.cos(angle) >= 0
        degrees = math.degrees(angle) + (0 if outwards else 180)
        anchor = "start" if outwards else "end"
        # The baseline is moved across the direction of the text by a third of its height.
        dx, dy = -math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
        drawing.texts.append(
            Text(x=x + 4 * dx, y=y + 4 * dy, text=name, anchor=anchor, turn=degrees)
        )
        return
    flat = abs(math.cos(angle)) < 0.35
    anchor = "middle" if flat else ("start" if math.cos(angle) > 0 else "end")
    drop = FONT * (0.36 + 0.4 * math.sin(angle))
    drawing.texts.append(Text(x=x, y=y + drop, text=name, anchor=anchor))


def _looks(links: tuple[Connection, ...]) -> dict[str, tuple[str, float]]:
    """Style and width of each kind of link: the faster, the wider."""
    rates = {link.text: link.forth.nominal_Bps or 0.0 for link in links}
    fastest = max(rates.values(), default=0.0)
    looks = {}
    for k, text in enumerate(sorted(rates, key=lambda t: (-rates[t], t))):
        thick = 1.2 + 2.8 * (rates[text] / fastest) if fastest else 1.6
        crowded = len(links) > 40
        looks[text] = (f"chord chord{min(k, _COLOURS - 1)}", min(thick, 1.0) if crowded else thick)
    return looks


def _legend(
    drawing: Drawing, links: tuple[Connection, ...], looks: dict[str, tuple[str, float]]
) -> None:
    y = drawing.height + 8
    for text, (style, thick) in looks.items():
        count = sum(link.text == text for link in links)
        drawing.lines.append(Line(x1=4, y1=y - 4, x2=26, y2=y - 4, style=style, thick=thick))
        words = each_way(text, count)
        drawing.texts.append(Text(x=32, y=y, text=words, style="quiet", size=SMALL))
        y += 17
    drawing.fit(0.0)
