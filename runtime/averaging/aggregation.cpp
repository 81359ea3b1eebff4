#include "runtime/averaging/aggregation.hpp"

#include <array>
#include <string>

namespace waggle {

namespace {

constexpr std::array<std::string_view, 5> names{"mean", "trimmed_mean", "median", "centered_clip",
                                                "krum"};

failure wrong(const aggregation& how, const std::string& why) {
  return {ec::bad_config, std::string{to_string(how.how)} + " with faulty_max "
                            + std::to_string(how.faulty_max) + " " + why};
}

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

std::uint64_t contributors_needed(const aggregation& how) {
  auto faulty = std::uint64_t{how.faulty_max};
  switch (how.how) {
    case aggregator::mean:
      return 1;
    case aggregator::trimmed_mean:
    case aggregator::median:
    case aggregator::centered_clip:
      return 2 * faulty + 1;
    case aggregator::krum:
      return faulty == 0 ? 1 : 2 * faulty + 3;
  }
  return 1;
}

status check_aggregation(const aggregation& how, std::size_t contributors) {
  if (static_cast<std::size_t>(how.how) >= names.size())
    return failure{ec::bad_config, "there is no aggregator with the number "
                                     + std::to_string(static_cast<unsigned>(how.how))};
  bool faulty = how.faulty_max > 0;
  if (how.how == aggregator::mean && faulty)
    return wrong(
      how,
      "is not possible: one Byzantine contributor moves a mean anywhere; use trimmed_mean, median, "
      "centered_clip or krum");
  if ((how.how == aggregator::trimmed_mean || how.how == aggregator::krum) && !faulty)
    return wrong(how,
                 "is a mean: set faulty_max to the number of contributors that may be Byzantine");
  if (auto needed = contributors_needed(how); contributors < needed)
    return wrong(how, "needs " + std::to_string(needed) + " contributors; there are "
                        + std::to_string(contributors)
                        + (how.how == aggregator::trimmed_mean || how.how == aggregator::krum
                             ? ", for which the median is used"
                             : ""));
  return done{};
}

aggregator effective_aggregator(const aggregation& how, std::size_t contributors) {
  switch (how.how) {
    case aggregator::trimmed_mean:
    case aggregator::krum:
      if (how.faulty_max == 0)
        return aggregator::mean;
      return contributors < contributors_needed(how) ? aggregator::median : how.how;
    case aggregator::mean:
    case aggregator::median:
    case aggregator::centered_clip:
      break;
  }
  return how.how;
}

} // namespace waggle
