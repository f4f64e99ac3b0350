"""The names of a function: where each value is stored, and whether the row has assigned it."""

from __future__ import annotations

from typing import Any

from llm_service.sandbox.compiler.emitter import TRUTH, Emitter
from llm_service.sandbox.compiler.kinds import Kind, join, size
from llm_service.sandbox.compiler.sequences import Value, read, write


class Names:
    """Names that statements assign.

    Args:
        kinds: kinds of the names known so far; assignments widen them.

    Attributes:
        widened: whether a kind has changed, so that code written before is wrong.
    """

    def __init__(self, e: Emitter, kinds: dict[str, Kind]) -> None:
        self._e, self.kinds = e, kinds
        self.widened = False
        self._places: dict[str, tuple[Kind, Any, Any]] = {}

    def assign(self, name: str, value: Value) -> None:
        """Assign the value to the name; copies its arrays.

        Raises:
            NotCompiled: the name is assigned both numbers and lists.
        """
        known = self.kinds.get(name)
        kind = self.kinds[name] = value.kind if known is None else join(known, value.kind)
        if name not in self._places:
            self._places[name] = kind, self._e.memory(size(kind)), self._e.flag()
        written, pointer, flag = self._places[name]
        if written != kind:
            self.widened = True
            return
        write(self._e, kind, pointer, value)
        self._e.store(True, flag)

    def read(self, name: str) -> Value:
        """The value of a name; the row gives up if it is not assigned."""
        kind, pointer, _ = self._places[name]
        self.assert_assigned(name)
        return read(self._e, kind, pointer)

    def kind(self, name: str) -> Kind:
        return self._places[name][0]

    def assert_assigned(self, name: str) -> None:
        """Give up if the row has not assigned the name."""
        self._e.check(self._e.load(TRUTH, self._places[name][2]))
