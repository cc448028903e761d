// A call whose moments are kept in fp32 or bf16, where there are 32 registers; included as
// cpu_adam/adamw_block.h is. A couple is finished while the next one begins, and what it hands on
// stays in registers: so the chain of operations that ends in a root, and the one that begins with
// it, overlap. One core of an AMD Zen 4, data in cache, Gparam/s, in chunks and so: fp32 2.6
// and 2.8 (the weight alone 2.7 and 3.2), bf16 2.1 and 2.3 (2.9 and 3.5).
//
//   begin     from what is kept to the new m and v, which are stored; sqrt(v)
//   finish    m / d, and the new weight, which is stored
#pragma once

#include "cpu_adam/adamw_in_order.h"
#include "cpu_adam/adamw_in_pairs.h"

namespace headrace::cpu_adam {

namespace {

// A couple between its stages.
struct Begun {
    Floats weight[2], m[2], root[2];
};

template <typename Way>
Begun begin_couple(const Constants& c, const Operands& o, uint64_t first, Ints numbers) {
    using Order = typename Way::Order;
    Moved moved;
    Order::template move<Way>(c, o, first, no_steps(), &moved);
    if constexpr (Way::all) {
        Order::template store_moments<Way, Nans::any>(c, o, first, numbers, moved.m, moved.v);
        const Mask nans =
            nan_in_either(moved.m[0], moved.m[1]) | nan_in_either(moved.v[0], moved.v[1]);
        if (seldom(any(nans))) {
            Order::template store_moments<Way, Nans::one>(c, o, first, numbers, moved.m, moved.v);
        }
    }
    return {.weight = {moved.weight[0], moved.weight[1]},
            .m = {moved.m[0], moved.m[1]},
            .root = {square_root(moved.v[0]), square_root(moved.v[1])}};
}

template <typename Way>
void finish_couple(const Constants& c, const Operands& o, uint64_t first, const Begun& begun) {
    using Order = typename Way::Order;
    Floats weights[2];
    for (uint64_t k = 0; k < 2; ++k) {
        weights[k] = new_weight(c, begun.weight[k], begun.m[k] / divisor(c, begun.root[k]));
    }
    Order::template store_weights<Way, Nans::any>(o, first, weights);
    if (seldom(any(nan_in_either(weights[0], weights[1])))) {
        Order::template store_weights<Way, Nans::one>(o, first, weights);
    }
}

// A couple is finished while the next one begins.
template <typename Way>
void update_side_by_side(const Constants& c, const Operands& o, uint64_t element_count) {
    static_assert(Way::moments != Kept::int8);
    // What is asked for at a time.
    static_assert(register_count < 32 || couple_elements == block_elements);
    // Twice as far is a tenth slower, in every format (AMD Zen 4).
    using Ahead = BytesAhead<384>;
    if (element_count == 0) return;
    Ints numbers = Way::Order::first_numbers(c);
    Begun before = begin_couple<Way>(c, o, 0, numbers);
    const uint64_t last = element_count - couple_elements;
    for (uint64_t first = 0; first < last; first += couple_elements) {
        prefetch_weights_and_gradients<Way, Ahead>(o, first);
        prefetch_moments<Way, Ahead>(o, first);
        numbers = numbers + ints(couple_elements);
        const Begun now = begin_couple<Way>(c, o, first + couple_elements, numbers);
        finish_couple<Way>(c, o, first, before);
        before = now;
    }
    finish_couple<Way>(c, o, last, before);
}

}  // namespace

}  // namespace headrace::cpu_adam
