"""Results of fitted estimators: topics, mixtures, clusters, columns, missing values."""

from skvt.results._consensus import consensus, distributions, matched
from skvt.results._design import Covariates
from skvt.results._effects import covariate_effects
from skvt.results._features import SumsMixin
from skvt.results._growing_mixtures import GrowingMixin
from skvt.results._mixtures import MixtureEstimator, assignments_of, learned_values
from skvt.results._outcomes import outcome_by_cluster
from skvt.results._topic_edits import TopicEditsMixin
from skvt.results._topics import TopicsMixin, prior_vector, simplest
from skvt.results.topic_tables import topic_shares, topic_table
from skvt.results.topic_words import top_words
from skvt.results.unusual import unusual_rows
