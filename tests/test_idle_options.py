"""No option is passed over: where one does nothing it is refused, and its line says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from topocal import cli

COMMANDS: dict[str, Any] = dict(getattr(get_command(cli.command_line()), "commands"))  # noqa: B009  # typer's type lacks it

Run = Callable[..., tuple[int, str, str]]

PLAN = '{"segments": [{"source": [0, 0, []], "target": [1, 0, []], "shape": [8]}]}'
"""A transfer in elements whose size is not said."""

# What was asked for, without the option and with it, and the words that tell of it.
IDLE: list[tuple[str, str, tuple[str, ...], tuple[str, ...], str]] = [
    ("assign", "--min-split", ("caps.json", "wanted.csv", "--whole"), ("2MiB",), "leave out"),
    ("caps", "--endpoint", ("caps.json",), ("0",), "are caps already"),
    ("caps", "--group-size", ("caps.json",), ("8",), "are caps already"),
    ("caps", "--backend", ("caps.json",), ("gloo",), "are caps already"),
    ("caps", "--setting", ("caps.json",), ("A=1",), "are caps already"),
    ("explain", "--faster", ("pairs.csv",), ("3",), "without a pattern"),
    ("explain", "--size", ("pairs.csv",), ("1MiB",), "without a pattern"),
    ("explain", "--time-limit", ("pairs.csv", "--flow", "0:1"), ("1s",), "for a pattern"),
    ("explain", "--time-limit", ("model.json", "--flow", "0:1"), ("1s",), "or a model"),
    ("explain", "--html", ("pairs.csv", "--flow", "0:1"), ("x.html",), "shows a machine"),
    ("explain", "--topology", ("model.json", "--flow", "0:1"), ("b70",), "its own topology"),
    ("export", "--endpoints", ("model.json", "--as", "dot"), ("0,1",), "is for simgrid"),
    ("export", "--host", ("model.json", "--as", "dot"), ("x",), "is for nccl"),
    ("fabric", "--first", (), (), "without a command"),
    ("price", "--element-size", ("caps.json", "flows.csv"), ("2",), "counts no elements"),
    ("price", "--element-size", ("caps.json", "bytes.json"), ("2",), "counts no elements"),
    ("price", "--element-size", ("caps.json", "typed.json"), ("2",), "has 4 bytes, and you say 2"),
    ("schema", "--output", (), ("x.json",), "no schema is named"),
    ("show", "--svg", (), ("x.svg",), "without a topology"),
    ("show", "--svg", ("--nominal",), ("x.svg",), "with --nominal"),
    ("simulate", "--svg", ("model.json", "patterns.csv"), ("x.svg",), "a drawing shows one"),
    ("simulate", "--html", ("model.json", "patterns.csv"), ("x.html",), "a drawing shows one"),
]
_SIMULATED = ("topology.json", "-o", "m.json", "--simulate", "model.json", "--rounds", "1")
IDLE += [
    ("calibrate", option, _SIMULATED, values, "with --simulate")
    for option, values in {
        "--spawn": ("2",),
        "--backend": ("gloo",),
        "--device": ("cpu",),
        "--issue": ("one-by-one",),
        "--no-verify": (),
        "--verify": (),
        "--min-duration": ("1ms",),
        "--timeout": ("9s",),
        "--resume": (),
    }.items()
]
IDLE += [
    ("calibrate", option, ("-o", "m.json", "--fabric", "b70"), values, "with --fabric")
    for option, values in {
        "--spawn": ("2",),
        "--simulate": ("b70",),
        "--backend": ("gloo",),
        "--device": ("cpu",),
    }.items()
]
IDLE += [
    ("calibrate", option, given, ("0",), "without --simulate")
    for option in ("--noise", "--seed")
    for given in (("topology.json", "-o", "m.json", "--spawn", "3"), ("-o", "m", "--fabric", "b70"))
]

# Options that always do what they say; the words are why there is no place where they do not.
ALWAYS: dict[str, dict[str, str]] = {
    "assign": {
        "--split": "the default, and --whole its opposite",
        "--whole": "parts are whole or not",
        "--group-size": "compared, or told that there is nothing to compare it with",
        "--backend": "as --group-size",
        "--setting": "as --group-size",
        "--allow-stale": "a permission: it is said what may then be used",
        "--digest": "compared",
    },
    "calibrate": {
        "--samples": "written",
        "--fabric": "the machine",
        "--endpoints": "who takes part",
        "--sizes": "measured",
        "--repeats": "measured",
        "--rounds": "a limit",
    },
    "caps": {"--digest": "compared"},
    "diff": {"--at-least": "a limit"},
    "discover": {"--sysfs": "read"},
    "demo": {"--live": "more is done"},
    "explain": {
        "--fan-in": "a pattern",
        "--fan-out": "a pattern",
        "--flow": "a pattern",
        "--both-ways": "a pattern",
        "--pattern": "a pattern",
    },
    "export": {"--as": "the format"},
    "fabric": {
        "--like": "the machine",
        "--endpoints": "who takes part",
        "--slow": "a fault",
        "--half-duplex": "a fault",
        "--ingress": "a fault",
        "--scale": "of all capacities",
        "--seed": "of all capacities",
    },
    "fit": {"--topology": "the machine", "--certify": "a proof is tried"},
    "gather": {"--sysfs": "read"},
    "measure": {
        "--spawn": "processes",
        "--backend": "the group's",
        "--device": "the group's",
        "--endpoints": "who takes part",
        "--topology": "compared",
        "--issue": "how messages go",
        "--verify": "the default, and --no-verify its opposite",
        "--no-verify": "payloads are read back or not",
        "--min-duration": "of what is timed",
        "--timeout": "a limit",
        "--resume": "its line says what it does where there is nothing to go on with",
    },
    "plan": {
        "--endpoints": "who takes part",
        "--sizes": "planned",
        "--repeats": "planned",
        "--budget-patterns": "a limit",
        "--budget-seconds": "a limit",
        "--exhaustive": "what is planned",
        "--all": "its line says that JSON always has all",
    },
    "predict": {
        "--fan-in": "a pattern",
        "--fan-out": "a pattern",
        "--flow": "a pattern",
        "--both-ways": "a pattern",
        "--pattern": "a pattern",
        "--size": "of every flow, and there must be some",
    },
    "price": {
        "--group-size": "compared, or told that there is nothing to compare it with",
        "--backend": "as --group-size",
        "--setting": "as --group-size",
        "--allow-stale": "a permission: it is said what may then be used",
        "--digest": "compared",
    },
    "read": {"--as": "the kind"},
    "show": {"--nominal": "what is shown"},
    "simulate": {
        "--set": "a change",
        "--remove": "a change",
        "--add-link": "a change",
        "--route": "a change",
        "--alpha": "of every flow",
        "--default": "its line says of which resources",
    },
}


def _options(name: str) -> set[str]:
    one = COMMANDS[name]
    return {
        option
        for parameter in one.get_params(typer.Context(one))
        if parameter.param_type_name == "option"
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_here(name: str) -> None:
    idle = {option for verb, option, *_ in IDLE if verb == name}
    always = set(ALWAYS.get(name, ()))
    # Results are printed as JSON, written, or both, whatever they are.
    assert idle | always | ({"--json", "--output", "--help"} & _options(name)) == _options(name)
    assert not always & idle


@pytest.mark.parametrize(
    ("verb", "option", "given", "values", "words"), IDLE, ids=lambda value: str(value)[:50]
)
def test_an_option_that_does_nothing_is_refused(
    verb: str,
    option: str,
    given: tuple[str, ...],
    values: tuple[str, ...],
    words: str,
    run: Run,
) -> None:
    Path("patterns.csv").write_text("source,destination,size,pattern\n0,1,1MB,a\n1,2,1MB,b\n")
    Path("bytes.json").write_text('{"0->1": 5}')
    Path("elements.json").write_text(PLAN)
    Path("typed.json").write_text(PLAN.replace("{", '{"dtype": "float32", ', 1))
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    status, out, err = run(verb, *given, option, *values)
    assert (status, out) == (2, "")
    assert err.startswith("topocal: ")
    assert err.count("\n") == 1
    assert words in err
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_the_same_options_are_taken_where_they_do_something(run: Run) -> None:
    Path("elements.json").write_text(PLAN)
    Path("typed.json").write_text(PLAN.replace("{", '{"dtype": "float32", ', 1))
    for given in (
        ("price", "caps.json", "elements.json", "--element-size", "2"),
        ("price", "caps.json", "typed.json", "--element-size", "4"),
        ("price", "caps.json", "typed.json"),
        ("explain", "model.json", "--flow", "0:1", "--faster", "3", "--size", "1MiB"),
        ("explain", "pairs.csv", "--time-limit", "1s"),
        ("calibrate", *_SIMULATED, "--noise", "0.02", "--seed", "7"),
        ("show", "--nominal"),
    ):
        status, _, err = run(*given)
        assert (status, err) == (0, ""), given


def test_spawning_under_torchrun_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
    }.items():
        monkeypatch.setenv(name, value)
    status, _, err = run("measure", "plan.json", "-o", "c.json", "--spawn", "2")
    assert status == 2
    assert "--spawn 2 in each of 2 processes that torchrun or srun started; leave out" in err


def test_json_and_a_command_of_a_fabric_do_not_mix(run: Run) -> None:
    status, out, err = run("fabric", "--json", "--", "true")
    assert (status, out) == (2, "")
    assert "--json and a command, which prints what it likes" in err
    assert json.loads(run("fabric", "--json")[1])["like"]
