"""Writes notices to the program's log."""

import logging

from chargehand.notify.base import Notice, NoticeKind

log = logging.getLogger("chargehand")


class Log:
    """Writes one line to the logger `chargehand`, as a warning if a person is needed."""

    async def notify(self, notice: Notice) -> None:
        # Texts as `repr`: a line break or an escape sequence must not start a second log line.
        if notice.kind is NoticeKind.QUESTION:
            choices = "|".join(notice.choices)
            log.warning(
                "question_asked run=%s question=%s text=%r choices=%r answer_with=%r",
                *(notice.run, notice.question, notice.text, choices, notice.answer),
            )
        else:
            log.info("run_told run=%s status=%s text=%r", notice.run, notice.status, notice.text)

    def __repr__(self) -> str:
        return "log"
