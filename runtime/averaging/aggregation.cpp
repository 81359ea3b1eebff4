#include "runtime/averaging/aggregation.hpp"

#include <string>

#include "runtime/core/named.hpp"

namespace waggle {

namespace {

failure wrong(const aggregation& how, const std::string& why) {
  return {ec::bad_config, std::string{to_string(how.how)} + " with faulty_max "
                            + std::to_string(how.faulty_max) + " " + why};
}

std::uint64_t one(std::uint64_t /*faulty*/) {
  return 1;
}

} // namespace

constexpr aggregator_row aggregators::mean{aggregator::mean, "mean", one, false, true, nullptr};

const aggregator_row* find_row(aggregator how) {
  auto index = static_cast<std::size_t>(how);
  return index < aggregator_table.size() ? aggregator_table[index] : nullptr;
}

std::string_view to_string(aggregator how) {
  const auto* row = find_row(how);
  return row != nullptr ? row->name : "unknown";
}

std::uint64_t contributors_needed(const aggregation& how) {
  const auto* row = find_row(how.how);
  return row != nullptr ? row->contributors_needed(how.faulty_max) : 1;
}

status check_aggregation(const aggregation& how, std::size_t contributors) {
  const auto* row = find_row(how.how);
  if (row == nullptr)
    return failure{ec::bad_config, "there is no aggregator with the number "
                                     + std::to_string(static_cast<unsigned>(how.how))};
  bool faulty = how.faulty_max > 0;
  if (!row->robust() && faulty)
    return wrong(how, "is not possible: one Byzantine contributor moves a mean anywhere; use "
                        + listed(selected(aggregator_table, &aggregator_row::robust)));
  if (row->uses_faulty_max && !faulty)
    return wrong(how,
                 "is a mean: set --faulty-max to the number of contributors that may be Byzantine");
  if (auto needed = contributors_needed(how); contributors < needed)
    return wrong(how, "needs " + std::to_string(needed) + " contributors; there are "
                        + std::to_string(contributors)
                        + (row->uses_faulty_max ? ", for which the median is used" : ""));
  return done{};
}

aggregator effective_aggregator(const aggregation& how, std::size_t contributors) {
  const auto* row = find_row(how.how);
  if (row == nullptr || !row->uses_faulty_max)
    return how.how;
  if (how.faulty_max == 0)
    return aggregator::mean;
  return contributors < contributors_needed(how) ? aggregator::median : how.how;
}

} // namespace waggle
