#pragma once

#include <functional>
#include <memory>

#include "runtime/core/result.hpp"

namespace waggle {

class learner; // learner.hpp

/// Creates the learner on the thread that will use it. Fails with a sentence for the operator.
using learner_factory = std::function<result<std::unique_ptr<learner>>()>;

} // namespace waggle
