"""EASY backfilling (Lifka 1995): a job may overtake others if it does not delay the first of those that wait."""

from deskgrid.scheduler.parallel.order.fcfs import FirstCome


class Easy(FirstCome):
    """In the order of their arrival, and later ones into gaps."""

    backfills = True
