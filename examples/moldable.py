"""Count primes with parallel tasks, and let the grid choose the number of ranks.

    python examples/moldable.py

Each task is a gang of 1 to 8 ranks. When it starts, the grid chooses the number, from the free slots of a site and from
the speed-up. You need a grid: that of $DESKGRID_JOIN, or the broker of this machine.
"""

from deskgrid import Amdahl, Grid, gang

LIMITS = [20_000, 40_000, 60_000]


def is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def primes_below(limit: int) -> int:
    """Each rank looks at every ``gang.size``-th odd number; all ranks return the count of all."""
    mine = sum(map(is_prime, range(1 + 2 * gang.rank, limit, 2 * gang.size)))
    return 1 + sum(gang.gather(mine))  # 2 is even, and a prime


def main() -> None:
    with Grid() as grid:
        # The runtime is that of one rank.
        bag = grid.bag(primes_below, LIMITS, gang=(1, 8), speedup=Amdahl(0.05), runtime=0.3, name="primes")
        for limit, counts in bag.as_completed():
            ranks = "1 rank" if len(counts) == 1 else f"{len(counts)} ranks"
            print(f"{counts[0]:,} primes below {limit:,}, counted by {ranks}")


if __name__ == "__main__":
    main()
