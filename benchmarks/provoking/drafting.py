"""The scripted runner, with a drafter whose drafts are right as often as it is told."""

from __future__ import annotations

from collections.abc import Callable

from engine.runner.scripted import ScriptedRunner
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput

TOKEN = 7
"""Every output, and every draft."""


class DraftingRunner(ScriptedRunner):
    """Answers each request with the same token, and verifies drafts.

    Args:
        num_drafts: proposed to each request that has been sampled, from now on; 0 for none.
        num_accepted: of a request's drafts in a step, given their number.
    """

    def __init__(
        self, num_drafts: int = 0, num_accepted: Callable[[str, int], int] | None = None
    ) -> None:
        super().__init__(lambda request_id, n: TOKEN)
        self.num_drafts = num_drafts
        self._num_accepted = num_accepted

    def _run(self, output: SchedulerOutput) -> ModelRunnerOutput:
        if not self.num_drafts or self._num_accepted is None:
            return super()._run(output)
        self._apply(output)
        sampled = {}
        for name, num_scheduled in output.num_scheduled_tokens.items():
            drafts = output.scheduled_spec_decode_tokens.get(name, ())
            token = self._advance(name, num_scheduled - len(drafts))
            if token is not None:
                right = min(len(drafts), self._num_accepted(name, len(drafts)))
                sampled[name] = [token] * (1 + right)
                self._accept(name, right)
        drafted = {name: [TOKEN] * self.num_drafts for name in sampled}
        return ModelRunnerOutput(sampled_token_ids=sampled, draft_token_ids=drafted)

    def _accept(self, request_id: str, num_right: int) -> None:
        """Counts right drafts as computed and known."""
        progress = self._progress[request_id]
        progress.num_computed_tokens += num_right
        progress.num_tokens += num_right
