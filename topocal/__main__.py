"""``python -m topocal``, and where the installed command begins.

Loading the command line takes a moment in which nobody is there to catch Ctrl-C: until then it
ends the process as it ends any program, without a traceback.

Loading makes many objects that stay: looking for garbage among them, as often as Python does by
itself, takes a tenth of a short command's time.
"""

from __future__ import annotations

import gc
import signal

__all__ = ["main"]

_OBJECTS_BETWEEN_LOOKS = 100_000


def main() -> None:
    """Run the command line and exit."""
    # Ignored by whoever started us (`nohup`, a shell's `&`), it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(_OBJECTS_BETWEEN_LOOKS)
    from topocal.cli import main as run

    run()


if __name__ == "__main__":
    main()
