"""Tools of compiled loops: decorators, special functions, random bits, and sharing among threads.

The kernels of :mod:`skvt.models` are written with these functions, and numba compiles them.
"""

from skvt._compiled._lanes import (
    LANES,
    allocate_aligned,
    draw_from_members,
    draw_from_products,
    fetch,
)
from skvt._compiled._products import write_dot_products, write_weighted_sum
from skvt._compiled._random_bits import (
    GOLDEN,
    draw_binomial,
    draw_gamma,
    draw_gammas_exactly,
    fill_normals,
    make_uniform_float32,
    make_uniform_pair,
    mix,
    mix_states,
    propose_gamma,
    resample,
    uniform,
)
from skvt._compiled._shared_loop import (
    COUNTER_SIZE,
    SharedLoop,
    claim_items,
    run_serially,
    wait_for_items,
    yield_core,
)
from skvt._compiled._special import (
    digamma,
    digamma_array,
    ensure_writeable,
    exp,
    gammaln,
    gammaln_array,
    jit,
    jit_allocating,
    jit_inlined,
    jit_inlined_allocating,
    lit,
    log,
    lowest_bit,
    polynomial,
    trigamma,
)
