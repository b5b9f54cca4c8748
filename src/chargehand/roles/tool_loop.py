"""One attempt of an LLM worker: model calls and tool calls in turn, until there is a result or a failure."""

import asyncio
import hashlib
import logging
import re
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from chargehand.decisions.rule_answer import cut
from chargehand.decisions.run_outputs_and_steps import TOOL_CALL
from chargehand.decisions.tool_policy import Grants, Knowledge, Ruling, Traits, Verdict, judge_call
from chargehand.decisions.tool_rules import Rules
from chargehand.engines.brief import Brief
from chargehand.errors import NotJSON, ToolError, WorkerError
from chargehand.facts.outcome import Done, ErrorClass, Failed, Outcome, Question
from chargehand.facts.plan import ITEM
from chargehand.facts.value import Value, canonical, digest_of
from chargehand.models import base
from chargehand.roles import refusal_detection
from chargehand.roles.crew_data_catalog import told_to_worker
from chargehand.roles.data_fences import fenced
from chargehand.roles.durable_model_calls import DurableModelCaller, in_fewer_words, unusable
from chargehand.roles.json_reply_check import objection_to, record
from chargehand.roles.prompts import prompt
from chargehand.roles.shared_resources import Resources
from chargehand.roles.token_stream import TaskStream
from chargehand.tools.base import Tool, ToolContext
from chargehand.tools.toolbox import Toolbox

log = logging.getLogger("chargehand")

#: how often a model is told what is wrong with its result
REPAIRS = 2
#: the same tool with the same arguments so many times is no progress
REPEATS = 3
#: arguments that a person may give for one call until some can be used; then it counts as rejected
MOST_EDITS = 3
#: calls of one reply that are made; the others are refused, and the model is told so
MOST_CALLS = 64
#: failures of one tool in the same way, one after another, after which the attempt has failed
SAME_FAILURES = 6
#: the name under which a model sees what a task with `for_each` is done for
THE_ITEM = "the one item to do this for"
#: told to a model that makes a call again which failed in the attempt before
NOT_AGAIN = "This very call failed in the attempt before, and was not made again: change it."
LONGEST_RESULT = 1024 * 1024
APPROVE, REJECT, APPROVE_WITH = "approve", "reject", "approve with"
_VERDICT = record(met={"type": "boolean"}, why={"type": "string"})
#: failures of a model that did not go on, by name
_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\d+|\b\w+_\w+\b")
_GAVE_UP = ("Refused", "EmptyReply", "NoProgress", "Cannot")


class ToolLoopWorker(Protocol):
    """What a conversation must know of the worker that holds it."""

    name: str
    #: who it is and how it works: the first turn of all its conversations
    opening: base.Turn
    opening_digest: bytes
    settings: base.ModelSettings
    toolbox: Toolbox
    rules: Rules
    secrets: frozenset[str]
    destinations: frozenset[str]
    preapproved: frozenset[str]
    prompts: Any


class ToolLoop:
    """The model proposes; what is called, how often, and when it is over are decided here."""

    def __init__(
        self,
        worker: ToolLoopWorker,
        brief: Brief,
        resources: Resources,
        models: Sequence[base.Model],
        more: Sequence[Tool] = (),
    ) -> None:
        self._worker = worker
        #: `more` are of this attempt alone
        self._toolbox = Toolbox([*worker.toolbox, *more]) if more else worker.toolbox
        self._rules = worker.rules.with_tools([t.name for t in more]) if more else worker.rules
        self._brief = brief
        self._resources = resources
        self._models = models
        self._caller = DurableModelCaller(brief, resources, models)
        self._turns = [worker.opening]
        #: model calls so far, replayed ones included
        self._calls = 0
        #: turns that the last model call had already
        self._told = 0
        #: of all turns so far: what a model call is known by
        self._digest = worker.opening_digest
        #: tools called so far
        self._history: list[str] = []
        self._succeeded: list[str] = []
        #: by tool that has failed and not succeeded since: of which class, and in what words
        self._trouble: dict[str, tuple[ErrorClass, str]] = {}
        self._seen: dict[str, int] = {}
        #: by tool: how often it has failed in the same way, one time after another
        self._same_failures: dict[str, int] = {}
        #: by digest of the call: how often a person was to be asked about it
        self._approvals: dict[str, int] = {}
        #: by call: the arguments that a person has put in place of the model's
        self._edits: dict[base.ToolCall, str] = {}
        #: what a person did not allow, in words
        self._rejected: dict[str, None] = {}
        #: by its inputs or the request
        self._is_tainted = bool(brief.taint)
        #: tools that have said something since, as sources of taint, and the server of each
        self._heard: dict[str, str] = {}
        self._secrets = resources.granted(worker.name, worker.secrets)

    async def hold(self) -> Outcome:
        """Talk until there is a result that fits, or a reason why there is none."""
        material = await told_to_worker(self._brief, self._toolbox, self._resources.redactor)
        self._is_tainted = bool(self._brief.taint)
        self._add(base.user(self._task_prompt(material)))
        repairs, is_shortened = 0, False
        for _ in range(self._brief.turns_left):
            reply = await self._ask(self._request())
            if reply.stop is base.StopReason.LENGTH and not is_shortened:
                is_shortened = True
                for turn in in_fewer_words(reply):
                    self._add(turn)
                continue
            failure = self._failure_in(reply) or self._refusal_in(reply)
            if failure is not None:
                return self._explained(failure)
            self._add(reply.turn)
            if reply.calls:
                ended = await self._use_tools(reply.calls)
                if ended is not None:
                    return ended
                continue
            value, objection = await self._examine(reply.text)
            if objection is None:
                return Done(Value.of(value), gaps=(*reply.gaps, *self._rejected))
            repairs += 1
            if repairs > REPAIRS:
                return _failed("ResultRefused", objection)
            self._add(base.user(objection))
        raise self._brief.too_many_turns()

    # asking

    def _request(self) -> base.ModelRequest:
        worker, task = self._worker, self._brief.task
        specs, choice = self._open_tools() if self._toolbox.specs else ((), "auto")
        if specs and choice == "auto" and self._is_told:
            specs = (*specs, refusal_detection.SPEC)
        # With tools in play the answer is held to its schema here, not by the provider: most
        # cannot do both in one call.
        schema = task.output if not specs and self._models[0].abilities.schema else None
        return base.ModelRequest(
            turns=tuple(self._turns),
            tools=specs,
            choice=choice,
            schema=refusal_detection.with_status(schema)
            if schema is not None and self._has_status
            else schema,
            settings=worker.settings,
        )

    @cached_property
    def _is_told(self) -> bool:
        """Whether the model is offered our call to say that it cannot."""
        is_free = refusal_detection.CANNOT not in self._toolbox
        return is_free and not self._models[0].abilities.declines

    @property
    def _has_status(self) -> bool:
        """Whether its answer says beside the result that there is none, for want of a call to say so."""
        is_bare = self._brief.task.output is not None and not self._toolbox.specs
        return is_bare and not self._models[0].abilities.declines

    def _failure_in(self, reply: base.ModelReply) -> Failed | None:
        found = unusable(reply)
        # A model of rules that refuses would do the same if it were asked again.
        is_final = reply.stop is base.StopReason.REFUSAL and self._models[0].abilities.declines
        return None if found is None else replace(_failed(*found), is_final=is_final)

    def _refusal_in(self, reply: base.ModelReply) -> Failed | None:
        if not self._is_told:
            return None
        task, calls = self._brief.task, reply.calls
        if calls:
            return refusal_detection.refusal_among(calls)
        asked = f"{self._worker.opening.text}\n{task.description}\n{task.accept}"
        return refusal_detection.refusal_in(reply, task.output, asked)

    def _open_tools(self) -> tuple[tuple[base.ToolSpec, ...], str]:
        """The tools that may be called next, and which of them must be."""
        allowed = self._rules.allowed(self._history)
        specs = self._toolbox.specs
        if isinstance(allowed, str):
            return tuple(spec for spec in specs if spec.name == allowed), allowed
        is_all = len(allowed) == len(specs)
        return specs if is_all else tuple(s for s in specs if s.name in allowed), "auto"

    async def _ask(self, request: base.ModelRequest, name: str = "model") -> base.ModelReply:
        new = request.turns[self._told :] if name == "model" else request.turns
        self._told = len(request.turns) if name == "model" else self._told
        tools = [spec.name for spec in request.tools]
        said = self._digest.hex() if name == "model" else request.turns
        identity = [self._caller.names, said, tools, request.choice]
        about = {"models": self._caller.names, "turns": new, "tools": tools}
        if name != "model":
            return await self._caller.ask_as(name, request, identity, about)
        self._calls += 1
        streams = self._brief.host.text_streams
        if streams is None or not streams.wants_tokens(self._brief.run):
            return await self._caller.ask_as(name, request, identity, about)
        stream = TaskStream(self._brief, streams, self._resources.redactor, self._calls)
        reply = await self._caller.ask_as(name, request, identity, about, stream.hear)
        stream.end()
        return reply

    # tools

    async def _use_tools(self, calls: Sequence[base.ToolCall]) -> Outcome | None:
        """Call what the model asked for, side by side; an outcome if that ends the attempt."""
        # Most often there is one, which needs no task of its own.
        keys = [_key_of(call) for call in calls[:MOST_CALLS]]
        outputs = (
            [await self._use(calls[0])] if len(calls) == 1 else await self._use_all(calls, keys)
        )
        told = [self._with_edit(call, each) for call, each in zip(calls, outputs, strict=True)]
        self._add(base.Turn(base.Role.TOOL, tuple(told)))
        for call, output in zip(calls, outputs, strict=True):
            if self._rules.ends(call.name) and not output.is_error:
                return Done(Value.of(output.text), gaps=tuple(self._rejected))
        return self._stuck(calls, keys)

    async def _use_all(
        self, calls: Sequence[base.ToolCall], keys: Sequence[str]
    ) -> list[base.ToolOutput]:
        refused = self._refused_unmade(calls, keys)
        made = [call for place, call in enumerate(calls) if place not in refused]
        results = await asyncio.gather(*(self._use(call) for call in made), return_exceptions=True)
        outputs: list[base.ToolOutput] = []
        for result in results:  # all have ended, so that nothing goes on unwatched
            if isinstance(result, BaseException):
                raise result
            outputs.append(result)
        told = iter(outputs)
        return [refused[n] if n in refused else next(told) for n in range(len(calls))]

    def _refused_unmade(
        self, calls: Sequence[base.ToolCall], keys: Sequence[str]
    ) -> dict[int, base.ToolOutput]:
        """By place in a reply: calls that are not made. It follows from the replies alone, as in a resumed attempt."""
        refused: dict[int, base.ToolOutput] = {}
        times: dict[str, int] = {}
        for place, call in enumerate(calls):
            if place >= MOST_CALLS:
                why = (
                    f"This call was not made: a reply may make {MOST_CALLS} calls, and this one "
                    f"makes {len(calls)}. Make the others in your next replies."
                )
                refused[place] = _refused(call, why)
                continue
            key = keys[place]
            before = times.get(key, self._seen.get(key, 0))
            times[key] = before + 1
            if before >= REPEATS:
                why = f"This call was not made: the same call was made {REPEATS} times already."
                refused[place] = _refused(call, why)
        return refused

    def _stuck(self, calls: Sequence[base.ToolCall], keys: Sequence[str]) -> Outcome | None:
        for call, what in zip(calls, keys, strict=False):  # those past the most have no key
            times = self._seen[what] = self._seen.get(what, 0) + 1
            if times >= REPEATS:
                failure = _failed("NoProgress", f"it called {what[:200]} {REPEATS} times")
                return self._explained(failure, call.name)
            if self._same_failures.get(call.name, 0) >= SAME_FAILURES:
                words = f"{call.name} failed {SAME_FAILURES} times in the same way"
                return self._explained(_failed("NoProgress", words), call.name)
        return None

    def _explained(self, failure: Failed, tool: str = "") -> Failed:
        """The failure of a model that gave up, in the class of the tool that it could not do without.

        What is denied to a tool is denied to the attempt: that a model was told of it in between
        makes it no fault of the task's words.
        """
        tool = tool or next(reversed(self._trouble), "")
        if failure.error not in _GAVE_UP or tool not in self._trouble:
            return failure
        kind, words = self._trouble[tool]
        told = words if words.startswith(tool) else f"{tool} failed: {words}"
        return replace(failure, kind=kind, message=f"{failure.message}; {told[:300]}")

    async def _use(self, call: base.ToolCall) -> base.ToolOutput:
        # No await up to the step itself: calls made side by side are judged and numbered in the
        # order the model wrote them, in this attempt and in every one that goes on from it.
        try:
            tool = self._toolbox.find(call.name)
            objection = self._rules.may_call(call.name, self._history)
            if objection is not None:
                return _refused(call, objection)
            arguments = self._permitted(tool, call)
        except ToolError as error:
            return self._failing(_refused(call, str(error)), error.kind)
        self._history.append(call.name)
        identity = [call.name, _canonical_arguments(arguments)]

        name = f"{TOOL_CALL}{call.name}"

        async def run(key: str) -> Done:
            return self._failed_before(name, identity) or await self._call(tool, key, arguments)

        done = await self._brief.durable(
            name,
            identity,
            run,
            effect=tool.effect,
            about=Value.of_record({"arguments": arguments}),
        )
        self._heard[f"tool:{tool.name}"] = tool.server
        output = done.value.read()
        if not isinstance(output, dict) or "text" not in output:
            output = {"text": _in_doubt_words(output)}
        told = base.ToolOutput(call.id, call.name, output["text"], bool(output.get("is_error")))
        if told.is_error:
            return self._failing(told, output.get("kind", ErrorClass.LOGIC))
        self._succeeded.append(call.name)
        self._trouble.pop(call.name, None)
        self._same_failures.pop(call.name, None)
        return told

    def _with_edit(self, call: base.ToolCall, output: base.ToolOutput) -> base.ToolOutput:
        """What the model is told: its own turn still has the arguments that it wrote."""
        edit = self._edits.get(call)
        if edit is None:
            return output
        words = f"A person changed this call. It was made with these arguments instead: {edit}"
        return replace(output, text=f"{words}\n{output.text}")

    def _failed_before(self, name: str, identity: object) -> Done | None:
        """The same call of the attempt before, if it was refused for what it says: it would be again."""
        before = () if self._brief.log is None else self._brief.log.before
        digest = digest_of(canonical([name, identity])) if before else ""
        for step in before:
            if step.digest != digest or type(step.outcome) is not Done:
                continue
            value = step.outcome.value
            said = None if value.blob else value.read()
            if isinstance(said, dict) and said.get("kind") == ErrorClass.LOGIC:
                text = f"{said['text']}\n{NOT_AGAIN}"
                return Done(Value.of_record({**said, "text": text}, value.taint))
        return None

    def _failing(self, told: base.ToolOutput, kind: str) -> base.ToolOutput:
        before = self._trouble.pop(told.name, None)  # the newest comes last
        self._trouble[told.name] = (ErrorClass(kind), told.text)
        is_same = before is not None and _gist_of(before[1]) == _gist_of(told.text)
        self._same_failures[told.name] = self._same_failures.get(told.name, 0) * is_same + 1
        return told

    async def _call(self, tool: Tool, key: str, arguments: str) -> Done:
        brief = self._brief
        context = ToolContext(
            run=brief.run,
            task=brief.task.id,
            attempt=brief.attempt,
            worker=brief.worker,
            key=key,
            deps=self._resources.deps,
            secrets=self._secrets,
            redactor=self._resources.redactor,
            report=partial(self._report, tool) if tool.untrusted else brief.progress,
        )
        try:
            result = await tool.call(context, arguments)
        except ToolError as error:
            # The model is told, and may find another way; the attempt has not failed by it. What
            # an untrusted tool says of its failure is no more to be trusted than what it returns.
            taint = (f"tool:{tool.name}",) if tool.untrusted else ()
            told = {"text": str(error), "is_error": True, "kind": error.kind}
            return Done(Value.of(told, taint))
        return Done(Value.of_record({"text": result.text}, result.taint))

    def _report(self, tool: Tool, text: str) -> None:
        """Pass on what an untrusted tool says of its progress, which is no more to be trusted than its result."""
        self._brief.distrust(f"tool:{tool.name}")
        self._brief.progress(text)

    def _permitted(self, tool: Tool, call: base.ToolCall) -> str:
        """The arguments to call it with, if policy, and a person where one is asked, allow it."""
        verdict = self._judged(tool, call.arguments)
        match verdict.ruling:
            case Ruling.ALLOWED:
                return call.arguments
            case Ruling.DENIED:
                raise _denied(verdict)
            case Ruling.ASK:
                # First, so that nobody is asked about a call that cannot be made; the model is told.
                tool.arguments.read(call.arguments)
                return self._approved(tool, call, verdict)

    def _judged(self, tool: Tool, arguments: str) -> Verdict:
        """What policy says to this call."""
        traits = Traits(
            name=tool.name,
            effect=tool.effect,
            is_untrusted=tool.untrusted,
            destination=tool.destination_of(arguments) or "",
            server=tool.server,
            needs_approval=tool.approve or self._rules.needs_approval(tool.name),
        )
        knowledge = Knowledge(
            taint=self._brief.taint,
            is_sensitive=bool(self._secrets),
            only_from=self._only_source(),
        )
        return judge_call(traits, self._grants, knowledge)

    @cached_property
    def _grants(self) -> Grants:
        return Grants(
            tools=frozenset(self._toolbox.names),
            destinations=self._worker.destinations,
            has_secrets=bool(self._secrets),
            preapproved=self._worker.preapproved,
        )

    def _only_source(self) -> str:
        """The server that all it has read came from, if it is one and nothing else has tainted it."""
        if self._is_tainted:
            return ""
        servers = {*self._heard.values(), *(self._heard.get(s, "") for s in self._brief.taint)}
        return servers.pop() if len(servers) == 1 else ""

    def _approved(self, tool: Tool, call: base.ToolCall, verdict: Verdict) -> str:
        """Ask a person about exactly this call.

        Another one, the same once more, or the same in another lineage is another question: an
        approval is for one call, and what it led to is replayed, not called again, in its own lineage.
        A person whose changed arguments cannot be used is told why, and asked again.
        """
        arguments = _canonical_arguments(call.arguments)
        digest = digest_of(f"{tool.name}\0{arguments}".encode())
        times = self._approvals[digest] = self._approvals.get(digest, 0) + 1
        again = f".{times}" if times > 1 else ""
        lineage = 0 if self._brief.log is None else self._brief.log.number
        again += f"~{lineage}" if lineage else ""
        question = Question(
            # All of the digest: of half of it, two calls with the same can be found by trying.
            id=self._brief.question_id(f"approve-{digest}{again}"),
            text=f"May {self._worker.name} call {tool.name}? {_sentence(verdict.why)}"
            f"{self._made_before(tool, arguments, digest)}",
            about="approval",
            choices=(APPROVE, REJECT),
            telling=APPROVE_WITH,
            evidence=Value.of({"tool": tool.name, "arguments": arguments, "digest": digest}),
            shape=tool.arguments.schema,
        )
        if verdict.grant and not self._brief.can_ask and question.id not in self._brief.answers:
            raise self._unasked(tool, verdict)
        first, objection = question, ""
        for number in range(1, MOST_EDITS + 1):
            answer = self._brief.answer_to(question)
            if answer == APPROVE:
                return call.arguments
            if answer == REJECT:
                raise self._unapproved(tool, arguments)
            edited = msgspec.json.encode(question.told(answer)).decode()
            objection = self._objection_to_edit(tool, edited)
            if not objection:
                if _canonical_arguments(edited) != arguments:
                    self._edits[call] = edited
                return edited
            told = f"The arguments given last cannot be used: {objection.rstrip('.')}."
            question = replace(first, id=f"{first.id}!{number}", text=f"{told} {first.text}")
            if not self._brief.can_ask and question.id not in self._brief.answers:
                break
        raise self._unapproved(tool, edited, objection)

    def _objection_to_edit(self, tool: Tool, edited: str) -> str:
        """Why these arguments of a person cannot be used; empty if they can."""
        try:
            verdict = self._judged(tool, edited)
            tool.arguments.read(edited)
        except ToolError as error:
            # In one line of visible characters: the values in it must not pass for words of ours.
            line = " ".join(str(error).split())
            return "".join(c if c.isprintable() else "\ufffd" for c in line)
        # What nobody may do, nobody may approve.
        return verdict.why if verdict.ruling is Ruling.DENIED else ""

    def _unapproved(self, tool: Tool, arguments: str, objection: str = "") -> ToolError:
        """No person has approved this call in a form that can be used: a gap of the result, and what the model is told."""
        why = f" ({objection})" if objection else ""
        self._rejected[f"{tool.name} was not approved: {cut(arguments, 200)}{why}"] = None
        told = (
            f"a person changed this call to one that is not allowed: {objection}"
            if objection
            else "a person rejected this call"
        )
        return ToolError(f"{told}; find another way or say so", kind="denied")

    def _made_before(self, tool: Tool, arguments: str, digest: str) -> str:
        """Whether the same call was approved or made before in this run, by any of its workers."""
        brief = self._brief
        step = digest_of(canonical([f"{TOOL_CALL}{tool.name}", [tool.name, arguments]]))
        made, answered_by = brief.earlier.made.get(step), brief.earlier.answered_by
        approved = [
            question
            for question, answer in brief.answers.items()
            if f":approve-{digest}" in question and answer == APPROVE
        ]
        by = [answered_by[each] for each in approved if each in answered_by]
        if made is None and not approved:
            return ""
        approved_by = f"approved by {', '.join(dict.fromkeys(by))}" if by else ""
        if made is None:
            return f" The same call was already {approved_by or 'approved'} in this run."
        at = f"{made.last_at:%Y-%m-%d %H:%M} UTC"
        how = f"made at {at}" if made.times == 1 else f"made {made.times} times, last at {at}"
        return f" The same call was already {approved_by and f'{approved_by} and '}{how}."

    def _unasked(self, tool: Tool, verdict: Verdict) -> ToolError:
        """A person would have to be asked, and nobody can be; the crew's author is told what to grant."""
        told = (
            f"{verdict.why}; nobody can be asked here. Worker({self._worker.name!r}, …, {verdict.grant}) "
            "allows it unasked, on_question='wait' asks a person"
        )
        log.warning(
            "call_denied run=%s task=%s tool=%s why=%r",
            *(self._brief.run, self._brief.task.id, tool.name, told),
        )
        return ToolError(f"not allowed: {told}", kind="denied")

    # the result

    async def _examine(self, text: str) -> tuple[Any, str | None]:
        """The result in this answer, and what speaks against it."""
        missing = self._rules.may_finish(self._history, self._succeeded)
        if missing is not None:
            return None, missing
        if len(text) > LONGEST_RESULT:
            return (
                None,
                f"The result has {len(text)} characters; make it shorter than {LONGEST_RESULT}.",
            )
        task = self._brief.task
        value: Any = text.strip()
        if task.output is not None:
            value, objection = refusal_detection.result_in(text, task.output)
            if objection is not None:
                return None, objection
        if task.accept:
            return value, await self._unmet(task.accept, text)
        return value, None

    async def _unmet(self, rule: str, text: str) -> str | None:
        """Why the result does not meet the task's acceptance rule, as the model judges; None if it does."""
        words = prompt(
            "check",
            self._worker.prompts,
            description=self._brief.task.description,
            accept=rule,
            result=text,
        )
        request = base.ModelRequest(
            turns=(base.user(words),), schema=_VERDICT, settings=self._worker.settings
        )
        reply = await self._ask(request, "check")
        verdict, objection = objection_to(reply.text, _VERDICT)
        if objection is not None:
            raise WorkerError(f"the check of the result cannot be read: {objection}")
        return None if verdict["met"] else f"The result does not meet the rule: {verdict['why']}"

    # words

    def _task_prompt(self, material: str) -> str:
        brief, task = self._brief, self._brief.task
        given = f"Given: {canonical(task.args).decode()}\n" if task.args else ""
        inputs = missing = ""
        if brief.values or brief.missing:
            inputs = "".join(
                fenced(THE_ITEM if name == ITEM and brief.index is not None else name, value)
                for name, value in brief.inputs.items()
            )
            missing = "".join(
                f"Not available: {name} ({why})\n" for name, why in brief.missing.items()
            )
        accept = f"It is accepted if: {task.accept}\n" if task.accept else ""
        schema = ""
        if self._has_status:
            schema = refusal_detection.status_words(task.output or {})
        elif task.output is not None:
            schema = f"Answer with JSON that fits this schema: {canonical(task.output).decode()}\n"
        return prompt(
            "task",
            self._worker.prompts,
            description=task.description,
            arguments=given,
            inputs=f"{material}{inputs}",
            missing=missing,
            accept=accept,
            schema=schema,
        )

    def _add(self, turn: base.Turn) -> None:
        self._turns.append(turn)
        self._digest = digest_after(self._digest, turn)


def digest_after(before: bytes, turn: base.Turn) -> bytes:
    """The digest of a conversation that had this one before the turn."""
    return hashlib.blake2b(before + msgspec.json.encode(turn), digest_size=16).digest()


def _gist_of(words: str) -> str:
    """What a tool says of a failure, without the names and numbers in it."""
    return _PARTICULARS.sub("", words.partition("\n")[0]).casefold()


def _failed(error: str, message: str) -> Failed:
    return Failed(kind=ErrorClass.LOGIC, message=message, error=error)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _denied(verdict: Verdict) -> ToolError:
    return ToolError(f"not allowed: {verdict.why}", kind="denied")


def _in_doubt_words(said: object) -> str:
    """What a model is told of a call whose end only a person knows, who said this of its result."""
    if said is None:
        return "A person says that this call was carried out. Its result is not known."
    result = said if isinstance(said, str) else canonical(said).decode()
    return f"A person says that this call was carried out, with this result: {result}"


def _refused(call: base.ToolCall, why: str) -> base.ToolOutput:
    return base.ToolOutput(call.id, call.name, why, is_error=True)


def _key_of(call: base.ToolCall) -> str:
    """What the same call has in common with itself, however its arguments are written."""
    return f"{call.name}({_canonical_arguments(call.arguments)})"


def _canonical_arguments(arguments: str) -> str:
    try:
        return canonical(msgspec.json.decode(arguments or "{}")).decode()
    except (ValueError, RecursionError, NotJSON):  # no JSON, or nested too deeply
        return arguments
