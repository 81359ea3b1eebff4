#pragma once

#include "runtime/training/strategies/anchored_learner.hpp"

namespace waggle {

/// Makes learners of this kind from those of `make`, which step locally. Fails with ec::bad_config
/// if they cannot.
template <class Anchored, class Rule>
learner_factory anchored(learner_factory make, const std::string& strategy, const Rule& rule) {
  return layered<Anchored>(
    std::move(make), "this model cannot step locally, as --strategy " + strategy + " does", rule);
}

/// Makes anchored_learners.
learner_factory with_anchor(learner_factory make, const outer_rule& rule);

} // namespace waggle
