"""The differences between what a history shows and what the code does now, each as a sentence (trap 15)."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from operators.replaying.kinds import END, Given
from operators.replaying.steps import Step

_SHOWN: Final = 200
"""Characters of a value that a sentence shows."""


class _Absent:
    """What one side does not have at all."""


_ABSENT: Final = _Absent()


class _Titled(NamedTuple):
    step: Step
    title: str


def differences(history: Sequence[Step], code: Sequence[Step]) -> list[str]:
    """A sentence for each difference, in the order of the run; none means that the code does what the history shows."""
    old, new = _titled(history), _titled(code)
    matcher = SequenceMatcher(None, [_key(each) for each in old], [_key(each) for each in new], autojunk=False)
    found: list[str] = []
    for how, i1, i2, j1, j2 in matcher.get_opcodes():
        if how == "equal":
            for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                found += [f"{old[i].title}: {each}" for each in (*_moments(old, i, new, j), *_facts(old[i].step, new[j].step))]
        else:
            found += _misplaced(old[i1:i2], new[j1:j2])
    return found


def _key(each: _Titled) -> tuple[str, str]:
    return each.step.kind, each.step.name


def _titled(steps: Sequence[Step]) -> list[_Titled]:
    """Steps with what a person calls them: `activity 3 expire_batch`."""
    numbers: Counter[str] = Counter()
    titled = []
    for step in steps:
        numbers[step.kind] += 1
        title = f"{step.kind} {numbers[step.kind]} {step.name}".rstrip() if step.kind != END else f"the end ({step.name})"
        titled.append(_Titled(step, title))
    return titled


def _misplaced(old: Sequence[_Titled], new: Sequence[_Titled]) -> Iterator[str]:
    both = min(len(old), len(new))
    for before, now in zip(old[:both], new[:both], strict=True):
        yield f"{before.title} in the history is {now.title} in the code"
    for before in old[both:]:
        yield f"{before.title} is in the history, not in the code"
    for now in new[both:]:
        yield f"{now.title} is in the code, not in the history"


def _moments(old: Sequence[_Titled], i: int, new: Sequence[_Titled], j: int) -> Iterator[str]:
    """Something decided at another moment: one after the other has become at the same time, or the reverse."""
    if old[i].step.task == new[j].step.task:
        return
    if j and new[j - 1].step.task == new[j].step.task:
        yield f"comes after {new[j - 1].title} in the history, at the same time in the code"
    elif i and old[i - 1].step.task == old[i].step.task:
        yield f"comes at the same time as {old[i - 1].title} in the history, later in the code"
    else:
        yield f"was decided at event {old[i].step.task} in the history, at event {new[j].step.task} in the code"


def _facts(old: Step, new: Step) -> Iterator[str]:
    for label in [*old.facts, *(label for label in new.facts if label not in old.facts)]:
        before = old.facts[label].value if label in old.facts else _ABSENT
        yield from _values(label, before, new.facts.get(label, Given(_ABSENT, _ABSENT)))


def _values(path: str, old: Any, new: Given) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new.value, dict):
        must = new.needed if isinstance(new.needed, dict) else {}
        for key in [*old, *(key for key in new.value if key not in old and key in must)]:
            yield from _values(f"{path} {key}", old.get(key, _ABSENT), Given(new.value.get(key, _ABSENT), must.get(key)))
    elif isinstance(old, list) and isinstance(new.value, list) and len(old) == len(new.value):
        needed = new.needed if isinstance(new.needed, list) else [None] * len(old)
        for number, (before, *now) in enumerate(zip(old, new.value, needed, strict=True), start=1):
            yield from _values(f"{path} {number}", before, Given(*now))
    elif old != new.value:
        yield f"{path} is {_shown(old)} in the history, {_shown(new.value)} in the code"


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s" if value else "none"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
