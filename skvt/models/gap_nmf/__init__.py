"""Nonnegative matrix factorisation with a gamma process prior."""

from skvt.models.gap_nmf._model import GaPNMF, sum_columns
