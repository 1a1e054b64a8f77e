"""How hard the property tests try.

`--hypothesis-profile=deep` is for minutes, not seconds. `broken` is for tests of broken code: to
fail is enough, nobody reads the example.
"""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("ordinary", deadline=None)  # no test depends on an absolute time
settings.register_profile("deep", max_examples=5000, deadline=None, print_blob=True)
settings.register_profile(
    "broken",
    deadline=None,
    database=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("ordinary")
