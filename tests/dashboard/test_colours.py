"""Colours: every value has one, and values of one enum can be told apart."""

from __future__ import annotations

import itertools
import math
from enum import IntEnum

import pytest

from dashboard import colours
from dashboard.colours import Theme
from diagnose.finding import Severity
from telemetry.vocabulary import (
    PreemptionCause,
    SkipReason,
    StopReason,
    WaitReason,
    ZeroReason,
)

DRAWN = (StopReason, SkipReason, ZeroReason, WaitReason, PreemptionCause)
THEMES: tuple[Theme, ...] = ("dark", "light")


def oklab(colour: str) -> tuple[float, float, float]:
    """Source: Björn Ottosson, "A perceptual color space for image processing"."""
    red, green, blue = (colours._linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def distance(one: str, other: str) -> float:
    return 100 * math.dist(oklab(one), oklab(other))


@pytest.mark.parametrize("enum", DRAWN)
def test_every_value_has_a_colour(enum: type[IntEnum]) -> None:
    expected = set(enum)
    assert set(colours.COLOURED[enum]) == expected


def test_oklab_tells_black_from_white() -> None:
    assert distance("#000000", "#FFFFFF") == pytest.approx(100, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("enum", [StopReason, SkipReason, ZeroReason, PreemptionCause])
def test_values_of_one_enum_are_apart(enum: type[IntEnum], theme: Theme) -> None:
    used = colours.COLOURED[enum]
    close = {
        (one.name, other.name): distance(used[one].of(theme), used[other].of(theme))
        for one, other in itertools.combinations(enum, 2)
        if distance(used[one].of(theme), used[other].of(theme)) < 6
    }
    assert close == {}


@pytest.mark.parametrize("theme", THEMES)
def test_neighbours_among_wait_reasons_are_apart(theme: Theme) -> None:
    close = {
        (one.name, other.name)
        for one, other in itertools.pairwise(WaitReason)
        if distance(colours.WAIT_REASONS[one].of(theme), colours.WAIT_REASONS[other].of(theme)) < 6
    }
    assert close == set()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("reason", PreemptionCause)
def test_kv_full_stands_out_from_each_other_cause(reason: PreemptionCause, theme: Theme) -> None:
    if reason is PreemptionCause.kv_full:
        return
    kv_full = colours.PREEMPTION_CAUSES[PreemptionCause.kv_full].of(theme)
    assert distance(kv_full, colours.PREEMPTION_CAUSES[reason].of(theme)) > 13


def test_a_wait_reason_has_the_colour_of_the_reason_that_it_stands_for() -> None:
    for reason in (*SkipReason, *(stop for stop in StopReason if stop.name != "queue_empty")):
        table = colours.COLOURED[type(reason)]
        assert colours.WAIT_REASONS[WaitReason.of(reason)] == table[reason]


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_never_set_in_a_fill_that_cannot_be_read(theme: Theme) -> None:
    ground = colours.BACKGROUND.of(theme)
    for table in colours.COLOURED.values():
        for colour in table.values():
            assert colours.contrast(colours.text_colour(colour.of(theme), theme), ground) >= 3


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("severity", Severity)
def test_severities_can_be_read(severity: Severity, theme: Theme) -> None:
    colour = colours.SEVERITIES[severity][1].of(theme)
    assert colours.contrast(colour, colours.PANEL.of(theme)) >= 4.5


def test_an_unknown_name_is_grey() -> None:
    assert colours.of_reason(StopReason, "from_a_newer_version", "dark") == "#8893A3"
