"""A grid instead of a process pool: `Grid` is a `concurrent.futures.Executor`.

    python examples/futures.py

To move a program from ProcessPoolExecutor, change the line that creates the pool, and say how long the calls take.
"""

from concurrent.futures import as_completed

from deskgrid import Grid, task


def factors(number: int) -> list[int]:
    """The prime factors of ``number``, smallest first. It runs on a worker."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


def main() -> None:
    numbers = [2**31 - 1, 2**40 + 1, 10**12 + 39, 600_851_475_143, 97 * 10**9 + 7]
    with Grid.local(workers=2) as grid:
        futures = {grid.submit(task(factors, runtime=0.1), number): number for number in numbers}
        for future in as_completed(futures):
            print(futures[future], "=", " × ".join(map(str, future.result())))
        print("the longest has", max(map(len, grid.map(factors, numbers))), "factors")


if __name__ == "__main__":
    main()
