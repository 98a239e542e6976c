"""The demo's chessboard as it is drawn: a half cell per flat, two houses per row (P3, P4)."""

from io import StringIO
from uuid import UUID, uuid4

from rich.console import Console

from devstack.demo_grid import Flat, Grid, State


def grid(houses: dict[int, list[State]]) -> Grid:
    """One company's houses, each with flats in these states."""
    flats: dict[UUID, Flat] = {}
    states: dict[UUID, State] = {}
    for house, cells in houses.items():
        for number, state in enumerate(cells, 1):
            object_id = uuid4()
            flats[object_id], states[object_id] = Flat("Linden Park", house, number), state
    return Grid(flats, states)


def drawn(board: Grid) -> list[str]:
    """Its lines on a terminal."""
    paper = Console(file=StringIO(), width=100, force_terminal=False, record=True)
    paper.print(board.picture())
    return [line.rstrip() for line in paper.export_text().splitlines() if line.strip()]


def test_a_row_per_pair_of_houses() -> None:
    """Issue 6 section 3: every flat has its half cell, also where one house has fewer of them; free ones are counted."""
    lines = drawn(grid({1: [State.FREE, State.TAKEN], 2: [State.FREE] * 3, 3: [State.EXPIRED]}))
    assert lines[1:] == ["Linden Park 1, 2 ▀▀▄   4 free", "Linden Park 3, 4 ▀     0 free"]
    assert "taken 1" in lines[0]
    assert "expired 1" in lines[0]
    assert "free 4" in lines[0]


def test_colours_tell_the_states_apart() -> None:
    """P4: taken, expired and free have three colours, the upper flat's before the lower one's."""
    board = grid({1: [State.TAKEN, State.EXPIRED], 2: [State.FREE]})
    ((_, cells),) = board._rows()
    assert [str(span.style) for span in board._cells(cells).spans] == ["blue on bright_green", "bright_red on default"]


def test_a_line_for_those_who_see_lines() -> None:
    """Issue 6 section 3: without a terminal the grid is one line of counts."""
    assert grid({1: [State.TAKEN, State.FREE, State.FREE]}).line() == "Chessboard: 1 taken, 0 expired, 2 free"
