#include "runtime/averaging/aggregation.hpp"

#include <array>

namespace waggle {

namespace {

constexpr std::array<std::string_view, 5> names{"mean", "trimmed_mean", "median", "centered_clip",
                                                "krum"};

} // namespace

std::string_view to_string(aggregator how) {
  auto index = static_cast<std::size_t>(how);
  return index < names.size() ? names[index] : "unknown";
}

result<aggregator> parse_aggregator(std::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name)
      return static_cast<aggregator>(i);
  return failure{ec::bad_config, "there is no aggregator " + std::string{name}
                                   + ": use mean, trimmed_mean, median, centered_clip or krum"};
}

} // namespace waggle
