#include "runtime/averaging/part_reducer.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "runtime/averaging/robust_sums.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/try.hpp"
#include "runtime/core/vectorized.hpp"

namespace waggle {

namespace {

constexpr std::uint32_t infinity_bits = 0x7f800000U;

// Sums below this need no second pass. 64 contributors of equal weight, one of them with values of
// norm_ratio_max, have a mean of 15 625.
constexpr std::uint32_t look_twice_bits = std::bit_cast<std::uint32_t>(4096.0F);
static_assert(norm_ratio_max / 64 > 2 * 4096.0);

WAGGLE_VECTORIZED
std::uint32_t count_non_finite(const float* values, std::size_t n) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < n; ++i)
    bad += static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & infinity_bits)
                                      == infinity_bits);
  return bad;
}

} // namespace

bool all_finite(std::span<const float> values) {
  // In pieces, so that a poisoned vector is recognized early and the counter cannot overflow.
  constexpr std::size_t piece = 1U << 16U;
  for (std::size_t i = 0; i < values.size(); i += piece)
    if (count_non_finite(values.data() + i, std::min(piece, values.size() - i)) != 0)
      return false;
  return true;
}

bool copy_finite(byte_span values, std::span<float> out) {
  WAGGLE_CHECK(values.size() == out.size_bytes(), std::to_string(values.size()));
  // Each piece is checked while it is in the first-level cache.
  constexpr std::size_t piece = 1U << 12U;
  for (std::size_t i = 0; i < out.size(); i += piece) {
    auto n = std::min(piece, out.size() - i);
    std::memcpy(out.data() + i, values.data() + i * sizeof(float), n * sizeof(float));
    if (count_non_finite(out.data() + i, n) != 0)
      return false;
  }
  return true;
}

bool is_weight(double weight) {
  return weight == 0 || (weight >= weight_min && weight <= weight_max); // false for NaN
}

std::vector<double> part_reducer::weights(member_set contributors) const {
  std::vector<double> out;
  for (const auto& c : contributions_)
    if (contributors.contains(c.member))
      out.push_back(c.weight);
  return out;
}

part_reducer::shown part_reducer::contribution_of(std::size_t member) const {
  WAGGLE_CHECK(present_.contains(member), std::to_string(member));
  auto at = std::find_if(contributions_.begin(), contributions_.end(),
                         [&](const contribution& c) { return c.member == member; });
  return {at->weight, at->bytes};
}

status part_reducer::add(std::size_t member, double weight, payload values) {
  WAGGLE_CHECK(!values.sender_can_write || reads_once(codec_, reduce_by_),
               "values in memory that their sender can change");
  if (present_.contains(member))
    return ec::duplicate_peer;
  if (!is_weight(weight))
    return ec::bad_weight;
  WAGGLE_TRY(reader, part_reader::open(codec_, values.view(), elements_));
  auto at = std::find_if(contributions_.begin(), contributions_.end(),
                         [&](const contribution& c) { return c.member > member; });
  contributions_.insert(at, {member, weight, std::move(values), *reader});
  present_.insert(member);
  return done{};
}

std::vector<part_reducer::contribution>
part_reducer::fix(std::vector<contribution_view>& views) const {
  std::vector<contribution> copies;
  copies.reserve(views.size()); // views point into it
  for (const auto& c : contributions_) {
    auto sender = std::find_if(views.begin(), views.end(),
                               [&](const contribution_view& v) { return v.member == c.member; });
    if (sender == views.end() || !c.bytes.sender_can_write)
      continue;
    auto copy = copy_to_payload(c.bytes.view());
    auto reader = part_reader::open(codec_, copy.view(), elements_);
    WAGGLE_CHECK(reader.ok(), "bytes without a header cannot be malformed");
    copies.push_back({c.member, c.weight, std::move(copy), *reader});
    sender->values = &copies.back().values;
  }
  return copies;
}

part_reducer::reduction part_reducer::reduce(member_set contributors, std::span<float> out) const {
  WAGGLE_CHECK(present_.contains(contributors) && out.size() == elements_,
               std::to_string(contributors.bits()) + " of " + std::to_string(present_.bits()));
  reduction outcome;
  std::vector<contribution_view> views;
  std::vector<double> weights;
  for (const auto& c : contributions_) {
    if (!contributors.contains(c.member) || c.weight == 0)
      continue;
    outcome.weight_sum += c.weight;
    views.push_back({c.member, c.weight, &c.values});
    weights.push_back(c.weight);
  }
  if (views.empty()) {
    std::fill(out.begin(), out.end(), 0.0F);
    return outcome;
  }
  const auto* how = find_row(effective_aggregator(reduce_by_, views.size()));
  WAGGLE_CHECK(how != nullptr, "plans name aggregators that exist");
  // Members get the mean in the codec's 16 bits: rounded once, by its encoding.
  bool odd = codec_ == codec_id::float16 || codec_ == codec_id::bfloat16;
  auto write_mean = [&] {
    return write_weighted_sum(views, weights, 1.0 / outcome.weight_sum, out, odd);
  };
  std::vector<double> squares;
  if (auto result = result_of(codec_); result != codec_result::aggregate)
    squares =
      write_numbers(how->robust() && result == codec_result::mean ? codec_result::median : result,
                    views, how->robust() ? capped_weights(views) : weights, out);
  else if (how->robust())
    squares = how->write(reduce_by_.faulty_max, views, out);
  else if (write_mean() >= look_twice_bits) {
    auto fixed = fix(views);
    if (fixed.empty() || write_mean() >= look_twice_bits)
      squares = sums_of_squares(views, elements_);
  }
  if (!squares.empty())
    outcome.excluded = judge_values(views, squares, elements_);
  for (const auto& e : judge_weights(views)) {
    auto at = std::find_if(outcome.excluded.begin(), outcome.excluded.end(),
                           [&](const outlier& other) { return other.member >= e.member; });
    if (at == outcome.excluded.end() || at->member != e.member)
      outcome.excluded.insert(at, e);
  }
  return outcome;
}

std::optional<payload> part_reducer::unanimous(member_set contributors) const {
  const payload* first = nullptr;
  for (const auto& c : contributions_) {
    if (!contributors.contains(c.member) || c.weight == 0)
      continue;
    if (first == nullptr)
      first = &c.bytes;
    else if (std::memcmp(first->data.get(), c.bytes.data.get(), first->size) != 0)
      return std::nullopt; // cannot be: all have the length that the codec gives
  }
  return first == nullptr ? std::nullopt : std::optional{*first};
}

} // namespace waggle
