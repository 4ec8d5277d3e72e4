"""Follows the steps of a program while it is recorded: opens and closes the window, and ends the program if asked to.

How steps are told is `progress`'s matter, what is kept of the state between them `state`'s.
"""

import _thread
import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tfbisect.recorder import ops
from tfbisect.recorder.against import ComparingWriter
from tfbisect.recorder.entering import Entering
from tfbisect.recorder.function import FunctionRecorder
from tfbisect.recorder.handles import variables_of
from tfbisect.recorder.progress import By, Progress
from tfbisect.recorder.recording import CALLBACK_THREAD, Recording
from tfbisect.recorder.state import StateKeeper
from tfbisect.recorder.window import Window, Wish
from tfbisect.recorder.writers import written_arguments

# Calls after the first difference until a program is ended that shows no steps, or whose step does not end.
FEW_CALLS, MANY_CALLS = 1000, 100_000


class Stopped(SystemExit):
    """Ends the program as `sys.exit` would: its `finally` blocks and exit handlers run."""


class Watch:
    """Hears of every call, eager write and mark. keeper: takes digests of the state between steps; None: nobody does.

    end: closes the trace for a reason, called once, right before the program is ended.
    """

    def __init__(
        self, recording: Recording, wish: Wish, keeper: StateKeeper | None, end: Callable[[str, int], None]
    ) -> None:  # fmt: skip
        self._recording, self._wish, self._keeper, self._end = recording, wish, keeper, end
        self._written: dict[str, frozenset[int]] = {}
        self._skipped: Any = None  # the handle of the variable that is being written
        writer = recording.writer
        self._compared = writer if isinstance(writer, ComparingWriter) else None
        self.progress = Progress(self._step_changed)
        self.stopped: int | None = None  # the exit status, once the program is being ended
        recording.watch = self
        recording.live = wish.window.holds(-1)
        recording.ever_live = wish.window.last != 0

    # --- what the program does ------------------------------------------------------------------------------------

    def call(
        self, functions: FunctionRecorder, context: Any, name: bytes, inputs: Sequence[Any], outputs: int
    ) -> Any:  # fmt: skip
        """Run a function, recorded or not."""
        recording = self._recording
        thread = recording.thread()
        if thread.muted or not recording.active:
            return functions.call(name, inputs, outputs)
        outermost = recording.parent(thread) < 0 and thread.number != CALLBACK_THREAD
        written: frozenset[int] = frozenset()
        try:
            written = self._written_by(context, name.decode(), inputs)
            if outermost and written:
                self.progress.function(ops.user_name(name.decode()))
        except Exception as error:
            recording.fail(f"following the steps at {name.decode()}", error)
        results = functions.call(name, inputs, outputs)
        if self._keeper is not None and recording.active:
            try:
                self._keeper.called([inputs[index] for index in written], results or () if outermost else ())
            except Exception as error:
                recording.fail(f"the state after {name.decode()}", error)
        if outermost:
            self.ran()
        return results

    def ran(self) -> None:
        """A call or eager op has ended: the place to end a program that shows no steps."""
        compared = self._compared
        if compared is not None and self._wish.stop_at_first and compared.first and self.stopped is None:
            if compared.since >= (FEW_CALLS if self.progress.by == By.NOTHING else MANY_CALLS):
                self._stop(f"it differs from the other run: first {compared.first}", 1)

    def wrote(self, handles: Sequence[Any], line: int) -> None:
        """An eager op has written variables."""
        if self._keeper is not None:
            self._keeper.wrote(handles)
        if self._recording.thread().number == CALLBACK_THREAD:
            return
        for handle in handles:
            self._skipped = handle
            try:
                self.progress.written((line, id(handle)))
            finally:
                self._skipped = None

    def marked(self, step: int) -> None:
        """The program says in which step it is; -1: in none."""
        self.progress.marked(step)

    def fetched(self, values: Sequence[Any]) -> None:
        """A v1 Session has given these arrays to the program."""
        if self._keeper is not None and self._recording.active:
            try:
                self._keeper.fetched(values)
            except Exception as error:
                self._recording.fail("what a Session gave", error)

    def forget(self, name: str) -> None:
        """A function is gone."""
        self._written.pop(name, None)

    def _written_by(self, context: Any, name: str, inputs: Sequence[Any]) -> frozenset[int]:
        """The numbers of the arguments, handles of variables, that a function may write."""
        written = self._written.get(name)
        if written is None:
            variables = variables_of(inputs)
            for index in variables:
                self._entering.register(inputs[index])
            written = frozenset()
            if variables:
                written = written_arguments(context, context.get_function_def(name), variables)
            self._written[name] = written
        return written

    @property
    def _entering(self) -> Entering:
        entering = self._recording.entering
        assert entering is not None
        return entering

    # --- steps ----------------------------------------------------------------------------------------------------

    def _step_changed(self) -> None:
        recording, step = self._recording, self.progress.number
        if not recording.active:
            return
        if self._wish.window != Window() or self.progress.by == By.MARKS:
            recording.step = step  # else steps are told from the trace, as those of the other run are
        if self._compared is not None:
            self._compared.step = step
        if self._keeper is not None:
            different = self._keeper.step_changed(step)
            within = self._wish.then_stop and recording.live  # the recorded steps are to be whole
            if different and self._wish.stop_at_first and not within:
                return self._stop(different, 0 if self._wish.then_stop else 1)
        first = self._compared.first if self._compared is not None else None
        if first is not None and self._wish.stop_at_first and not self._wish.then_stop:
            return self._stop(f"it differs from the other run: first {first}", 1)
        window = self._wish.window
        if self._wish.then_stop and window.last and window.is_over(step):
            return self._stop(f"step {step} begins, and the steps to record are over", 0)
        live = window.holds(step) and (step >= 0 or recording.live)
        if live and not recording.live:
            self._entering.opened(self._skipped if self.progress.late else None)
        recording.live = live

    def finish(self) -> None:
        """The program is over, and with it its last step."""
        if self._keeper is not None and self._recording.active:
            self._keeper.finish()

    @property
    def compared(self) -> str:
        """What comparing with the other run found, in words; "" where there is none."""
        compared = self._compared
        if compared is None or not self._recording.ever_live:
            return ""
        alone = f", {compared.unmatched:,} calls are of this run only" if compared.unmatched else ""
        if compared.first is None:
            return f"; compared with the other run: none differs{alone}"
        return f"; compared with the other run: {compared.differing:,} differ{alone}, first {compared.first}"

    def _stop(self, reason: str, status: int) -> None:
        self.stopped = status
        self._end(reason, status)
        print(f"tfbisect: the program is ended here: {reason}", file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        if threading.current_thread() is threading.main_thread():
            raise Stopped(status)
        _thread.interrupt_main()
