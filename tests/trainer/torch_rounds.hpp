#pragma once

#include <torch/torch.h>

#include "trainer/fixed_order.hpp"

namespace waggle::testing {

/// Whether LibTorch rounds a sum with a product once on this processor, as our update rules do on
/// every one: without AVX2 it does not, and torch's optimizers then end with other bytes.
inline bool torch_rounds_once() {
  auto a = torch::rand({1000});
  auto b = torch::rand({1000});
  return torch::equal(a.add(b, 0.3), plus_scaled(a, b, 0.3));
}

} // namespace waggle::testing
