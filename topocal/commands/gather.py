"""``topocal gather``: this machine as an archive that can be sent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topocal.options import AsJson

__all__ = ["gather"]


def gather(
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Where to write the archive."),
    ] = Path("host.tar.gz"),
    sysfs: Annotated[
        Path,
        typer.Option(
            metavar="DIRECTORY", help="A copy of another machine's /sys, instead of this one's."
        ),
    ] = Path("/sys"),
    as_json: AsJson = False,
) -> None:
    """Capture this machine for somebody else to look at.

    The archive holds what `topocal read` needs: part of sysfs, and what
    nvidia-smi, rocm-smi, lspci and lstopo print where they are installed.  Host
    names, serial numbers, unique ids, MAC and IP addresses are removed; look
    into the archive before you send it all the same.  As root, lspci shows link
    speeds, too.

        topocal gather -o host.tar.gz

        topocal read host.tar.gz -o topology.json
    """
    from topocal.console import console, print_json
    from topocal.outputs import check_outputs
    from topocal.topo.errors import printable
    from topocal.topo.gather import gather as gather_machine

    check_outputs(output, formats=("an archive",))
    captured = gather_machine(output, sysfs=sysfs)
    if as_json:
        print_json(
            {
                "output": printable(output),
                "sysfs_files": len(captured.sysfs),
                "outputs": captured.status,
            }
        )
        return
    from rich.text import Text

    out = console()
    out.print(Text(f"{len(captured.sysfs)} files of sysfs"))
    for name, status in captured.status.items():
        out.print(Text(f"  {name}: {printable(status)}"), soft_wrap=True)
    what = f"written to {printable(output)}; look into it before you send it"
    out.print(Text(what), soft_wrap=True)
