"""The main job, live: calibrate a machine whose capacities are known, then predict new fans.

Real messages (gloo) on an emulated fabric where that is possible; else a model answers, and
the result says why.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topocal.calibration import Calibration
    from topocal.measure.fabric.shape import Shape
    from topocal.measure.machine import Machine
    from topocal.measure.plan import Plan
    from topocal.measure.samples import Measurements
    from topocal.topo.flow import Pattern

__all__ = ["FanCheck", "Live", "Recovered", "run_live"]

_LIKE: Final = "b70"
_FANS: Final = (
    "gpu3<-gpu4,gpu5,gpu6,gpu7",
    "gpu0<-gpu2,gpu5,gpu7",
    "gpu6->gpu0,gpu3,gpu7",
    "gpu5<-gpu0,gpu1,gpu4",
    "gpu2->gpu0,gpu4,gpu5,gpu7",
    "gpu1<-gpu0,gpu3,gpu4,gpu6,gpu7",
)
"""More than are shown: what the plan has measured is passed over."""

_SHOWN: Final = 3
_FAN_BYTES: Final = 2.0**21
_REPEATS: Final = 2
_ROUNDS: Final = 2
_SIMULATED_NOISE: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a resource truly passes, and what the fit says."""

    resource: str
    true_Bps: float
    fitted_Bps: float | None
    status: str

    @property
    def error(self) -> float | None:
        """Relative error of the fitted capacity."""
        return None if self.fitted_Bps is None else self.fitted_Bps / self.true_Bps - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FanCheck:
    """A fan that no plan had: predicted and measured."""

    name: str
    predicted_s: float
    measured_s: float
    binds: str

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_s / self.measured_s - 1.0


@dataclass(frozen=True, kw_only=True)
class Live:
    """How it went.

    Attributes
    ----------
    instead
        Why nothing real was measured; empty where it was.
    capacities, fans
        Fitted against true, predicted against measured.
    patterns
        How many patterns were measured for the fit.
    seconds
        How long all of it took.
    """

    instead: str
    capacities: tuple[Recovered, ...]
    fans: tuple[FanCheck, ...]
    patterns: int
    seconds: float


def run_live(tell: Callable[[str], None] = lambda text: None) -> Live:
    """Calibrate a fabric like the published machine, and check three fans that nobody measured.

    Parameters
    ----------
    tell
        Called with sentences on the way.

    Raises
    ------
    TopocalError
        When measuring or fitting fails.
    """
    from topocal.fabrics import find_shape
    from topocal.topo.errors import EmulationError

    begin = time.monotonic()
    shape = find_shape(_LIKE)
    with tempfile.TemporaryDirectory(prefix="topocal-") as name:
        folder = Path(name)
        instead = ""
        if find_spec("torch") is None:
            instead = "torch is not installed"
        else:
            try:
                _on_fabric(shape, folder, tell)
            except EmulationError as error:
                instead = str(error)
        if instead:
            tell(f"a model answers instead of real messages: {instead}")
            _calibrate_and_check(shape, folder, _Simulated.of(shape), tell)
        return _judge(shape, folder, instead, begin)


def _on_fabric(shape: Shape, folder: Path, tell: Callable[[str], None]) -> None:
    from topocal.fabrics import on_fabric

    on_fabric(shape, lambda machine: _calibrate_and_check(shape, folder, machine, tell))


def _calibrate_and_check(
    shape: Shape, folder: Path, machine: Machine, tell: Callable[[str], None]
) -> None:
    """All the measuring; what comes of it lies in the folder."""
    from topocal.fabrics import plan_of
    from topocal.measure.calibration import write_calibration

    what = _calibration(shape, folder)
    step = what.run(machine, tell)
    fans = _not_measured(step.measurements)
    tell(f"now {len(fans)} fans that nobody measured")
    plan = plan_of(shape, fans, sizes_bytes=[_FAN_BYTES], repeats=3)
    write_calibration(machine.run(plan), folder / "fans.json")


def _calibration(shape: Shape, folder: Path) -> Calibration:
    from topocal.calibration import Calibration
    from topocal.fabrics import SIZES_BYTES

    return Calibration(
        topology=shape.topology,
        endpoints=shape.blueprint.endpoints,
        sizes_bytes=SIZES_BYTES,
        repeats=_REPEATS,
        rounds=_ROUNDS,
        model=folder / "model.json",
        samples=folder / "calibration.json",
    )


def _not_measured(measured: Measurements) -> Sequence[Pattern]:
    from topocal.measure.patterns import parse_pattern

    known = {frozenset(s.pattern.pairs) for s in measured.samples}
    fans = [parse_pattern(text) for text in _FANS]
    return [fan for fan in fans if frozenset(fan.pairs) not in known][:_SHOWN]


def _judge(shape: Shape, folder: Path, instead: str, begin: float) -> Live:
    from topocal.measure.calibration import read_calibration
    from topocal.solve.model import read_model
    from topocal.solve.predict import predict

    what = _calibration(shape, folder)
    model = read_model(what.model)
    samples = read_calibration(what.samples).samples
    times: dict[str, list[float]] = {}
    patterns = {}
    for sample in read_calibration(folder / "fans.json").samples:
        times.setdefault(sample.name, []).append(sample.seconds)
        patterns[sample.name] = sample.pattern
    predictions = predict(model, list(patterns.values()))
    return Live(
        instead=instead,
        capacities=tuple(
            Recovered(
                resource=name,
                true_Bps=true,
                fitted_Bps=model.resources[name].capacity_Bps,
                status=str(model.resources[name].status),
            )
            for name, true in shape.visible_Bps.items()
        ),
        fans=tuple(
            FanCheck(
                name=name, predicted_s=p.seconds, measured_s=median(times[name]), binds=p.reason
            )
            for name, p in zip(patterns, predictions, strict=True)
        ),
        patterns=len({frozenset(s.pattern.pairs) for s in samples}),
        seconds=time.monotonic() - begin,
    )


@dataclass(frozen=True)
class _Simulated:
    """The true capacities answer, with a little noise."""

    answer: Callable[[Plan], Measurements]

    @classmethod
    def of(cls, shape: Shape) -> _Simulated:
        import numpy as np

        from topocal.measure.simulated import SimulatedMachine
        from topocal.topo.capacities import Capacities

        capacities = Capacities.of(shape.topology, shape.blueprint.truth)
        machine = SimulatedMachine(
            topology=shape.topology, capacities=capacities, noise=_SIMULATED_NOISE
        )
        rng = np.random.default_rng(0)
        return cls(lambda plan: machine.run(plan, rng))

    def run(self, plan: Plan) -> Measurements:
        """Time every pattern of the plan."""
        return self.answer(plan)
