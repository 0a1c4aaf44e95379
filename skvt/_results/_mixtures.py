"""The base class of mixtures: components, labels, densities and draws.

The K components of a mixture may be joined into clusters, see :mod:`skvt._results._clusters`. Row n
belongs to the unknown component z_n. Lam are the natural parameters of the posterior q of weights
and components. The background is a component for rows that belong to no other component; it has no
index, and rows that belong to it have the label -1.
"""

import numpy as np
from sklearn.base import DensityMixin

from skvt._results._clusters import ClustersMixin, iterate_results, sum_by_cluster
from skvt._sklearn_private import num_samples
from skvt.fitting import VariationalEstimator, fitted_property
from skvt.inference import Workers
from skvt.models.mixture import make_refits
from skvt.posterior import JointPosterior, Posterior
from skvt.readers import RealReader
from skvt.readers.chunks import apply_by_chunk, is_chunked, sum_over_rows
from skvt.readers.validation import require_positive_int
from skvt.rows import take_rows
from skvt.ties import stable_argmax


class MixtureEstimator(ClustersMixin, DensityMixin, VariationalEstimator):
    """Base of mixtures, which assign rows to components and give rows densities."""

    _reader_class = RealReader
    # Whether labels are "components" or "clusters". In some mixtures, this is a parameter.
    labels = "components"

    # --------------------------------------------------------------------------- after a fit
    def _get_shown_fit(self, fitted):
        """Return the fit without its background, which attributes and predictions show."""
        return fitted.shown_fit

    def _row_results(self, rows, workers):
        """Return the results of a fit for its rows, a dict by name.

        ``rows`` are the :class:`~skvt.fitting._rows.CallRows` of the call. The results are "joins",
        the joins of components, which are missing after ``partial_fit``, and "labels", the labels
        of the rows, which are missing for rows in chunks. Rows of weight 0 have labels, too.
        """
        results = {}
        # In a stream, not all rows of the fit are known, so that components are not joined.
        if not rows.in_stream:
            results["joins"] = self._compute_joins(rows.X, rows.weights, workers)
        if rows.passed_X is not None and not is_chunked(rows.passed_X):
            joins = results.get("joins")
            has_clusters = self.labels == "clusters" and joins is not None
            clusters = joins.component_clusters(joins.n_clusters) if has_clusters else None
            labels = self._predict_labels(self._read_every_row(rows), clusters, workers)
            results["labels"] = labels.astype(np.int32)
        return results

    def _read_every_row(self, rows):
        """Return all encoded rows that the user passed; ``rows.X`` lacks rows of weight 0."""
        has_every_row = rows.X.shape[0] == num_samples(rows.passed_X)
        return rows.X if has_every_row else self._read(rows.passed_X)

    # --------------------------------------------------------------------------- attributes
    @fitted_property
    def n_components_(self, fitted):
        """Number of components K."""
        return fitted.model.size(fitted.stats)

    @fitted_property
    def weights_(self, fitted):
        """Expected weights of the components, divided by their sum, shape (K,)."""
        lam_of_weights, _ = fitted.lam()
        weights = fitted.model.weights.mean(lam_of_weights)[: self.n_components_]
        return (weights / weights.sum()).astype(fitted.model.dtype)

    @fitted_property
    def labels_(self, fitted):
        """Most probable component or cluster of each row of the last call, (n_samples,)."""
        labels = fitted.labels
        if labels is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'labels_' during a fit and "
                "after calls with rows in chunks. predict(X) gives the labels of the rows X."
            )
        return labels

    @fitted_property
    def lower_bound_(self, fitted):
        """The value of ``elbo_``, under scikit-learn's name."""
        return self.elbo_

    @fitted_property
    def lower_bounds_(self, fitted):
        """The value of ``history_["elbo"]``, under scikit-learn's name."""
        return self.history_["elbo"]

    @fitted_property
    def posterior_(self, fitted):
        """The posterior q of the weights and the components, in the coordinates of the data."""
        model = fitted.model
        weights, components = fitted.lam()
        return JointPosterior(
            weights=Posterior(model.weights.family, weights),
            components=_make_posterior(model.component, components),
        )

    # --------------------------------------------------------------------------- inference
    @apply_by_chunk(lambda self, n_clusters=None: self._describe_labels(n_clusters))
    def predict(self, X, n_clusters=None):
        """Predict the most probable component or cluster of each row, the first of tied ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        n_clusters : int, "auto" or None, default=None
            None predicts components; after ``fit`` with ``labels="clusters"``, None means "auto".
            An integer joins components into that many clusters by ``hierarchy_``, and "auto" into
            ``n_clusters_`` clusters. An integer larger than ``n_components_``, up to the number of
            distinct rows of X, splits components by the rows X.

        Returns
        -------
        ndarray of int, shape (n_samples,)
            Components, or clusters in the order of their first components, numbered from 0; -1 for
            rows of the background of a fit with ``background=True``.

        Notes
        -----
        If ``n_clusters`` is larger than ``n_components_``, the component whose split gains most
        evidence is split in two, and this is repeated until there are ``n_clusters`` clusters. The
        halves begin with seeds by k-means++, under priors that are learned from X for as many
        clusters. Finally each row is assigned to the most probable cluster. Each cluster has at
        least one row of X, so that the label of a row depends on all rows of X.
        """
        self._require_fitted()
        n_clusters = self._resolve_n_clusters(n_clusters)
        needs_splits = self._must_split_components(n_clusters)
        clusters = None if needs_splits else self._get_component_clusters(n_clusters)
        X = self._read(X)
        with Workers(self.n_jobs) as workers:
            if needs_splits:
                return self._split_into_clusters(X, n_clusters, workers)
            return self._predict_labels(X, clusters, workers)

    def _resolve_n_clusters(self, n_clusters):
        """Return the parameter ``n_clusters``; replace None by "auto" if labels are clusters."""
        has_clusters = self.labels == "clusters" and self._fitted.joins is not None
        return "auto" if n_clusters is None and has_clusters else n_clusters

    def _predict_labels(self, X, clusters, workers):
        """Return the most probable component or cluster of each encoded row of X, (n,).

        ``clusters`` (K,) has the cluster of each component. It is None to predict components.
        """
        labels = np.empty(X.shape[0], np.intp)
        for batch, result in iterate_results(
            self._fitted.shown_fit, X, np.ones(X.shape[0]), workers
        ):
            labels[batch.rows] = find_most_probable(sum_by_cluster(result.q, clusters))
        return labels

    def _describe_labels(self, n_clusters):
        """Return the number of columns of the labels of a chunk, and their type.

        The number is None, because labels are a vector. `apply_by_chunk` calls this method before
        it predicts labels of rows in chunks. Raise ValueError if components must be split.
        """
        if self._must_split_components(n_clusters):
            raise ValueError(
                f"n_clusters must be in the range [1, n_components_] = [1, {self.n_components_}] "
                "for rows in chunks, because components are split only by rows in memory. Got "
                f"{n_clusters!r}."
            )
        return None, np.dtype(np.intp)

    @apply_by_chunk(lambda self, n_clusters=None: self._describe_probabilities(n_clusters))
    def predict_proba(self, X, n_clusters=None):
        """Predict the probability q(z_n = k) of each component or cluster for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        n_clusters : int, "auto" or None, default=None
            As in ``predict``.

        Returns
        -------
        ndarray of shape (n_samples, K) or (n_samples, n_clusters)
            Each row sums to 1, less the probability of the background with ``background=True``.
        """
        fitted = self._require_fitted()
        clusters = self._get_component_clusters(self._resolve_n_clusters(n_clusters))
        X = self._read(X)
        with Workers(self.n_jobs) as workers:
            return sum_by_cluster(compute_assignments(fitted, X, workers), clusters)

    def _make_refits(self, X, weights):
        """Return the :class:`~skvt.models.mixture._refits.Refits` of the mixture to rows X.

        They are the refits by which effects and outcomes of clusters are corrected. ``weights``
        (n,) are the weights of the rows; rows of weight 0 are left out.
        """
        fitted = self._require_fitted()
        if fitted is not self._fitted:
            raise ValueError(
                "Effects and outcomes of clusters need a mixture that was fitted with "
                "background=False. Got a fit with background=True."
            )
        X, weights = take_rows(self._read(X), weights, np.flatnonzero(weights))
        with Workers(self.n_jobs) as workers:
            resp = compute_assignments(fitted, X, workers)
        return make_refits(fitted.model, X, weights, resp)

    def _describe_probabilities(self, n_clusters):
        """Return the number of columns of the probabilities of a chunk, and their type.

        `apply_by_chunk` calls this method before it predicts probabilities of rows in chunks.
        """
        clusters = self._get_component_clusters(self._resolve_n_clusters(n_clusters))
        n_columns = self.n_components_ if clusters is None else int(clusters.max()) + 1
        return n_columns, self._fitted.model.dtype

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit to X, then predict the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,), optional
            As in ``fit``.
        sample_weight : array-like of shape (n_samples,), optional
            As in ``fit``.

        Returns
        -------
        ndarray of int, shape (n_samples,)
            Components, or clusters with ``labels="clusters"``, numbered from 0.
        """
        labels = self.fit(X, y, sample_weight=sample_weight)._fitted.labels
        return self.predict(X) if labels is None else labels.astype(np.intp)

    @apply_by_chunk(lambda self: (None, np.dtype(np.float64)))
    def score_samples(self, X):
        """Return the log posterior predictive density of each row.

        The density of a row x is ``log(sum_k E[w_k] p(x | rows of k) + E[w_new] p(x | prior))``.
        Parameters are integrated out under q, and w_new is the weight of components to which no row
        belongs. The integral is exact except in four cases: covariances of low rank use a Student t
        of the same moments, negative binomials with exposures use a beta prime for each row,
        Student's t uses a quadrature to six digits, and several ordinal columns use a quadrature of
        128 points. Densities of rows in which different values are missing cannot be compared; use
        :func:`skvt.unusual_rows` for them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Nats.
        """
        self._require_fitted()
        return self._compute_log_densities(self._read(X))

    def _compute_log_densities(self, X):
        """Return the log posterior predictive density of each row of numbers, (n,)."""
        fitted = self._fitted
        with Workers(self.n_jobs) as workers:
            return fitted.model.log_predictive(X, fitted.stats, workers.run)

    def score(self, X, y=None, sample_weight=None):
        """Return the weighted mean log posterior predictive density. Higher is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight w counts w times.

        Returns
        -------
        float
            Nats per row.
        """
        # Sum the results of `_compute_score_sums` over all chunks of X.
        sum_of_densities, sum_of_weights = sum_over_rows(self, X, sample_weight)
        return float(sum_of_densities / sum_of_weights)

    def _compute_score_sums(self, X, weights):
        """Return the weighted sum of log densities of the rows X in nats, and the sum of weights.

        `sum_over_rows` calls this method.
        """
        return (weights * self._compute_log_densities(X)).sum(), weights.sum()

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the posterior predictive of the components in use.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows to draw.
        random_state : int, RandomState instance or None, default=None
            Source of the draws; None uses the ``random_state`` of the estimator.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            The drawn rows. A mixture that reads tables returns them in a container like that of
            ``fit``. A data frame has only columns that a component models; an array has all
            columns, with NaN in columns that no component models.
        y : ndarray of int, shape (n_samples,)
            Component of each row, in ascending order as in scikit-learn.
        """
        fitted = self._require_fitted()
        n_samples = require_positive_int("n_samples", n_samples)
        rng = self._make_draw_rng(random_state)
        weights = self.weights_.astype(np.float64)
        counts = rng.multinomial(n_samples, weights / weights.sum())
        component = fitted.model.component
        _, lam_of_components = fitted.lam()
        # If components share parameters, such as a tied covariance, each component gets natural
        # parameters of its marginal distribution.
        lam = component.with_shared_globals(lam_of_components)
        rows = [component.sample(lam[k], n, rng) for k, n in enumerate(counts) if n > 0]
        X = np.concatenate(rows).astype(fitted.model.dtype, copy=False)
        X = self._table.decode_rows(X) if "_table" in vars(self) else X
        return X, np.repeat(np.arange(counts.size), counts)


def _make_posterior(component, lam):
    """Return the posterior q of the components, in the coordinates of the data.

    ``component`` is the model's component, and ``lam`` are the natural parameters of q. A component
    that is a product of blocks has a joint posterior, with a part for each block.
    """
    blocks = component.parts(lam)
    if not blocks:
        return Posterior(*component.in_data_coordinates(lam))
    return JointPosterior(**{name: _make_posterior(*block) for name, block in blocks.items()})


def find_most_probable(probabilities):
    """Return the most probable component or cluster of each row, (n,); -1 for the background.

    ``probabilities`` (n, K) of a row sum to 1 minus the probability of the background.
    """
    labels = stable_argmax(probabilities)
    p_background = 1.0 - probabilities.sum(axis=1)
    return np.where(p_background > probabilities.max(axis=1), -1, labels)


def learned_values(model):
    """Return the learned parameters of the component's prior, a dict by name.

    The dict is empty if the prior is fixed, so that the model has no learner.
    """
    return {} if model.learner is None else model.learner.learned_values(model.component)


def compute_assignments(fitted, X, workers):
    """Return the probability q(z_n = k) of each component for each row of X, (n, K)."""
    model = fitted.model
    assignments = np.empty((X.shape[0], model.size(fitted.stats)), model.dtype)
    for batch, result in iterate_results(fitted, X, np.ones(X.shape[0]), workers):
        assignments[batch.rows] = result.q
    return assignments
