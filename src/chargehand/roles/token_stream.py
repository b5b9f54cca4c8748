"""Streaming of what a model writes for a task, without secrets, to those who asked for tokens."""

from chargehand.engines.brief import Brief
from chargehand.engines.text_streams import TextStreams
from chargehand.facts.answer import TaskPiece
from chargehand.tools.redaction import RedactedStream, Redactor


class TaskStream:
    """Passes on the text of one model call of an attempt while it comes."""

    def __init__(self, brief: Brief, streams: TextStreams, redactor: Redactor, call: int) -> None:
        self._brief = brief
        self._streams = streams
        self._redactor = redactor
        self._call = call
        self._text = RedactedStream(redactor)

    def hear(self, piece: str | None) -> None:
        """Take what came; None: the reply broke off and begins anew."""
        if piece is None:
            self._text = RedactedStream(self._redactor)
            self._say("", begins_anew=True)
        elif shown := self._text.take(piece):
            self._say(shown)

    def end(self) -> None:
        """Pass on what was held back: the reply is complete."""
        if rest := self._text.rest():
            self._say(rest)

    def _say(self, text: str, *, begins_anew: bool = False) -> None:
        brief = self._brief
        piece = TaskPiece(
            task=brief.task.id,
            attempt=brief.attempt,
            call=self._call,
            text=text,
            begins_anew=begins_anew,
        )
        self._streams.say(brief.run, piece)
