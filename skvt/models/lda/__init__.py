"""Latent Dirichlet allocation."""

from skvt.models.lda._collapsed import CollapsedLDA
from skvt.models.lda._covariates import DocumentRegression
from skvt.models.lda._given_topics import LDAGivenTopics
from skvt.models.lda._model import LDA
from skvt.models.lda._split_merge import SplitMerge
