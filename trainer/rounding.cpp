#include "trainer/rounding.hpp"

#include <algorithm>
#include <span>

#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr std::int64_t values = 17 * 59; // no multiple of the width of an instruction

/// Between -1 and 1, with all bits of a float; the same everywhere.
torch::Tensor fixed_values(std::int64_t factor, std::int64_t first) {
  auto numbers = torch::arange(values, torch::kLong).mul_(factor).add_(first).remainder_(2003);
  return numbers.sub_(1001).to(torch::kDouble).div_(1001).to(torch::kFloat32);
}

} // namespace

std::uint64_t rounding_of(const torch::Device& on,
                          const std::function<void(torch::Tensor&, const torch::Tensor&)>& step) {
  torch::NoGradGuard guard;
  auto parameters = fixed_values(7919, 0).view({17, 59}).to(on);
  for (std::int64_t i = 0; i < 3; ++i)
    step(parameters, fixed_values(7907, 104'729 * i).view({17, 59}).to(on));
  auto there = parameters.detach().cpu();
  auto hash = sha256(std::as_bytes(std::span{there.data_ptr<float>(), std::size_t{values}}));
  std::uint64_t number = 0;
  for (auto byte : std::span{hash.bytes}.first<sizeof number>())
    number = number << 8U | std::to_integer<std::uint64_t>(byte);
  return std::max<std::uint64_t>(number, 1); // 0: not known
}

} // namespace waggle
