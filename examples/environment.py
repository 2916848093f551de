"""Bring libraries along: neither this machine nor the PCs need numpy.

    python examples/environment.py

pip, or uv, fetches the wheels once. You need no broker: `Grid.local` starts one, and two workers, and stops them at the
end of the ``with`` block.
"""

from deskgrid import Grid

SIZES = range(100, 400, 50)


def largest(size: int) -> float:
    """The largest eigenvalue of a random symmetric matrix. It runs on a worker."""
    import numpy as np

    half = np.random.default_rng(size).normal(size=(size, size))
    return float(np.linalg.eigvalsh(half + half.T)[-1])


def main() -> None:
    with Grid.local(workers=2) as grid:
        bag = grid.bag(largest, SIZES, runtime=0.5, name="eigenvalues", env=["numpy"])
        for size, value in zip(SIZES, bag.results(), strict=True):
            print(f"{size:4} x {size}: {value:6.2f}, by Wigner's law about {(8 * size) ** 0.5:6.2f}")


if __name__ == "__main__":
    main()
