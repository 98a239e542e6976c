"""`make bench`: every benchmark in turn, as ratios against a limit measured in the same run; exit code 1 below a goal."""

import asyncio
import os
import platform
import sys

from bench import expire, observed, publish


def main() -> None:
    """Print one line per benchmark, ready to be copied into BENCHMARKS.md."""
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    results = [*(asyncio.run(benchmark.run()) for benchmark in (expire, publish)), *asyncio.run(observed.run())]
    for result in results:
        figures = "  ".join(f"{name} {value:,.2f}" for name, value in result.items() if isinstance(value, (int, float)))
        print(f"{'ok ' if result['ratio'] >= result['goal'] else 'LOW'} {result['what']}: {figures}")
    sys.exit(any(result["ratio"] < result["goal"] for result in results))


if __name__ == "__main__":
    main()
