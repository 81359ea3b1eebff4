#pragma once

#include <pybind11/pybind11.h>

namespace waggle::python {

/// Adds the classes of peers without a loop to the module: Node, Averager and Step.
void bind_nodes(pybind11::module_& m);

} // namespace waggle::python
