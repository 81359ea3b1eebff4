#pragma once

#include <gtest/gtest.h>

#include "runtime/training/optimizer_table.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle::testing {

/// A char-gpt that is small enough for a test, with all features of a large one.
inline learner_config small_learner(optimizer_identity with = identity_with("adamw", {})) {
  learner_config c;
  c.model = "char-gpt";
  c.optimizer = std::move(with);
  c.layers = 1;
  c.width = 16;
  c.heads = 2;
  c.context = 12;
  c.micro_batch = 4;
  c.device = "cpu";
  c.init_seed = 11;
  c.data_seed = 5;
  return c;
}

inline std::unique_ptr<learner> made(const learner_config& config) {
  auto made = make_torch_learner(config);
  EXPECT_TRUE(made) << made.error().detail;
  return made ? std::move(*made) : nullptr;
}

} // namespace waggle::testing
