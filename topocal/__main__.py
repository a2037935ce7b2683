"""``python -m topocal``, and where the installed command begins.

Loading the command line takes a moment in which nobody is there to catch Ctrl-C: until then it
ends the process as it ends any program, without a traceback.
"""

from __future__ import annotations

import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit."""
    # Ignored by whoever started us (`nohup`, a shell's `&`), it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from topocal.cli import main as run

    run()


if __name__ == "__main__":
    main()
