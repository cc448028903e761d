// Spread: chooses a share of a row of items evenly: of every prefix as many as the share says, as
// near as whole items allow.
#pragma once

#include "offload/check.h"

namespace headrace::offload {

class Spread {
  public:
    // 0 to 1 (CHECK).
    explicit Spread(double share) : share_(share) { CHECK(share >= 0 && share <= 1); }

    // Whether the next item is chosen.
    bool next() {
        debt_ += share_;
        const bool is_chosen = debt_ >= 0.5 && share_ > 0;
        if (is_chosen) debt_ -= 1;
        return is_chosen;
    }

  private:
    double share_ = 0;
    double debt_ = 0;  // what the items so far should have had, beyond those that were chosen
};

}  // namespace headrace::offload
