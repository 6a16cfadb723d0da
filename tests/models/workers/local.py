"""A link without a process: everything happens at once, and a test decides when the worker dies or falls silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from models.workers.borders import Numbering
from models.workers.host import Built, Host
from models.workers.messages import Chunk, Command, Frame, Note, Stop
from tests.models.workers.puppet import VERSIONS, Puppet


class LocalLink:
    """`Link` to a host in this thread. `said`: all that the worker said, as it left."""

    def __init__(self, built: Built, hear: Callable[[Note], None], lost: Callable[[str], None]) -> None:
        self.host = Host(built)
        self.puppet = built.engine
        self.pid: int | None = 4711
        self.counters: Mapping[str, int] = {"frames_dropped": 1}
        self.waiting = 0
        self.said: list[Note] = []
        self.sent: list[Command] = []
        self.loses: Callable[[Frame], bool] = lambda frame: False
        """Which frames get lost on their way."""
        self.changes: Callable[[Frame], Frame] = lambda frame: frame
        self.ended = False
        self.refuses_to_end = False
        self._hear, self._lost = hear, lost
        self._there, self._back = Numbering(), Numbering()

    def begin(self) -> None:
        self.tell(self.host.ready)

    def tell(self, note: Note) -> None:
        if isinstance(note, Frame):
            if self.loses(note):
                return
            note = self.changes(replace(note, envelope=self._back.number(note.envelope)))
        self.said.append(note)
        self._hear(note)

    def beat(self) -> None:
        self.tell(self.host.beat())

    def send(self, command: Command) -> None:
        if isinstance(command, Chunk):
            command = replace(command, envelope=self._there.number(command.envelope))
        self.sent.append(command)
        self.host.receive(command, self.tell)
        if isinstance(command, Stop) and not self.refuses_to_end:
            self.die("it was stopped")

    def forget(self, session: str) -> None:
        self._there.forget(session)

    def kill(self) -> None:
        self.die("SIGKILL")

    def die(self, reason: str) -> None:
        if not self.ended:
            self.ended = True
            self._lost(reason)

    def join(self, within: float) -> bool:
        return self.ended


class LocalLaunch:
    """Keeps the links that it made. `prepare` may change each before it begins."""

    def __init__(self, prepare: Callable[[LocalLink], None] = lambda link: None, slots: int = 2) -> None:
        self.links: list[LocalLink] = []
        self._prepare = prepare
        self._slots = slots

    def __call__(self, hear: Callable[[Note], None], lost: Callable[[str], None]) -> LocalLink:
        link = LocalLink(Built(Puppet(self._slots), VERSIONS), hear, lost)
        self._prepare(link)
        self.links.append(link)
        link.begin()
        return link

    @property
    def link(self) -> LocalLink:
        """The present one."""
        return self.links[-1]
