#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/allreduce/swarm/round_swarm.hpp"

namespace waggle::testing {

/// A bug that the checks of round_swarm must find.
struct planted_bug {
  std::string name;
  std::function<std::unique_ptr<saboteur>()> make;
  std::string betrayed_by; // part of the violation that it causes
};

/// See planted_bugs_test.cpp.
std::vector<planted_bug> all_planted_bugs();
/// Bugs of all members that the comparison of digests makes harmless.
std::vector<planted_bug> bugs_that_digests_reveal();

} // namespace waggle::testing
