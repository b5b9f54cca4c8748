"""What models are told when an answer is made: the request, the results, what is missing."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from chargehand.facts.value import canonical
from chargehand.models.base import Turn, system, user
from chargehand.roles.data_fences import fenced, quoted
from chargehand.roles.prompts import prompt

#: names of blocks that are no results; no task can be called so
EARLIER, DRAFTED, MISSING = "@earlier", "@drafted", "@missing"


class AnswerPrompts(Struct, frozen=True, kw_only=True):
    """The words that all calls for one answer share."""

    request: str
    instruction: str = ""
    #: what the run before was asked and what came of it
    earlier: str = ""
    #: what the answer was before the last results came in
    draft: str = ""
    missing: str = ""
    prompts: str | Path | None = None

    def for_answer(self, results: str) -> tuple[Turn, ...]:
        return self._turns(prompt("answer", self.prompts), results)

    def for_shape(self, results: str, schema: dict[str, Any]) -> tuple[Turn, ...]:
        words = prompt("shape", self.prompts, schema=canonical(schema).decode())
        return self._turns(words, results)

    def for_choice(self, results: str) -> tuple[Turn, ...]:
        criterion = self.instruction or "It best answers the request."
        words = prompt("select", self.prompts, criterion=quoted(criterion))
        return (system(words), user(self._filled(results)))

    def for_notes(self, results: str, words: int) -> tuple[Turn, ...]:
        """Says nothing of what is missing: that may still change, and notes are made early."""
        asked = prompt("reduce", self.prompts, words=str(words))
        return (system(asked), user(self._filled(results, instruction=self._wanted)))

    @property
    def _wanted(self) -> str:
        if not self.instruction:
            return ""
        return f"What the answer should look like: {quoted(self.instruction)}"

    def _turns(self, asked: str, results: str) -> tuple[Turn, ...]:
        earlier = missing = ""
        if self.earlier:
            earlier = f"The request goes on from an earlier one:\n{fenced(EARLIER, self.earlier)}"
        if self.draft:
            earlier += f"Your draft, before the last results came in; bring it up to date:\n{fenced(DRAFTED, self.draft)}"
        if self.missing:
            missing = f"Not available, and why:\n{fenced(MISSING, self.missing)}"
        said = self._filled(results, earlier=earlier, missing=missing, instruction=self._wanted)
        return (system(asked), user(said))

    def _filled(
        self, results: str, earlier: str = "", missing: str = "", instruction: str = ""
    ) -> str:
        return prompt(
            "results",
            self.prompts,
            request=quoted(self.request) or "Put the results together.",
            results=results,
            earlier=earlier,
            missing=missing,
            instruction=instruction,
        )
