"""Results of fitted estimators: topics, mixtures, clusters, columns, missing values."""

from skvt._results._consensus import (
    consensus,
    match_topics,
    normalize_topics_of_fits,
    require_different,
)
from skvt._results._design import Covariates
from skvt._results._display import make_components_table
from skvt._results._effects import covariate_effects
from skvt._results._features import SumsMixin
from skvt._results._growing_mixtures import GrowingMixin
from skvt._results._mixtures import (
    MixtureEstimator,
    compute_assignments,
    find_most_probable,
    learned_values,
)
from skvt._results._outcomes import outcome_by_cluster
from skvt._results._priors import prior_vector, simplify_prior
from skvt._results._topic_edits import TopicEditsMixin
from skvt._results._topics import TopicsMixin
from skvt._results.topic_tables import topic_shares, topic_table
from skvt._results.topic_words import top_words
from skvt._results.unusual import unusual_rows
