"""``topocal completion``: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

from typing import Annotated

import typer

from topocal.completing import choices

__all__ = ["SHELLS", "completion"]

SHELLS = ("bash", "zsh", "fish")


def completion(
    shell: Annotated[
        str, typer.Argument(autocompletion=choices(lambda: SHELLS), help="bash, zsh or fish.")
    ],
) -> None:
    """Print a script that makes a shell complete commands, options, machines and endpoints.

    It asks the installed command, and nothing else. `topocal --install-completion` puts the
    same where the shell looks for it by itself.

        topocal completion bash > ~/.local/share/bash-completion/completions/topocal

        topocal completion zsh > ~/.zfunc/_topocal

        topocal completion fish > ~/.config/fish/completions/topocal.fish
    """
    from typer._completion_shared import get_completion_script

    from topocal.topo.choices import one_of

    shell = one_of(shell, SHELLS, what="completion for the shell")
    typer.echo(
        get_completion_script(prog_name="topocal", complete_var="_TOPOCAL_COMPLETE", shell=shell)
    )
