"""log p(w | alpha, topics) of whole documents, by the estimators of Wallach et al. (2009).

Both take the topics as known and sum out the proportions, so that the assignments z of a document
have the conditionals ``p(z_n = k | z_-n, w) ~ (alpha_k + n_k^{-n}) beta_{k w_n}``.
"""

import numpy as np

from skvt.compiled import (
    GOLDEN,
    gammaln,
    jit_allocating,
    log,
    mix,
    part,
    part_allocating,
    resample,
    uniform,
)


@part
def _draw(weights, state):
    """Return an index drawn in proportion to the weights, their sum, and the new state."""
    total = 0.0
    for k in range(weights.size):
        total += weights[k]
    state += GOLDEN
    rest = uniform(mix(state)) * total
    for k in range(weights.size):
        rest -= weights[k]
        if rest < 0.0:
            return k, total, state
    return weights.size - 1, total, state


# Loops instead of NumPy expressions and slices, each of which takes half a second to compile.
@part
def _total(values):
    total = 0.0
    for i in range(values.size):
        total += values[i]
    return total


@part
def _copy(source, target):
    for i in range(source.size):
        target[i] = source[i]


@part
def _conditional(alpha, sizes, row, weights):
    for k in range(alpha.size):
        weights[k] = (alpha[k] + sizes[k]) * row[k]


@part_allocating
def left_to_right(words, topics, alpha, n_particles, state):
    """Estimate the log probability of a document's words, in order: "left-to-right".

    In ``p(w) = prod_n p(w_n | w_<n)``, each factor is averaged over particles, which sample the
    assignments of all earlier words again before each word. Particles are resampled by the factor.
    Without resampling, as in the paper, they do not have the posterior of z_<n given the words so
    far, and the estimate is biased; with it, ``exp`` of the estimate has the expectation p(w).
    ``words`` (N,) has the word of each token, ``topics`` (V, K) the probabilities of words.
    """
    n_tokens, n_topics = words.size, alpha.size
    topic = np.empty((n_particles, n_tokens), np.int64)
    sizes = np.zeros((n_particles, n_topics))
    old_topic, old_sizes = np.empty_like(topic), np.empty_like(sizes)
    increments, weights = np.empty(n_particles), np.empty(n_topics)
    parents = np.empty(n_particles, np.int64)
    alpha_sum = _total(alpha)
    value = 0.0
    for n in range(n_tokens):
        for r in range(n_particles):
            for i in range(n):
                sizes[r, topic[r, i]] -= 1.0
                _conditional(alpha, sizes[r], topics[words[i]], weights)
                topic[r, i], _, state = _draw(weights, state)
                sizes[r, topic[r, i]] += 1.0
            _conditional(alpha, sizes[r], topics[words[n]], weights)
            increments[r] = _total(weights) / (alpha_sum + n)
        value += log(_total(increments) / n_particles)
        state += GOLDEN
        resample(increments, uniform(mix(state)), parents)
        for r in range(n_particles):
            _copy(topic[r], old_topic[r])
            _copy(sizes[r], old_sizes[r])
        for r in range(n_particles):
            _copy(old_topic[parents[r]], topic[r])
            _copy(old_sizes[parents[r]], sizes[r])
            _conditional(alpha, sizes[r], topics[words[n]], weights)
            topic[r, n], _, state = _draw(weights, state)
            sizes[r, topic[r, n]] += 1.0
    return value


@part
def _sweep(words, topics, alpha, topic, sizes, weights, backwards, state):
    """Make one Gibbs sweep over all assignments, in order or in reverse."""
    n_tokens = words.size
    for step in range(n_tokens):
        n = n_tokens - 1 - step if backwards else step
        sizes[topic[n]] -= 1.0
        _conditional(alpha, sizes, topics[words[n]], weights)
        topic[n], _, state = _draw(weights, state)
        sizes[topic[n]] += 1.0
    return state


@part
def _log_transition(words, topics, alpha, topic, sizes, target, weights):
    """Return log T(target <- topic) of a forward sweep, without changes of the arrays."""
    value = 0.0
    for n in range(words.size):
        sizes[topic[n]] -= 1.0
        _conditional(alpha, sizes, topics[words[n]], weights)
        value += log(weights[target[n]] / _total(weights))
        sizes[target[n]] += 1.0
    for n in range(words.size):
        sizes[target[n]] -= 1.0
        sizes[topic[n]] += 1.0
    return value


@part_allocating
def chib(words, topics, alpha, n_burn_in, n_samples, state):
    """Estimate the log probability of a document's words by a Chib-style estimator.

    It uses ``p(w) = p(w, z*) / p(z* | w)`` at a probable z*. The denominator is the mean transition
    probability into z* over a chain that starts from z* at a random time and runs in both
    directions, so that ``exp`` of the estimate has the expectation p(w) (Murray and Salakhutdinov
    2009).
    """
    n_tokens, n_topics = words.size, alpha.size
    weights, sizes = np.empty(n_topics), np.zeros(n_topics)
    topic = np.empty(n_tokens, np.int64)
    for n in range(n_tokens):
        _conditional(alpha, sizes, topics[words[n]], weights)
        topic[n], _, state = _draw(weights, state)
        sizes[topic[n]] += 1.0
    for _ in range(n_burn_in):
        state = _sweep(words, topics, alpha, topic, sizes, weights, False, state)
    # ascend to a mode, where transition probabilities are large
    for _ in range(12):
        for n in range(n_tokens):
            sizes[topic[n]] -= 1.0
            _conditional(alpha, sizes, topics[words[n]], weights)
            best = 0
            for k in range(1, n_topics):
                if weights[k] > weights[best]:
                    best = k
            topic[n] = best
            sizes[topic[n]] += 1.0
    special, special_sizes = topic.copy(), sizes.copy()

    state += GOLDEN
    middle = int(uniform(mix(state)) * n_samples)
    logs = np.empty(n_samples)
    middle_topic, middle_sizes = topic.copy(), sizes.copy()
    # the middle state, then the states after it, then those before it, backwards; a single loop,
    # since each call of a sweep in the code is compiled separately
    for step in range(n_samples):
        if step == n_samples - middle:
            topic, sizes = middle_topic, middle_sizes
        backwards = step == 0 or step >= n_samples - middle
        state = _sweep(words, topics, alpha, topic, sizes, weights, backwards, state)
        s = n_samples - 1 - step if step >= n_samples - middle else middle + step
        logs[s] = _log_transition(words, topics, alpha, topic, sizes, special, weights)
        if step == 0:
            middle_topic, middle_sizes = topic.copy(), sizes.copy()

    alpha_sum = _total(alpha)
    joint = gammaln(alpha_sum) - gammaln(alpha_sum + n_tokens)
    for k in range(n_topics):
        joint += gammaln(alpha[k] + special_sizes[k]) - gammaln(alpha[k])
    for n in range(n_tokens):
        joint += log(topics[words[n], special[n]])
    top, chance = logs[0], 0.0
    for s in range(1, n_samples):
        top = max(top, logs[s])
    for s in range(n_samples):
        chance += np.exp(logs[s] - top)
    return joint - (top + np.log(chance / n_samples))


@jit_allocating
def documents(indptr, words, counts, topics, alpha, seeds, method, n_samples, n_burn_in, out):
    """Set ``out`` to log probabilities of documents, by left-to-right (method 0) or Chib (1)."""
    for d in range(indptr.size - 1):
        n_tokens = 0
        for j in range(indptr[d], indptr[d + 1]):
            n_tokens += np.int64(counts[j])
        tokens = np.empty(n_tokens, np.int64)
        position = 0
        for j in range(indptr[d], indptr[d + 1]):
            for _ in range(np.int64(counts[j])):
                tokens[position] = words[j]
                position += 1
        state = seeds[d]
        # a random order of the tokens: any order has the same probability
        for n in range(n_tokens - 1, 0, -1):
            state += GOLDEN
            other = int(uniform(mix(state)) * (n + 1))
            tokens[n], tokens[other] = tokens[other], tokens[n]
        if n_tokens == 0:
            out[d] = 0.0
        elif method == 0:
            out[d] = left_to_right(tokens, topics, alpha, n_samples, state)
        else:
            out[d] = chib(tokens, topics, alpha, n_burn_in, n_samples, state)
