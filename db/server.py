"""What the database server says of itself: its clock, its version, and who we are to it."""

from datetime import datetime

from db.unit_of_work import Connection


async def clock(connection: Connection) -> datetime:
    """The database's clock (UTC), as it is now (D2)."""
    moment: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return moment
