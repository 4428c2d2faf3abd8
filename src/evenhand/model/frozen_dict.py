"""FrozenDict: a mapping that cannot be changed, can be hashed, and prints as a dict; nested values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

V = TypeVar("V", covariant=True)


class FrozenDict(Mapping[str, V], Generic[V]):
    """A read-only mapping from names to values, in the order given; equal to a dict of the same items."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, name: str) -> V:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._items,)


def frozen(value: Any) -> Any:
    """Return nested dicts and lists as FrozenDicts and tuples; other values as they are."""
    if isinstance(value, Mapping):
        return FrozenDict({name: frozen(part) for name, part in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


def plain(value: Any) -> Any:
    """Return nested FrozenDicts and tuples as dicts and lists, as JSON and TOML hold them."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value
