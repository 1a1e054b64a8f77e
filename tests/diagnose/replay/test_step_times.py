"""What a step takes is learned from steps, and drawn again as it was."""

from __future__ import annotations

import numpy as np
import pytest

from diagnose.replay.step_times import (
    DECODES,
    MIN_STEPS,
    NUM_FEATURES,
    PREFILL_TOKENS,
    Floats,
    StepClock,
    fit,
)

MS = 1e6


def steps(number: int, seed: int = 1) -> tuple[Floats, Floats]:
    """Decode steps of which every eighth prefills, and when each begins."""
    random = np.random.default_rng(seed)
    features = np.zeros((number, NUM_FEATURES))
    features[:, 0] = 1
    features[:, DECODES] = random.integers(1, 32, number)
    features[::8, PREFILL_TOKENS] = random.integers(16, 512, len(features[::8]))
    return features, np.arange(number) * 20 * MS


def durations(features: Floats) -> Floats:
    return 8 * MS + 0.2 * MS * features[:, DECODES] + 0.05 * MS * features[:, PREFILL_TOKENS]


def test_the_parts_of_a_step_are_found() -> None:
    features, begins = steps(400)
    times = fit(features, durations(features), begins)
    assert times.coefficients[0] == pytest.approx(8 * MS, rel=1e-6)
    assert times.coefficients[DECODES] == pytest.approx(0.2 * MS, rel=1e-6)
    assert times.coefficients[PREFILL_TOKENS] == pytest.approx(0.05 * MS, rel=1e-6)
    assert times.error_ratio == pytest.approx(0.0, abs=1e-9)


def test_no_part_is_negative() -> None:
    features, begins = steps(400)
    shrinking = 20 * MS - 0.2 * MS * features[:, DECODES]
    times = fit(features, shrinking, begins)
    assert min(times.coefficients) >= 0


def test_a_hiccup_does_not_change_the_parts() -> None:
    features, begins = steps(400)
    taken = durations(features)
    taken[7] += 4000 * MS
    times = fit(features, taken, begins)
    assert times.coefficients[DECODES] == pytest.approx(0.2 * MS, rel=1e-3)


def test_drawn_steps_take_as_long_on_the_whole() -> None:
    features, begins = steps(600)
    noise = np.random.default_rng(2).exponential(3 * MS, 600)
    taken = durations(features) + noise
    clock = StepClock(fit(features, taken, begins), seed=5)
    drawn = [clock.draw(row, int(at)) for row, at in zip(features.tolist(), begins, strict=True)]
    assert sum(drawn) == pytest.approx(taken.sum(), rel=0.02)
    assert np.std(drawn) == pytest.approx(taken.std(), rel=0.1)


def test_with_seed_0_every_step_takes_what_it_took() -> None:
    features, begins = steps(600)
    noise = np.random.default_rng(2).exponential(3 * MS, 600)
    taken = durations(features) + noise
    clock = StepClock(fit(features, taken, begins), seed=0)
    drawn = [clock.draw(row, int(at)) for row, at in zip(features.tolist(), begins, strict=True)]
    assert drawn == pytest.approx(taken.tolist(), rel=1e-3)


def test_a_machine_that_slows_down_slows_down_again() -> None:
    features, begins = steps(640)
    taken = durations(features) * np.where(begins < begins[320], 1.0, 2.0)
    clock = StepClock(fit(features, taken, begins), seed=5)
    row = features[1].tolist()
    early, late = (clock.draw(row, int(begins[n])) for n in (100, 500))
    assert late / early == pytest.approx(2.0, rel=0.1)


def test_too_few_steps_are_refused() -> None:
    features, begins = steps(MIN_STEPS - 1)
    with pytest.raises(ValueError, match="19 steps are too few"):
        fit(features, durations(features), begins)
