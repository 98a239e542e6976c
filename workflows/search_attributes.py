"""What a cycle can be found by in the Web UI (D28)."""

from typing import Any, Final

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError

OUTCOME: Final = SearchAttributeKey.for_keyword("ExpirationOutcome")
EXPIRED: Final = SearchAttributeKey.for_int("BookingsExpired")
POISON: Final = SearchAttributeKey.for_int("PoisonBookings")
PARKED: Final = SearchAttributeKey.for_int("RecordsParked")
ALL: Final = (OUTCOME, EXPIRED, POISON, PARKED)


async def registered(client: Client) -> list[str]:
    """Those of our search attributes that the namespace has; none where the server will not say.

    Setting one that it lacks would stall the run until its execution time-out, so the workflow asks first.
    """
    try:
        lacking = await missing(client)
    except RPCError:
        return []
    return [key.name for key in ALL if key not in lacking]


async def missing(client: Client) -> list[SearchAttributeKey[Any]]:
    """Those of ours that the namespace lacks, or has with another type. Raises `RPCError`."""
    answer = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=client.namespace))
    return [key for key in ALL if answer.custom_attributes.get(key.name) != int(key.indexed_value_type)]
