"""The runner of a replay: it computes nothing, for the texts are known to their ends."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping

from diagnose.replay.arena import TokenArena
from diagnose.replay.simulated_drafts import SimulatedDrafts
from diagnose.replay.workload import Workload, WorkRequest
from engine.request import Request
from engine.scheduler import ModelRunnerOutput, SchedulerOutput


class SimulatedRunner:
    """Says what a step brought: the next tokens of texts, and as many right drafts as there were.

    Args:
        requests: those under way, by their numbers in the replay, which are their names.
        random: gives numbers from 0 to below 1.
    """

    def __init__(
        self, workload: Workload, requests: Mapping[int, Request], random: Callable[[], float]
    ) -> None:
        works = list(workload.requests)
        config = workload.config
        num_drafts = config.speculation.num_speculative_tokens
        self._texts = workload.tokens
        self._requests = requests
        self._arena = TokenArena(len(works))
        self._drafts = (
            SimulatedDrafts(works, num_drafts, workload.drafts, random) if num_drafts else None
        )
        self._proposes = num_drafts > 0 and not config.scheduler.async_scheduling

    def text_of(self, work: WorkRequest) -> array[int]:
        """Returns prompt and outputs of a request; one that the record does not know is new."""
        if work.number not in self._texts:
            self._texts.add(work.number, work.num_tokens)
        return self._texts.tokens(work.number, 0, 0, work.num_tokens)

    def add(self, index: int, text: array[int]) -> None:
        """Takes in a request's text."""
        self._arena.add(index, text)

    def drop(self, index: int) -> None:
        """Forgets a request."""
        self._arena.drop(index)

    def result_of(self, output: SchedulerOutput, sampled: list[str]) -> ModelRunnerOutput:
        """Returns what a step brought to those who are sampled."""
        tokens = {}
        drafts = output.scheduled_spec_decode_tokens
        for name in sampled:
            index = int(name)
            request = self._requests.get(index)
            if request is None:
                continue
            count = 1
            if self._drafts is not None and name in drafts:
                count += self._drafts.num_accepted(index, len(drafts[name]))
            tokens[name] = self._arena.tokens(index, len(request.token_ids), count)
        decodes = None
        if output.decodes is not None:
            order = output.decodes.order
            positions = order.offset + (output.decodes.num_scheduled + 1)
            decodes = self._arena.next_tokens(order.number, positions)
        return ModelRunnerOutput(sampled_token_ids=tokens, decode_token_ids=decodes)

    def proposed(self, output: SchedulerOutput, sampled: list[str]) -> dict[str, list[int]]:
        """Returns new drafts for who was sampled and still runs."""
        if self._drafts is None or not self._proposes:
            return {}
        names = sampled if output.decodes is None else sampled + output.decodes.request_ids
        return {
            name: [0] * count
            for name in names
            if int(name) in self._requests and (count := self._drafts.num_proposed(int(name)))
        }
