"""Merging and removal of topics of a fitted model by users.

Both methods form groups of topics that are kept. Each group becomes one topic. Alpha is
``doc_topic_prior``, the prior of topic proportions, and eta is ``topic_word_prior``, the prior of
the words of topics. The first array of ``fitted.lam()`` has a row for each topic.
"""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np

from skvt._results._priors import simplify_prior
from skvt.contracts import Capability
from skvt.expfam import RunningStats
from skvt.inference import History


class TopicEditsMixin:
    """Mixin of topic models whose topics users may merge and remove."""

    # Methods after which the bound is not known, for the error of ``elbo_``.
    _methods_without_bound = "partial_fit, merge_topics and drop_topics"

    def merge_topics(self, groups):
        """Merge each group of topics into one topic, in place.

        The word counts of the topics of a group are added up, and so are their
        ``doc_topic_prior_``. If the topics have different priors of words, the merged topic has the
        largest of their priors for each word. The merged topic takes the place of the first topic
        of its group, and later topics move up. ``MemoizedHDP`` then sorts its topics again if that
        raises its bound. The merged topic has the label of the first topic of its group that has a
        label.

        Parameters
        ----------
        groups : list of lists of int
            A list for each merged topic: the indices in ``components_`` of the topics that it
            replaces.

        Returns
        -------
        self : estimator
            The same estimator, with fewer topics.

        See Also
        --------
        drop_topics : Remove topics.

        Notes
        -----
        ``partial_fit`` and fits with ``warm_start`` continue with the merged topics, which may
        separate again. ``elbo_`` is no longer available, because documents are not kept. The bound
        of documents X is ``elbo(X)``. ``history_`` and ``move_log_`` do not change.
        """
        n_topics = len(self._require_fitted().lam()[0])
        merged_groups = [
            _check_topic_indices(
                group, n_topics, "groups of merge_topics", "such as [[0, 3], [1, 4]]"
            )
            for group in groups
        ]
        # The topics of all groups. The empty array allows an empty list of groups.
        topics_of_groups = np.concatenate([*merged_groups, np.empty(0, np.intp)])
        if np.unique(topics_of_groups).size < topics_of_groups.size:
            repeated_topic = int(np.flatnonzero(np.bincount(topics_of_groups) > 1)[0])
            raise ValueError(
                "The groups of merge_topics must name each topic at most once. Got topic "
                f"{repeated_topic} more than once; topics that are to be merged form one group."
            )
        single_topics = [np.array([k]) for k in np.setdiff1d(np.arange(n_topics), topics_of_groups)]
        groups = [np.sort(group) for group in merged_groups if group.size] + single_topics
        return self._regroup(sorted(groups, key=min))

    def drop_topics(self, ids):
        """Remove topics, in place.

        The word counts of these topics are removed at once. The next call of ``transform``,
        ``partial_fit`` or ``fit`` with ``warm_start`` explains documents by the remaining topics.

        Parameters
        ----------
        ids : list of int
            Topics, by their index in ``components_``.

        Returns
        -------
        self : estimator
            The same estimator, with fewer topics. They keep their order, but ``MemoizedHDP`` may
            sort them again. Labels stay with their topics.

        See Also
        --------
        merge_topics : Make one topic of several.

        Notes
        -----
        ``elbo_`` is not available afterwards, as after ``merge_topics``.
        """
        n_topics = len(self._require_fitted().lam()[0])
        dropped = _check_topic_indices(ids, n_topics, "ids of drop_topics", "such as [1, 4]")
        if np.unique(dropped).size < dropped.size:
            raise ValueError(
                f"The ids of drop_topics must name each topic at most once. Got {ids!r} instead."
            )
        if dropped.size == n_topics:
            raise ValueError(
                f"drop_topics must leave at least one topic. Got all {n_topics} topics; fit anew "
                "instead."
            )
        return self._regroup([np.array([k]) for k in np.setdiff1d(np.arange(n_topics), dropped)])

    def _regroup(self, groups):
        """Replace the topics in ``groups[j]`` by one topic j, in place; return the estimator.

        Topics that are in no group are removed. If there is an error, no attribute changes.
        """
        fitted = self._fitted
        # Without merged or removed topics, nothing changes.
        if len(groups) == len(fitted.lam()[0]):
            return self
        labels = self._labels_by_topic
        if Capability.GROWING_TOPICS in fitted.model.capabilities:
            # The bound of a model whose number of topics grows depends on the order of topics. They
            # are sorted by the number of documents that have them, if this raises the bound.
            stats = fitted.model.merge_topic_stats(fitted.stats.as_stats(), groups=groups)
            order = fitted.model.best_order(RunningStats(stats.arrays))
            groups = groups if order is None else [groups[k] for k in order]
        regroup_stats = partial(fitted.model.merge_topic_stats, groups=groups)
        first_topics = np.array([group[0] for group in groups])
        state = fitted.state.regrouped(regroup_stats, first_topics)
        changed_parameters = _regroup_parameters(fitted, groups)
        regrouped = replace(
            fitted, model=fitted.model.with_merged_topics(groups), state=state,
            policy=deepcopy(fitted.policy), elbo=None, history=History(fitted.history),
            parameters=fitted.parameters | changed_parameters,
        )  # fmt: skip
        # Change the attributes of a copy first, so that an error leaves the estimator as it was.
        edited_copy = object.__new__(type(self))
        vars(edited_copy).update(vars(self) | changed_parameters | {"_fitted": regrouped})
        if labels:
            # A group gets the label of its first topic that has a label. Each group is visited from
            # its last topic to its first topic, so that earlier labels replace later labels.
            edited_copy.topic_labels_ = {
                j: labels[k] for j, group in enumerate(groups) for k in group[::-1] if k in labels
            }
        self.__dict__ = vars(edited_copy)
        return self


def _regroup_parameters(fitted, groups):
    """Return new values of the constructor parameters that depend on the topics, a dict by name.

    ``groups`` are the topics before the change of which each new topic is made.
    """
    # A model whose number of topics grows has no such parameters.
    if Capability.GROWING_TOPICS in fitted.model.capabilities:
        return {}
    n_topics = fitted.model.n_components
    names = ("doc_topic_prior", "topic_word_prior", "components_init")
    alpha, eta, initial_topics = (fitted.parameters[name] for name in names)
    new_values = {"n_components": len(groups)}
    if not fitted.model.learn_doc_topic_prior:
        # If the parameter is None, the model has the value. A damaged file may have the text "auto"
        # although the prior is fixed; then, too, the value of the model is used.
        is_number = np.asarray(alpha).dtype.kind in "fiu"
        used_alpha = alpha if is_number else fitted.model.doc_topic_prior
        topic_alphas = np.broadcast_to(used_alpha, n_topics)
        group_alphas = np.array([topic_alphas[group].sum() for group in groups])
        new_values["doc_topic_prior"] = simplify_prior(alpha, group_alphas)
    if eta is None and not fitted.model.learn_topic_word_prior:
        # None means 1 / n_components. Keep the present value when the number of topics changes.
        new_values["topic_word_prior"] = 1.0 / n_topics
    elif np.ndim(eta) == 2:
        eta = np.asarray(eta)
        new_values["topic_word_prior"] = np.stack([eta[group].max(axis=0) for group in groups])
    if initial_topics is not None:
        weights = np.asarray(initial_topics, np.float64)
        probabilities = weights / weights.sum(axis=1, keepdims=True)
        merged_topics = [probabilities[group].sum(axis=0) for group in groups]
        new_values["components_init"] = np.stack(merged_topics)
    return new_values


def _check_topic_indices(topics, n_topics, name, example):
    """Return indices of topics as an array; raise ValueError unless they are legal.

    In the error, ``name`` is the name of the argument, and ``example`` shows a legal value.
    """
    indices = np.asarray(topics)
    if indices.size == 0 and indices.ndim == 1:
        return np.empty(0, np.intp)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise ValueError(
            f"The {name} must be integers, {example}. Got {topics!r}; convert a mask by "
            "np.flatnonzero."
        )
    illegal = indices[(indices < 0) | (indices >= n_topics)]
    if illegal.size:
        raise ValueError(
            f"The {name} must be in the range [0, number of topics) = [0, {n_topics}). Got "
            f"{illegal[0]}; topics are counted from 0, as in components_."
        )
    return indices.astype(np.intp)
