#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/allreduce/swarm/round_swarm.hpp"

namespace waggle::testing {

/// A bug that the round's contract has to bring to light.
struct planted_bug {
  std::string name;
  std::function<std::unique_ptr<saboteur>()> make;
  std::string betrayed_by; // part of the violation that it leads to
};

/// See planted_bugs_test.cpp.
std::vector<planted_bug> all_planted_bugs();

} // namespace waggle::testing
