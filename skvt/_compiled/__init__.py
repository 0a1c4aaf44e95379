"""Tools of compiled loops: decorators, special functions, random bits, and sharing among threads.

The kernels of :mod:`skvt.models` are written with these functions, and numba compiles them.
"""

from skvt._compiled._lanes import LANES, aligned, draw_of_members, draw_of_product, fetch
from skvt._compiled._products import dot_products, weighted_sum
from skvt._compiled._random_bits import (
    GOLDEN,
    binomial,
    draw_gammas_exactly,
    fill_normals,
    gamma_variate,
    mix,
    mixed,
    propose_gamma,
    resample,
    uniform,
    unit,
    unit_pair,
)
from skvt._compiled._shared_loop import (
    COUNTER,
    SharedLoop,
    all_finished,
    claim_items,
    give_way,
    serial_map,
)
from skvt._compiled._special import (
    digamma,
    digamma_array,
    exp,
    gammaln,
    gammaln_array,
    jit,
    jit_allocating,
    lit,
    log,
    lowest_bit,
    part,
    part_allocating,
    polynomial,
    writeable,
)
