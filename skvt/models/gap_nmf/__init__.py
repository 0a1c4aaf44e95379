"""Gamma process Poisson factorisation."""

from skvt.models.gap_nmf._model import GaPNMF, sum_columns
