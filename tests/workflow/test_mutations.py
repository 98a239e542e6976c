"""The gate finds what it is there to find: each mutation of a workflow is caught (issue 4 section 5)."""

import pytest

from tests.workflow.gate import NAMES
from tests.workflow.mutations import DOCUMENT, MUTATIONS, Mutation, catch, mutated, row

SEEN_ELSEWHERE = "one after the other turned at the same time"
"""In runs that were cancelled meanwhile: there the second one was never started."""

each = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)


@each
async def test_a_mutation_is_caught_and_the_table_says_so(mutation: Mutation) -> None:
    """Issue 4 section 5, trap 15: the gate says what changed; docs/versioning.md has it, and whether the Replayer alone saw it.

    Where the table is behind: `python -m tests.workflow.mutations`.
    """
    caught = await catch(mutation, [mutation.seen_in])
    assert caught.sentence
    assert row(mutation, caught) in DOCUMENT.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
@each
async def test_what_the_replayer_sees_in_no_history(mutation: Mutation) -> None:
    """Trap 15: where the table says "nothing", the Replayer alone says nothing about any recorded run, with one exception."""
    alone = (await catch(mutation, [mutation.seen_in])).by_replayer
    assert (await catch(mutation, NAMES)).by_replayer == (alone or mutation.name == SEEN_ELSEWHERE)


def test_the_table_has_no_other_lines() -> None:
    """Issue 4 section 5: the table is the list of mutations, at least ten, both kinds among them."""
    begin, end = (f"<!-- {mark} -->" for mark in ("mutations", "end of mutations"))
    lines = DOCUMENT.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].strip().splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == [mutation.name for mutation in MUTATIONS]
    assert len(MUTATIONS) >= 10
    assert {line.split("|")[2].strip() for line in lines} == {"stops", "**nothing**"}


async def test_an_unchanged_copy_is_not_caught() -> None:
    """The mutation is what is caught, not the copying; and one that changes nothing is refused."""
    same = Mutation("nothing", "steps", "EXPIRE_LIMIT", "EXPIRE_LIMIT")
    gone = Mutation("gone", "steps", "no such words", "")
    assert (await catch(same, NAMES)).sentence == ""
    with pytest.raises(ValueError, match="does not say 'no such words' any more"), mutated(gone):
        pass
