# SPDX-License-Identifier: Apache-2.0
"""JSON of a large value as many texts, none of which is the work of more than so many items.

An item is a member of an object or of an array. The texts together are what `json.dumps` writes.
Decides.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

SEPARATORS: Final = (",", ":")
_CONTAINERS: Final = (dict, list, tuple)


class _Piece(NamedTuple):
    text: str
    items: int


def items_up_to(value: Any, most: int) -> int:
    """How many items a value has, at any depth; more than `most` is not counted any further."""
    count = 0
    waiting = [value]
    while waiting and count <= most:
        each = waiting.pop()
        if each.__class__ in _CONTAINERS:
            members = each.values() if each.__class__ is dict else each
            count += len(each)
            waiting += [member for member in members if member.__class__ in _CONTAINERS]
    return count


def json_slices(value: Any, items_max: int) -> Iterator[str]:
    """One text after another; each is made when it is asked for."""
    texts: list[str] = []
    items = 0
    for piece in _pieces(value, items_max):
        if texts and items + piece.items > items_max:
            yield "".join(texts)
            texts, items = [], 0
        texts.append(piece.text)
        items += piece.items
    yield "".join(texts)


def _pieces(value: Any, items_max: int) -> Iterator[_Piece]:
    size = items_up_to(value, items_max)
    if size <= items_max:
        yield _Piece(json.dumps(value, separators=SEPARATORS), size)
        return
    is_object = isinstance(value, dict)
    yield _Piece("{" if is_object else "[", 0)
    for number, group in enumerate(_groups(value, items_max)):
        if number:
            yield _Piece(",", 0)
        yield from group
    yield _Piece("}" if is_object else "]", 0)


def _groups(value: Any, items_max: int) -> Iterator[Iterator[_Piece]]:
    """Small members together, as many as fit; each large one by itself."""
    members = value.items() if isinstance(value, dict) else ((None, member) for member in value)
    group: list[tuple[Any, Any]] = []
    items = 0
    for key, member in members:
        size = 1 + items_up_to(member, items_max)
        if group and items + size > items_max:
            yield iter((_together(value, group, items),))
            group, items = [], 0
        if size > items_max:
            yield _alone(value, key, member, items_max)
        else:
            group.append((key, member))
            items += size
    if group:
        yield iter((_together(value, group, items),))


def _together(value: Any, group: list[tuple[Any, Any]], items: int) -> _Piece:
    members = dict(group) if isinstance(value, dict) else [member for _, member in group]
    return _Piece(json.dumps(members, separators=SEPARATORS)[1:-1], items)


def _alone(value: Any, key: Any, member: Any, items_max: int) -> Iterator[_Piece]:
    if isinstance(value, dict):
        yield _Piece(json.dumps({key: None}, separators=SEPARATORS)[1:-5], 1)
    yield from _pieces(member, items_max)
