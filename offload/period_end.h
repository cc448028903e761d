// What ends a period of training: the commit of step k-1, whose last writes stand before it, and
// the verdict of step k, which the next period begins with.
#pragma once

#include "offload/period.h"

namespace headrace::offload {

// Each path's data file becomes durable, then the record that names its places, then the record
// itself. Every hi and opt of k-1 is written before. Only where commits_every_step(plan).
void commit(Period& period);

void give_verdict(Period& period);

}  // namespace headrace::offload
