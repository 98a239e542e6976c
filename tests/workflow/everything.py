"""A workflow that does everything a workflow can, for the tests of what replays compare; `SHORT` is what its child returns."""

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy, SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from pydantic import BaseModel

LIMIT = timedelta(seconds=10)
OUTCOME = SearchAttributeKey.for_keyword("ExpirationOutcome")


class Order(BaseModel):
    """The input; `added` came later, with a default."""

    rounds: int = 1
    names: list[str] = []
    added: str = ""


@activity.defn
async def note(order: Order, text: str) -> str:
    """Return the text."""
    return f"{order.rounds} {text}"


@workflow.defn
class Child:
    """Ends when it is told to."""

    def __init__(self) -> None:
        self._said = ""

    @workflow.run
    async def run(self, order: Order) -> str:
        """What the signal said."""
        await workflow.wait_condition(lambda: bool(self._said))
        return f"{self._said} {order.rounds}"

    @workflow.signal
    def say(self, text: str) -> None:
        """Let it end."""
        self._said = text


@workflow.defn
class Everything:
    """Activities one after the other and at once, timers that fire and that do not, a child, a signal, updates, a new run."""

    def __init__(self) -> None:
        self._limit = 0

    @workflow.run
    async def run(self, order: Order) -> str:
        """The texts of a run, after as many runs as ordered."""
        child = await workflow.start_child_workflow(Child.run, order, id=f"{workflow.info().workflow_id}-child-{order.rounds}")
        await child.signal(Child.say, "goodbye")
        texts = [
            await self._note(order, "alone"),
            *await asyncio.gather(*(self._note(order, text) for text in ("left", "right"))),
        ]
        await self._time()
        workflow.upsert_memo({"rounds": order.rounds})
        workflow.upsert_search_attributes([OUTCOME.value_set("completed")])
        await workflow.wait_condition(lambda: self._limit > 0)
        texts.append(await child)
        if order.rounds > 1:
            workflow.continue_as_new(order.model_copy(update={"rounds": order.rounds - 1, "names": texts}))
        return ", ".join(texts)

    @workflow.update
    async def set_limit(self, limit: int) -> int:
        """What was set before."""
        before, self._limit = self._limit, limit
        await self._note(Order(), "limit")
        return before

    @set_limit.validator
    def _positive(self, limit: int) -> None:
        if limit <= 0:
            raise ValueError("the limit must be positive")

    async def _note(self, order: Order, text: str) -> str:
        return await workflow.execute_activity(
            note, args=[order, text], start_to_close_timeout=LIMIT, retry_policy=RetryPolicy(maximum_attempts=2), summary=text
        )

    async def _time(self) -> None:
        await workflow.sleep(0.2, summary="a nap")
        await workflow.wait_condition(lambda: True, timeout=5)
        try:
            async with asyncio.timeout(0.2):
                await workflow.wait_condition(lambda: False)
        except TimeoutError:
            pass
        waiting = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0.1)
        waiting.cancel()
        started_and_given_up = workflow.start_activity(note, args=[Order(), "never"], start_to_close_timeout=LIMIT)
        started_and_given_up.cancel()
