#pragma once

namespace waggle {

/// After a fork, the child (a worker of a DataLoader) would keep this process's port and data
/// folder taken if this process is killed. So the linker directs all calls of this extension that
/// open or close a descriptor to functions that keep a list of them, and the child closes those.
/// Call it once, when the extension is loaded.
void close_descriptors_after_fork();

} // namespace waggle
