#pragma once

#include <gmock/gmock.h>

#include "actors/averaging/vector_averager.hpp"
#include "tests/actors/averager/averaging_world.hpp"

namespace waggle {

class Averager : public testing::averaging_world {
protected:
  using pending_report = pending<round_report>;

  /// All peers average; returns after all have reported.
  std::vector<round_report> average_all(const std::vector<average_vector>& questions) {
    group_size = questions.size();
    std::vector<pending_report> open;
    for (std::size_t i = 0; i < questions.size(); ++i)
      open.push_back(average(i, questions[i]));
    settle();
    std::vector<round_report> out;
    for (const auto& o : open) {
      EXPECT_TRUE(o.answered());
      out.push_back(o.answered() && o.get() ? *o.get() : round_report{});
    }
    return out;
  }
  ec refusal(const average_vector& what) {
    auto answer = average(0, what);
    return answer.answered() && !answer.get() ? answer.get().error().code : ec::none;
  }
};

} // namespace waggle
