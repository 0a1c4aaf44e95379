"""Log probability of whole documents under known topics, by estimators of Wallach et al. (2009).

Both estimators compute ``log p(w | alpha, beta)`` in nats by sampling the topics z of the tokens w.
Alpha is the Dirichlet prior of the document's topic proportions, and beta are the probabilities of
words in topics. The proportions are integrated out, so that the topic of token n has the
conditional distribution ``p(z_n = k | z_-n, w) ~ (alpha_k + n_k^{-n}) beta_{k w_n}``, where
n_k^{-n} is the number of other tokens of topic k.

The arguments of the loops are

- ``words`` (n_tokens,): the word of each token;
- ``topics`` (n_words, n_topics): the probabilities beta of words in topics;
- ``assignments`` (n_tokens,): the topic z of each token;
- ``topic_counts`` (n_topics,): the numbers n_k of tokens of each topic;
- ``weights`` (n_topics,): scratch for the conditional distribution of a token's topic;
- ``state``: the state of the generator SplitMix64. For each random number, GOLDEN is added to the
  state, and ``mix`` turns the state into random bits. Functions that draw return the new state.
"""

import numpy as np

from skvt._compiled import (
    GOLDEN,
    gammaln,
    jit_allocating,
    jit_inlined,
    jit_inlined_allocating,
    log,
    mix,
    resample,
    uniform,
)

# Number of sweeps of the ascent to a mode.
_ASCENT_SWEEPS = 12


@jit_inlined
def _draw_index(weights, state):
    """Draw an index with probabilities proportional to the weights.

    Return the index, the sum of the weights, and the new state.
    """
    total_weight = 0.0
    for k in range(weights.size):
        total_weight += weights[k]
    state += GOLDEN
    remainder = uniform(mix(state)) * total_weight
    for k in range(weights.size):
        remainder -= weights[k]
        if remainder < 0.0:
            return k, total_weight, state
    return weights.size - 1, total_weight, state


# The next functions are loops, because a NumPy expression or slice takes half a second to compile.
@jit_inlined
def _sum_array(values):
    """Return the sum of an array."""
    total = 0.0
    for i in range(values.size):
        total += values[i]
    return total


@jit_inlined
def _copy_array(source, target):
    """Copy an array into another array."""
    for i in range(source.size):
        target[i] = source[i]


@jit_inlined
def _compute_conditional(alpha, topic_counts, word_probabilities, weights):
    """Set ``weights`` (n_topics,) to the conditional distribution of a token's topic.

    The weights are not normalised. ``word_probabilities`` (n_topics,) are the probabilities of the
    token's word in each topic. ``topic_counts`` are the numbers of the other tokens.
    """
    for k in range(alpha.size):
        weights[k] = (alpha[k] + topic_counts[k]) * word_probabilities[k]


@jit_inlined_allocating
def estimate_left_to_right(words, topics, alpha, n_particles, state):
    """Estimate the log probability of a document word by word ("left-to-right").

    Each factor of ``p(w) = prod_n p(w_n | w_<n)`` is estimated by the mean of ``p(w_n | z_<n)``
    over particles; a particle is a sample of the assignments z_<n. Before each word, the particles
    sample the assignments of all earlier words again. After each word, the particles are resampled
    in proportion to their factors, so that ``exp`` of the estimate has the expectation p(w).

    Wallach et al. (2009) do not resample the particles, which then do not have the posterior of
    z_<n given the words so far, so that their estimate is biased.
    """
    n_tokens, n_topics = words.size, alpha.size
    # Row r of these arrays belongs to particle r.
    assignments = np.empty((n_particles, n_tokens), np.int64)
    topic_counts = np.zeros((n_particles, n_topics))
    old_assignments, old_counts = np.empty_like(assignments), np.empty_like(topic_counts)
    # The factor p(w_n | z_<n) of each particle.
    factors, weights = np.empty(n_particles), np.empty(n_topics)
    parents = np.empty(n_particles, np.int64)
    alpha_sum = _sum_array(alpha)
    log_likelihood = 0.0
    for n in range(n_tokens):
        # Sample the earlier assignments again, and compute the factors.
        for r in range(n_particles):
            for i in range(n):
                topic_counts[r, assignments[r, i]] -= 1.0
                _compute_conditional(alpha, topic_counts[r], topics[words[i]], weights)
                assignments[r, i], _, state = _draw_index(weights, state)
                topic_counts[r, assignments[r, i]] += 1.0
            _compute_conditional(alpha, topic_counts[r], topics[words[n]], weights)
            factors[r] = _sum_array(weights) / (alpha_sum + n)
        log_likelihood += log(_sum_array(factors) / n_particles)
        # Replace particle r by a copy of particle parents[r], and assign the token n.
        state += GOLDEN
        resample(factors, uniform(mix(state)), parents)
        for r in range(n_particles):
            _copy_array(assignments[r], old_assignments[r])
            _copy_array(topic_counts[r], old_counts[r])
        for r in range(n_particles):
            _copy_array(old_assignments[parents[r]], assignments[r])
            _copy_array(old_counts[parents[r]], topic_counts[r])
            _compute_conditional(alpha, topic_counts[r], topics[words[n]], weights)
            assignments[r, n], _, state = _draw_index(weights, state)
            topic_counts[r, assignments[r, n]] += 1.0
    return log_likelihood


@jit_inlined
def _sweep(words, topics, alpha, assignments, topic_counts, weights, is_reversed, state):
    """Make one Gibbs sweep over all assignments; return the new state.

    If ``is_reversed``, the sweep runs from the last token to the first, otherwise forward.
    """
    n_tokens = words.size
    for step in range(n_tokens):
        n = n_tokens - 1 - step if is_reversed else step
        topic_counts[assignments[n]] -= 1.0
        _compute_conditional(alpha, topic_counts, topics[words[n]], weights)
        assignments[n], _, state = _draw_index(weights, state)
        topic_counts[assignments[n]] += 1.0
    return state


@jit_inlined
def _compute_log_transition(words, topics, alpha, assignments, topic_counts, target, weights):
    """Return the log probability that a forward sweep leads from ``assignments`` to ``target``.

    ``topic_counts`` are changed during the computation, and restored at its end.
    """
    log_probability = 0.0
    for n in range(words.size):
        topic_counts[assignments[n]] -= 1.0
        _compute_conditional(alpha, topic_counts, topics[words[n]], weights)
        log_probability += log(weights[target[n]] / _sum_array(weights))
        topic_counts[target[n]] += 1.0
    for n in range(words.size):
        topic_counts[target[n]] -= 1.0
        topic_counts[assignments[n]] += 1.0
    return log_probability


@jit_inlined_allocating
def estimate_chib(words, topics, alpha, n_burn_in, n_samples, state):
    """Estimate the log probability of a document by a Chib-style estimator.

    The estimate is ``p(w) = p(w, z*) / p(z* | w)`` at probable assignments z*, called special. The
    denominator is estimated by the mean, over the states of a Markov chain, of the probability that
    a Gibbs sweep leads from the state to z*. The chain starts from z* at a random time and runs in
    both directions, so that ``exp`` of the estimate has the expectation p(w), see Murray and
    Salakhutdinov (2009).
    """
    n_tokens, n_topics = words.size, alpha.size
    weights, topic_counts = np.empty(n_topics), np.zeros(n_topics)
    assignments = np.empty(n_tokens, np.int64)
    # Draw the topic of each token given the tokens before it. Then make forward Gibbs sweeps.
    for n in range(n_tokens):
        _compute_conditional(alpha, topic_counts, topics[words[n]], weights)
        assignments[n], _, state = _draw_index(weights, state)
        topic_counts[assignments[n]] += 1.0
    for _ in range(n_burn_in):
        state = _sweep(words, topics, alpha, assignments, topic_counts, weights, False, state)
    # Ascend to a mode z*, because transition probabilities into a mode are large.
    for _ in range(_ASCENT_SWEEPS):
        for n in range(n_tokens):
            topic_counts[assignments[n]] -= 1.0
            _compute_conditional(alpha, topic_counts, topics[words[n]], weights)
            best_topic = 0
            for k in range(1, n_topics):
                if weights[k] > weights[best_topic]:
                    best_topic = k
            assignments[n] = best_topic
            topic_counts[assignments[n]] += 1.0
    special_assignments, special_counts = assignments.copy(), topic_counts.copy()

    # The chain has n_samples states. The random time at which it starts is ``middle``.
    state += GOLDEN
    middle = int(uniform(mix(state)) * n_samples)
    log_transitions = np.empty(n_samples)
    # Step 0 replaces both arrays. Their values here only tell numba the types.
    middle_assignments, middle_counts = assignments.copy(), topic_counts.copy()
    # Sample the middle state by a reversed sweep from z*, then the states after the middle state by
    # forward sweeps, then the states before it by reversed sweeps. A single loop samples all
    # states, because each call of a sweep in the code would be compiled separately.
    for step in range(n_samples):
        if step == n_samples - middle:
            assignments, topic_counts = middle_assignments, middle_counts
        is_before_middle = step >= n_samples - middle
        is_reversed = step == 0 or is_before_middle
        state = _sweep(words, topics, alpha, assignments, topic_counts, weights, is_reversed, state)
        # The time of the sampled state: ``middle`` in step 0, then the later times in ascending
        # order, then the earlier times in descending order.
        s = n_samples - 1 - step if is_before_middle else middle + step
        log_transitions[s] = _compute_log_transition(
            words, topics, alpha, assignments, topic_counts, special_assignments, weights
        )
        if step == 0:
            middle_assignments, middle_counts = assignments.copy(), topic_counts.copy()

    # Compute log p(w, z*).
    alpha_sum = _sum_array(alpha)
    log_joint = gammaln(alpha_sum) - gammaln(alpha_sum + n_tokens)
    for k in range(n_topics):
        log_joint += gammaln(alpha[k] + special_counts[k]) - gammaln(alpha[k])
    for n in range(n_tokens):
        log_joint += log(topics[words[n], special_assignments[n]])
    # Compute log p(z* | w). The maximum is subtracted, so that transition probabilities do not
    # underflow.
    max_log_transition, sum_of_transitions = log_transitions[0], 0.0
    for s in range(1, n_samples):
        max_log_transition = max(max_log_transition, log_transitions[s])
    for s in range(n_samples):
        sum_of_transitions += np.exp(log_transitions[s] - max_log_transition)
    return log_joint - (max_log_transition + np.log(sum_of_transitions / n_samples))


@jit_allocating
def estimate_documents(
    indptr, words, counts, topics, alpha, seeds, uses_chib, n_samples, n_burn_in, out
):
    """Set ``out`` (n_documents,) to the estimated log probabilities of documents.

    The estimator is Chib-style if ``uses_chib``, else left-to-right. ``n_samples`` is the number of
    states of the Chib-style chain, or of particles. ``indptr``, ``words`` and ``counts`` are the
    arrays of a CSR matrix of documents, and ``seeds`` (n_documents,) are the initial states of the
    random numbers.
    """
    for d in range(indptr.size - 1):
        n_tokens = 0
        for j in range(indptr[d], indptr[d + 1]):
            n_tokens += np.int64(counts[j])
        # List the word of each token.
        tokens = np.empty(n_tokens, np.int64)
        position = 0
        for j in range(indptr[d], indptr[d + 1]):
            for _ in range(np.int64(counts[j])):
                tokens[position] = words[j]
                position += 1
        state = seeds[d]
        # Shuffle the tokens. Any order has the same probability, but left-to-right needs a random
        # order, because words are stored by number.
        for n in range(n_tokens - 1, 0, -1):
            state += GOLDEN
            i = int(uniform(mix(state)) * (n + 1))
            tokens[n], tokens[i] = tokens[i], tokens[n]
        if n_tokens == 0:
            out[d] = 0.0
        elif not uses_chib:
            out[d] = estimate_left_to_right(tokens, topics, alpha, n_samples, state)
        else:
            out[d] = estimate_chib(tokens, topics, alpha, n_burn_in, n_samples, state)
