// The task queue of torch's autograd engine. A backward pass that fails leaves the nodes that were
// ready in a queue of its thread, and with them their tensors, until a later pass happens to take
// them out. After a failure Headrace empties the queue, so that a workspace is empty again.
#pragma once

namespace headrace::engine {

// Drops the tasks that a failed backward pass of this thread left. Allocates no tensor memory.
void drop_stale_autograd_tasks();

}  // namespace headrace::engine
