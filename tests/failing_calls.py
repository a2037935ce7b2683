"""A library that makes system calls fail that write, and a program that lets each fail in turn.

The program is run with the library before all others.  It loads the command line once, and forks
for every try: the n-th call that opens a file to write, writes, syncs or renames meets a full disk,
from then on or once, or the process is killed just before it, or after half of what it writes.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LIBRARY", "PROGRAM"]

LIBRARY: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { ONCE, FULL, KILL, HALF };
static long left = -1, seen = 0;
static int how = ONCE;

void arm(long n, int what) { left = n; how = what; seen = 0; }
long calls(void) { return seen; }

/* Whether this call is to fail. */
static int fails(void) {
    seen++;
    if (left < 0) return 0;
    if (left > 0) { left--; return 0; }
    if (how == KILL) kill(getpid(), SIGKILL);
    if (how == ONCE) left = -1;
    errno = ENOSPC;
    return 1;
}

static int is_file(int fd) {
    struct stat status;
    return fd > 2 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t count) {
    if (is_file(fd) && fails()) {
        if (how != HALF) return -1;
        REAL(write)(fd, bytes, count / 2);
        kill(getpid(), SIGKILL);
    }
    return REAL(write)(fd, bytes, count);
}
int fsync(int fd) { return fails() ? -1 : REAL(fsync)(fd); }
int rename(const char *from, const char *to) { return fails() ? -1 : REAL(rename)(from, to); }
int ftruncate(int fd, off_t size) { return fails() ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return fails() ? -1 : REAL(ftruncate64)(fd, size); }

#define OPEN(name)                                                          \
    int name(const char *path, int flags, ...) {                            \
        mode_t mode = 0;                                                    \
        if (flags & O_CREAT) {                                              \
            va_list more;                                                   \
            va_start(more, flags);                                          \
            mode = va_arg(more, mode_t);                                    \
            va_end(more);                                                   \
            if (fails()) return -1;                                         \
        }                                                                   \
        return REAL(name)(path, flags, mode);                               \
    }
OPEN(open)
OPEN(open64)
"""

PROGRAM: Final = r"""
import ctypes, json, os, shutil, sys
from pathlib import Path

from topocal.cli import main

library = ctypes.CDLL(os.environ["LD_PRELOAD"])
inputs, words, outputs = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
ONCE, FULL, KILL, HALF = range(4)
MOST = 8  # calls of a command, spread evenly, where it makes more
OLD = b"what was there before\n"


def run(name, n, how, old=OLD):
    '''Exit status, what was said, and the outputs, of one try in a folder of its own.'''
    folder = inputs.parent / name
    if not folder.exists():
        shutil.copytree(inputs, folder)
        for output in outputs:
            (folder / output).write_bytes(old)
    child = os.fork()
    if not child:
        os.chdir(folder)
        for stream, file in ((1, "out"), (2, "err")):
            os.dup2(os.open(inputs.parent / f"{name}.{file}", os.O_WRONLY | os.O_CREAT), stream)
        sys.argv = ["topocal", *words]
        library.arm(n, how)
        status = 99
        try:
            main()
        except SystemExit as stop:
            status = stop.code or 0
        finally:
            count = library.calls()
            library.arm(-1, ONCE)
            (inputs.parent / f"{name}.count").write_text(str(count))
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    err = (inputs.parent / f"{name}.err").read_text()
    return status, err, [(folder / o).read_bytes() for o in outputs], folder


def parts(folder):
    return [p.name for p in folder.iterdir() if p.name.endswith(".part")]


# Once here, so that what it loads is there for all.
shutil.copytree(inputs, inputs.parent / "first")
os.chdir(inputs.parent / "first")
sys.argv = ["topocal", *words]
try:
    main()
except SystemExit as stop:
    assert stop.code in (None, 0, 1), stop.code
sys.stdout.flush()
status, err, new, _ = run("whole", -1, ONCE)
assert status in (0, 1), (status, err)
assert OLD not in new
count = int((inputs.parent / "whole.count").read_text())
assert count >= 4 * len(outputs), count
tries = 0
for how in (ONCE, FULL, KILL, HALF):
    for n in range(0, count, max(1, count // MOST)):
        name = f"{how}-{n}"
        status, err, found, folder = run(name, n, how)
        tries += 1
        where = f"call {n} of {count}, {('once', 'full', 'killed', 'half')[how]}"
        assert all(f in (OLD, w) for f, w in zip(found, new)), f"{where}: neither old nor new"
        if status == -9:
            assert how in (KILL, HALF), where
            assert len(parts(folder)) <= 1, f"{where}: {parts(folder)}"
            (inputs.parent / f"{name}.err").unlink()
            status, err, found, folder = run(name, -1, ONCE)
            assert status in (0, 1), f"{where}, then: {err}"
            assert found == new, f"{where}, then: not the new content"
        elif status == 2:
            assert err.startswith("topocal: ") and err.count("\n") == 1, f"{where}: {err}"
            assert "no space left on device" in err, f"{where}: {err}"
        else:
            assert (status, err, found) == (0, "", new), f"{where}: {status} {err}"
        assert not parts(folder), f"{where}: {parts(folder)} is left"
        shutil.rmtree(folder)
print(f"\n{count} {tries}")
"""
