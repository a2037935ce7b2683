"""What all commands have in common: help, words, units, bad input, pipes, Ctrl-C, colours."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.main import get_command

from topocal import cli, expected
from topocal.commands.completion import SHELLS
from topocal.help_pages import split_examples
from topocal.progress import progress

ROOT = Path(__file__).parents[1]
B70 = ROOT / "examples" / "b70"
COMMANDS: dict[str, Any] = dict(getattr(get_command(cli.command_line()), "commands"))  # noqa: B009  # typer's type lacks it

VALUES = {
    "DIRECTORY",
    "FILE",
    "FORMAT",
    "HOW",
    "LINK",
    "N",
    "NAME",
    "NAMES",
    "NUMBER",
    "PATTERN",
    "PERCENT",
}
VALUES |= {"RATE", "SIZE", "SIZES", "TIME", "TIMES"}
"""What the value of an option is called."""

FORMS = {"A->B=NODE,…", "A->B=RATE", "A:B", "ENDPOINT=RATE", "FROM:TO", "LINK=FACTOR"}
FORMS |= {"NAME=VALUE", "ROOT:PEERS"}
"""Forms that an option's value has."""

SHORT = {"--output": "-o", "--topology": "-t"}
"""Options with a short name, which is the same everywhere."""

CALLED = {"--size": "SIZE", "--sizes": "SIZES", "--endpoints": "NAMES", "--output": "FILE"}
CALLED |= {"--seed": "N", "--repeats": "N", "--html": "FILE", "--svg": "FILE", "--backend": "NAME"}
CALLED |= {"--group-size": "N", "--setting": "NAME=VALUE", "--timeout": "TIME", "--json": ""}
CALLED |= {"--min-duration": "TIME", "--topology": "NAME", "--resume": "", "--spawn": "N"}
"""Options that several commands have, and what their value is called."""


_NAMED_FIRST = r"(caps|model|plan|topology)\.json|(cpu|gloo|bash|simgrid|nccl)[,:]"
"""With what a sentence may begin that has no capital: files, and words to choose from."""


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command in a directory with a model, tables and flows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("pairs.csv", "fans.csv"):
        (tmp_path / name).write_text((B70 / name).read_text())
    (tmp_path / "flows.csv").write_text("source,destination,size\n0,4,1GB\n1,5,1GB\n")

    def call(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["topocal", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        code = caught.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    return call


def _parameters(name: str) -> list[Any]:
    command = COMMANDS[name]
    return list(command.get_params(typer.Context(command)))


def _options(name: str) -> dict[str, Any]:
    found = {}
    for parameter in _parameters(name):
        if parameter.param_type_name == "option":
            found |= dict.fromkeys((*parameter.opts, *parameter.secondary_opts), parameter)
    return found


# Help.


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_it_does_and_gives_examples(name: str, run: Run) -> None:
    ran = run(name, "--help")
    assert (ran.status, ran.err) == (0, "")
    assert "Examples" in ran.out
    prose, _, examples = ran.out.partition("Examples")
    assert f"topocal {name}" in examples
    assert "[OPTIONS]" in prose
    for option in _options(name):
        assert option in prose


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_a_command_line_that_is_understood(name: str) -> None:
    assert any(f"topocal {name}" in line for line in COMMANDS[name].examples)
    for line in COMMANDS[name].examples:
        (piped,) = (part for part in line.split("|") if "topocal" in part)
        words = shlex.split(piped)
        words = words[words.index("topocal") + 1 :]
        other = words.pop(0)
        assert other in COMMANDS
        # What stands behind `--` is another program's, and behind `>` the shell's.
        own = words[: min((words.index(w) for w in ("--", ">") if w in words), default=len(words))]
        COMMANDS[other].make_context(other, list(own), resilient_parsing=True)
        for word in own:
            assert not word.startswith("-") or word in {"-", *_options(other)}, line


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_worded_alike(name: str) -> None:
    command = COMMANDS[name]
    first = command.help.partition("\n\n")[0]
    assert first.endswith(".")
    assert len(first) <= 100
    for parameter in _parameters(name):
        assert parameter.help, f"{name} {parameter.name} has no help"
        assert parameter.help[0].isupper() or re.match(_NAMED_FIRST, parameter.help)
        assert parameter.help.endswith("."), f"{name} {parameter.name}: {parameter.help}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_things_have_the_same_words(name: str) -> None:
    options = _options(name)
    for option, parameter in options.items():
        assert parameter.metavar in VALUES | FORMS | {""}, f"{name} {option}"
        assert parameter.metavar == CALLED.get(option, parameter.metavar), f"{name} {option}"
        if option in SHORT:
            assert SHORT[option] in parameter.opts
    assert {o for o in options if re.fullmatch("-[^-]", o)} <= set(SHORT.values())
    for parameter in _parameters(name):
        if parameter.param_type_name == "argument":
            assert parameter.metavar.isupper()
    assert "--json" in options or name == "completion"


def test_the_list_of_commands_is_complete_and_says_where_to_begin(run: Run) -> None:
    ran = run("--help")
    for name in COMMANDS:
        assert re.search(rf"^│ {name} ", ran.out, flags=re.MULTILINE)
    files = {path.stem for path in (ROOT / "topocal" / "commands").glob("[a-z]*.py")}
    assert files == set(COMMANDS)
    assert "topocal demo" in ran.out.partition("Examples")[2]


def test_prose_and_examples_are_told_apart() -> None:
    text = """Do it
    now.

        topocal do it

        nvidia-smi topo -m | topocal read -

    The topocal command is topocal.
    """
    assert split_examples(text) == (
        "Do it now.\n\nThe topocal command is topocal.",
        ("topocal do it", "nvidia-smi topo -m | topocal read -"),
    )


# Bad input: one line, status 2.

BAD: dict[str, list[tuple[tuple[str, ...], str]]] = {
    "assign": [(("none.json", "none.csv"), "none.json"), (("b70", "none.csv"), "none.csv")],
    "calibrate": [
        ((), "Missing option"),
        (("-o", "m.json"), "no machine"),
        (("b70", "-o", "m.json", "--simulate", "b70", "--rounds", "0"), "--rounds 0"),
    ],
    "caps": [(("none.json",), "none.json: no such file")],
    "completion": [(("csh",), "'csh'"), ((), "Missing argument 'SHELL'")],
    "demo": [(("b70",), "unexpected extra argument")],
    "diff": [(("none.json", "none.json"), "none.json: no such file")],
    "discover": [(("--sysfs", "none"), "none")],
    "explain": [(("none.txt",), "none.txt: no such file"), (("pairs.csv", "-t", "b7"), "'b7'")],
    "export": [
        (("none.json", "--as", "dot"), "none.json: no such file"),
        (("b70", "--as", "svg"), "svg"),
    ],
    "fabric": [(("--like", "none.txt"), "none.txt"), (("--ingress", "gpu0"), "gpu0")],
    "fit": [(("none.csv",), "none.csv: no such file"), ((), "Missing argument 'FILE'")],
    "gather": [(("--sysfs", "none", "-o", "x.tar.gz"), "none")],
    "measure": [(("none.json", "-o", "x.json"), "none.json: no such file")],
    "plan": [(("none.txt",), "none.txt: no such file"), (("b70", "--endpoints", "9"), "'9'")],
    "predict": [(("none.json", "--flow", "0:1"), "none.json: no such file")],
    "price": [(("b70", "none.csv"), "none.csv: no such file")],
    "read": [(("none.txt",), "none.txt: no such file"), (("flows.csv",), "flows.csv")],
    "report": [(("none.json", "-o", "r.html"), "none.json: no such file")],
    "schema": [(("modle",), "modle")],
    "show": [(("none.txt",), "none.txt: no such file")],
    "simulate": [(("b70", "none.csv"), "none.csv: no such file")],
}


def _refused(ran: Ran, words: str) -> None:
    assert ran.status == 2
    assert ran.out == ""
    assert words in ran.err
    assert ran.err.startswith("topocal")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [(name, *row) for name, rows in BAD.items() for row in rows],
)
def test_bad_input_is_one_line_and_status_two(
    name: str, arguments: tuple[str, ...], words: str, run: Run, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    _refused(run(name, *arguments), words)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_one_line_and_status_two(name: str, run: Run) -> None:
    assert name in BAD
    _refused(run(name, "--no-such-option"), f"topocal {name}: No such option: --no-such-option")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("predcit",), "Did you mean 'predict'?"),
        (("xplain", "pairs.csv"), "Did you mean 'explain'"),
        (("predict", "m.json", "--sizee", "3"), "--size"),
        (("show", "dgx-h10"), "did you mean dgx-h100?"),
        (("plan", "b70", "--endpoints", "gpu0,gup1"), "did you mean gpu1?"),
        (("simulate", "b70", "flows.csv", "--remove", "switch0->socket"), "switch0->socket0"),
    ],
)
def test_did_you_mean(arguments: tuple[str, ...], words: str, run: Run) -> None:
    _refused(run(*arguments), words)


# Units, as people write them.

SIZES = ("1GB", "1 GB", "1e9", "1_000_000kB", "1000MB")
RATES = ("25GB/s", "25 GB/s", "200Gb/s", "200 Gbps", "25000MB/s", "2.5e10")
TIMES = ("1ms", "1 ms", "1000us", "1e-3s", "0.001")
ASKED: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = [
    (("simulate", "dgx-h100", "flows.csv", "--json", "--alpha", "{}"), "time", TIMES),
    (("simulate", "b70", "flows.csv", "--json", "--default", "{}"), "rate", RATES),
    (
        ("simulate", "dgx-h100", "flows.csv", "--json", "--set", "gpu0->nvswitch0={}"),
        "rate",
        RATES,
    ),
    (
        ("simulate", "dgx-h100", "flows.csv", "--json", "--add-link", "gpu0->gpu4={}"),
        "rate",
        RATES,
    ),
    (("plan", "b70", "--json", "--sizes", "1MiB,{}"), "size", SIZES),
    (
        ("plan", "b70", "--json", "--budget-seconds", "{}"),
        "time",
        ("2min", "120", "120 s", "2 min"),
    ),
    (("fabric", "--json", "--ingress", "gpu0={}"), "rate", RATES),
    (("predict", "model.json", "--json", "--flow", "0:4", "--size", "{}"), "size", SIZES),
    (("explain", "model.json", "--json", "--flow", "0:4", "--size", "{}"), "size", SIZES),
    (("assign", "model.json", "requests.csv", "--json", "--min-split", "{}"), "size", SIZES),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    import topocal as tc

    path = tmp_path_factory.mktemp("model") / "model.json"
    measured = tc.read_tables([B70 / "pairs.csv", B70 / "fans.csv"])
    tc.write_model(tc.fit(measured, tc.machines.b70()), path)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "kind", "spellings"), ASKED, ids=lambda value: "-".join(value)[:40]
)
def test_a_quantity_is_read_as_people_write_it(
    arguments: tuple[str, ...], kind: str, spellings: tuple[str, ...], run: Run, model: str
) -> None:
    Path("model.json").write_bytes(Path(model).read_bytes())
    Path("requests.csv").write_text(
        "parameter,target,holders,shape,element_bytes\nq,4,0 1 2,4096 4096,2\n"
    )
    answers = []
    for text in spellings:
        ran = run(*(word.replace("{}", text) for word in arguments))
        assert ran.status == 0, ran.err
        document = json.loads(ran.out)
        document.pop("changes", None)  # Repeats the option's words.
        answers.append(document)
    assert all(answer == answers[0] for answer in answers)
    for bad in ("much", "5 parsecs", "-1GB/s"):
        ran = run(*(word.replace("{}", bad) for word in arguments))
        _refused(ran, f"is not a {kind}")


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "pairs.csv", "--certify", "soon"),
        ("explain", "pairs.csv", "--time-limit", "soon"),
        ("measure", "plan.json", "-o", "c.json", "--spawn", "8", "--timeout", "soon"),
        ("measure", "plan.json", "-o", "c.json", "--spawn", "8", "--min-duration", "soon"),
        ("calibrate", "b70", "-o", "m.json", "--timeout", "soon"),
        ("calibrate", "b70", "-o", "m.json", "--min-duration", "soon"),
    ],
)
def test_a_time_that_is_none_is_refused(arguments: tuple[str, ...], run: Run) -> None:
    if "plan.json" in arguments:
        assert run("plan", "b70", "-o", "plan.json").status == 0
    _refused(run(*arguments), "'soon' is not a time; write it as 5us or 1.2ms")


def test_the_notation_and_the_options_name_the_same_patterns(run: Run, model: str) -> None:
    for notation, options in {
        "3<-4,5": ("--fan-in", "3:4,5"),
        "0->1,2": ("--fan-out", "0:1,2"),
        "0<->1": ("--both-ways", "0:1"),
        "0->4 + 1->5": ("--flow", "0:4", "--flow", "1:5"),
    }.items():
        one = json.loads(run("predict", model, "--pattern", notation, "--json").out)
        other = json.loads(run("predict", model, *options, "--json").out)
        assert one == other
    assert shlex.quote("0:1,2") == "0:1,2"


# Completion.


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_printed_for_each_shell(shell: str, run: Run) -> None:
    ran = run("completion", shell)
    assert (ran.status, ran.err) == (0, "")
    assert "_TOPOCAL_COMPLETE" in ran.out


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    program = tmp_path / "topocal"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m topocal "$@"\n')
    program.chmod(0o755)
    asked = """
    source <(topocal completion bash)
    function=$(complete -p topocal | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    COMP_WORDS=(topocal pre); COMP_CWORD=1; $function topocal; echo "${COMPREPLY[@]}"
    COMP_WORDS=(topocal predict --fan); COMP_CWORD=2; $function topocal; echo "${COMPREPLY[@]}"
    """
    ran = subprocess.run(
        [bash, "-euc", asked],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split("\n")[:2] == ["predict", "--fan-in --fan-out"], ran.stderr


# Pipes, signals, colours.


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("predict", "--help"), ("show",), ("show", "b70"), ("show", "b70", "--json")],
    ids=" ".join,
)
def test_a_reader_that_leaves_is_no_error(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "topocal", *arguments],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    "begin", [("-m", "topocal"), ("-c", "from topocal.__main__ import main; main()")]
)
def test_ctrl_c_while_the_command_line_is_loaded(begin: tuple[str, ...], tmp_path: Path) -> None:
    # The first thing that is loaded stands in for a user with quick fingers.
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ran = subprocess.run(
        [sys.executable, *begin, "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_later_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("topocal.machine.find_topology", interrupted)
    assert run("show", "b70") == Ran(130, "", "topocal: interrupted\n")


def test_ctrl_c_while_options_are_read_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.core.TyperGroup.make_context", interrupted)
    assert run("show", "b70") == Ran(130, "", "topocal: interrupted\n")


def _in_a_terminal(*arguments: str, **environment: str) -> str:
    mine, its = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "topocal", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=its,
            stderr=its,
            env={k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
            | {"TERM": "xterm-256color", "COLUMNS": "100"}
            | environment,
        )
        os.close(its)
        found = bytearray()
        while True:
            try:
                piece = os.read(mine, 65536)
            except OSError:  # The other end is closed.
                break
            if not piece:
                break
            found += piece
        assert process.wait() == 0
    finally:
        os.close(mine)
    return found.decode()


_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|9[0-7])[;m]")


def test_colours_are_for_terminals_that_want_them(run: Run) -> None:
    assert _COLOUR.search(_in_a_terminal("--help"))
    assert not _COLOUR.search(_in_a_terminal("--help", NO_COLOR="1"))
    assert not _COLOUR.search(_in_a_terminal("show", "b70", NO_COLOR="1"))
    for arguments in (("--help",), ("show", "b70"), ("show",)):
        assert "\x1b" not in run(*arguments).out


class _Terminal:
    """Standard error that somebody looks at."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def test_progress_says_how_much_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    shown = _Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with progress("counting", 4) as advance:
        advance(2)
        advance.reach(3, 4)
    with progress("waiting", expected_s=100.0):
        pass
    assert "counting" in shown.text
    assert "waiting" in shown.text
    assert "left" in shown.text


def test_a_bar_is_for_what_takes_long_enough_to_be_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    shown = _Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with progress("waiting", expected_s=0.1):
        pass
    assert shown.text == ""


def test_a_fit_in_a_terminal_has_a_bar() -> None:
    shown = _in_a_terminal("fit", str(B70 / "pairs.csv"))
    assert "fitting 56 samples" in shown
    assert "left" in shown


def test_more_work_is_expected_to_take_longer(tmp_path: Path) -> None:
    assert 0 < expected.fitting_s(56) < expected.fitting_s(100_000)
    assert 0 < expected.assigning_s(8) < expected.assigning_s(100_000)
    flows = [None] * 1000
    assert 0 < expected.simulating_s(flows, 1000) < expected.simulating_s(flows, 10)
    (tmp_path / "model.json").write_bytes(b" " * 1000)
    assert 0 < expected.of_model_s(tmp_path / "model.json", "caps") < 1
    assert expected.of_model_s(tmp_path / "none.json", "caps") == 0
    assert expected.of_model_s("dgx-h100\0", "report") == 0


def test_progress_is_silent_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("counting", 4) as advance:
        advance(2)
        advance.reach(3, 4)
    assert capsys.readouterr() == ("", "")
