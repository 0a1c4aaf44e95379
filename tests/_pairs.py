"""Combinations that hold every pair of values of different axes, instead of the whole product."""

from itertools import combinations, product


def pairs(*axes, legal=lambda *values: True):
    """Few combinations of one value of each axis that hold every pair of values.

    Only combinations for which ``legal`` is true are taken; a pair that occurs in none of them is
    not asked for. Greedy (the combination with most pairs still missing comes next), and the same
    list in every process.

    Returns
    -------
    list of tuple
        In the order of `itertools.product`.
    """
    candidates = {
        indices: set(combinations(enumerate(indices), 2))
        for indices in product(*(range(len(axis)) for axis in axes))
        if legal(*(axis[i] for axis, i in zip(axes, indices, strict=True)))
    }
    missing = set().union(*candidates.values())
    chosen = []
    while missing:
        best, most = None, 0
        for indices, held in candidates.items():
            gain = len(held & missing)
            if gain > most:
                best, most = indices, gain
        missing -= candidates.pop(best)
        chosen.append(best)
    return [tuple(axis[i] for axis, i in zip(axes, c, strict=True)) for c in sorted(chosen)]
