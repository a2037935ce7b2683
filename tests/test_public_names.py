"""What ``import topocal`` offers."""

from __future__ import annotations

import pytest

import topocal


def test_every_public_name_is_there_and_documented() -> None:
    assert sorted(topocal.__all__) == sorted(topocal._HOME)
    assert topocal.__all__ == sorted(topocal.__all__, key=lambda n: (n[0].islower(), n))
    for name in topocal.__all__:
        assert getattr(topocal, name).__doc__, name
    assert dir(topocal) == sorted(topocal.__all__)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        topocal.nothing  # noqa: B018
