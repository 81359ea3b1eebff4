#include "runtime/averaging/robust_sums.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "runtime/codec/exact_number.hpp"
#include "runtime/core/vectorized.hpp"

namespace waggle {

namespace {

// A page of floats: long enough for the processor to prefetch the contributors' streams.
constexpr std::size_t mean_block_elements = 1024;

// Shares of the total weight as integers, whose sums are exact in any order.
constexpr double share_of_cap = 1U << 23U;

/// For an even count: the lower of the two in the middle.
double lower_median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool finite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

std::vector<std::int32_t> shares_of(std::span<const double> capped) {
  auto cap = *std::max_element(capped.begin(), capped.end());
  std::vector<std::int32_t> shares;
  for (auto weight : capped)
    shares.push_back(std::max(1, static_cast<std::int32_t>(weight / cap * share_of_cap + 0.5)));
  return shares;
}

std::vector<double> write_median(std::size_t /*faulty_max*/,
                                 std::span<const contribution_view> contributions,
                                 std::span<float> out) {
  auto path = best_instructions();
  auto shares = shares_of(capped_weights(contributions));
  return for_each_block_at_first(
    contributions, out.size(), [&](std::size_t begin, std::size_t n, kernels::row_span rows) {
      kernels::median(path, rows, shares.data(), out.data() + begin, n);
    });
}

std::vector<double> write_trimmed_mean(std::size_t trim,
                                       std::span<const contribution_view> contributions,
                                       std::span<float> out) {
  auto path = best_instructions();
  auto weights = capped_weights(contributions);
  return for_each_block_at_first(
    contributions, out.size(), [&](std::size_t begin, std::size_t n, kernels::row_span rows) {
      kernels::trimmed_mean(path, rows, weights.data(), trim, out.data() + begin, n);
    });
}

std::vector<double> write_centered_clip(std::size_t /*faulty_max*/,
                                        std::span<const contribution_view> contributions,
                                        std::span<float> out) {
  auto path = best_instructions();
  auto weights = capped_weights(contributions);
  // The start and the radius follow from the number of the contributors alone: by weight, a few
  // Byzantine ones could be most, and the honest ones outliers.
  std::vector<std::int32_t> equal(contributions.size(), 1);
  auto total = std::accumulate(weights.begin(), weights.end(), 0.0);
  auto radius = std::numeric_limits<double>::infinity();
  std::vector<double> squared(contributions.size(), 0.0); // distances to the centre, which is `out`
  auto measure = [&](std::size_t begin, std::size_t n, kernels::row_span rows) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      squared[i] += codecs::lane_sum_of_squared_distances(rows[i], out.data() + begin, n);
  };
  auto squares = for_each_block_at_first(
    contributions, out.size(), [&](std::size_t begin, std::size_t n, kernels::row_span rows) {
      kernels::median(path, rows, equal.data(), out.data() + begin, n);
      measure(begin, n, rows);
    });
  if (!finite(squares))
    return squares;
  std::vector<double> factors(contributions.size());
  for (std::size_t step = 1; step <= clip_steps; ++step) {
    radius = std::min(radius, std::sqrt(lower_median(squared)));
    for (std::size_t i = 0; i < contributions.size(); ++i) {
      auto distance = std::sqrt(squared[i]);
      factors[i] = weights[i] / total * (distance > radius ? radius / distance : 1.0);
    }
    std::fill(squared.begin(), squared.end(), 0.0);
    for_each_block(contributions, out.size(),
                   [&](std::size_t begin, std::size_t n, kernels::row_span rows) {
                     kernels::pull(path, rows, factors.data(), out.data() + begin, n);
                     if (step < clip_steps)
                       measure(begin, n, rows);
                   });
  }
  return squares;
}

/// The indices of the contributions with the lowest scores, ascending. `squared` holds the squared
/// distances between contributions, row by row.
std::vector<std::size_t> choose(const std::vector<double>& squared, std::size_t n, std::size_t f) {
  std::vector<std::pair<double, std::size_t>> scores;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> to_others;
    for (std::size_t j = 0; j < n; ++j)
      if (j != i)
        to_others.push_back(squared[i * n + j]);
    std::sort(to_others.begin(), to_others.end());
    auto near = to_others.begin() + static_cast<std::ptrdiff_t>(n - f - 2);
    scores.emplace_back(std::accumulate(to_others.begin(), near, 0.0), i);
  }
  std::sort(scores.begin(), scores.end());
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < n - f; ++i)
    chosen.push_back(scores[i].second);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<double> write_krum(std::size_t faulty_max,
                               std::span<const contribution_view> contributions,
                               std::span<float> out) {
  auto count = contributions.size();
  std::vector<double> squared(count * count, 0.0);
  auto squares = for_each_block_at_first(
    contributions, out.size(), [&](std::size_t, std::size_t n, kernels::row_span rows) {
      for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = 0; j < i; ++j)
          squared[i * count + j] += codecs::lane_sum_of_squared_distances(rows[i], rows[j], n);
    });
  if (!finite(squares))
    return squares;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < i; ++j)
      squared[j * count + i] = squared[i * count + j];
  auto capped = capped_weights(contributions);
  std::vector<contribution_view> chosen;
  std::vector<double> weights;
  for (auto i : choose(squared, count, faulty_max)) {
    chosen.push_back(contributions[i]);
    weights.push_back(capped[i]);
  }
  auto total = std::accumulate(weights.begin(), weights.end(), 0.0);
  (void)write_weighted_sum(chosen, weights, 1.0 / total, out);
  return squares;
}

/// As write_weighted_sum, and with the same bits, but looks only at the values that are carried.
std::uint32_t write_sparse_sum(std::span<const contribution_view> contributions,
                               std::span<const double> weights, double factor,
                               std::span<float> out) {
  std::array<std::uint16_t, sparse_chunk> places;
  std::array<float, sparse_chunk> values;
  std::vector<double> sums(sparse_chunk, 0.0);
  std::vector<std::uint16_t> touched;
  std::uint32_t top = 0;
  std::ranges::fill(out, 0.0F);
  for (std::size_t begin = 0; begin < out.size(); begin += sparse_chunk) {
    touched.clear();
    for (std::size_t i = 0; i < contributions.size(); ++i) {
      auto some = contributions[i].values->kept(begin / sparse_chunk, places, values);
      for (std::size_t k = 0; k < some; ++k)
        sums[places[k]] += weights[i] * static_cast<double>(values[k]);
      touched.insert(touched.end(), places.begin(),
                     places.begin() + static_cast<std::ptrdiff_t>(some));
    }
    for (auto place : touched)
      out[begin + place] = static_cast<float>(sums[place] * factor);
    for (auto place : touched) {
      top = std::max(top, std::bit_cast<std::uint32_t>(out[begin + place]) & 0x7fffffffU);
      sums[place] = 0;
    }
  }
  return top;
}

std::vector<double> write_median_norm(std::size_t /*faulty_max*/,
                                      std::span<const contribution_view> contributions,
                                      std::span<float> out) {
  auto squares = sums_of_squares(contributions, out.size());
  if (!finite(squares))
    return squares;
  auto limit = lower_median(squares);
  auto weights = capped_weights(contributions);
  auto total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (squares[i] > limit)
      weights[i] *= std::sqrt(limit / squares[i]);
  (void)write_weighted_sum(contributions, weights, 1.0 / total, out);
  return squares;
}

std::uint64_t most_are_honest(std::uint64_t faulty) {
  return 2 * faulty + 1;
}

} // namespace

block_rows::block_rows(std::span<const contribution_view> contributions, std::size_t longest)
  : contributions_(contributions), longest_(longest),
    decoded_(std::make_unique_for_overwrite<float[]>(contributions.size() * longest)),
    rows_(contributions.size()) {}

kernels::row_span block_rows::at(std::size_t begin, std::size_t n) {
  for (std::size_t i = 0; i < contributions_.size(); ++i)
    rows_[i] = contributions_[i].values->view(begin, {decoded_.get() + i * longest_, n});
  return rows_;
}

std::uint32_t write_weighted_sum(std::span<const contribution_view> contributions,
                                 std::span<const double> weights, double factor,
                                 std::span<float> out, bool odd) {
  if (contributions.front().values->is_sparse())
    return write_sparse_sum(contributions, weights, factor, out);
  auto path = best_instructions();
  block_rows rows{contributions, mean_block_elements};
  std::uint32_t top = 0;
  for (std::size_t begin = 0; begin < out.size(); begin += mean_block_elements) {
    auto n = std::min(mean_block_elements, out.size() - begin);
    top = std::max(top, kernels::weighted_sum(path, rows.at(begin, n), weights.data(), factor,
                                              out.data() + begin, n, odd));
  }
  return top;
}

std::vector<double> sums_of_squares(std::span<const contribution_view> contributions,
                                    std::size_t elements) {
  return for_each_block_at_first(contributions, elements,
                                 [](std::size_t, std::size_t, kernels::row_span) {});
}

std::vector<double> capped_weights(std::span<const contribution_view> contributions) {
  std::vector<double> weights;
  for (const auto& v : contributions)
    weights.push_back(v.weight);
  auto cap = lower_median(weights);
  for (auto& weight : weights)
    weight = std::min(weight, cap);
  return weights;
}

// -- rows of the table ----------------------------------------------------------------------------

constexpr aggregator_row aggregators::trimmed_mean{
  aggregator::trimmed_mean, "trimmed_mean", most_are_honest, true, true, write_trimmed_mean};

constexpr aggregator_row aggregators::median{
  aggregator::median, "median", most_are_honest, false, true, write_median};

constexpr aggregator_row aggregators::centered_clip{
  aggregator::centered_clip, "centered_clip", most_are_honest, false, false, write_centered_clip};

constexpr aggregator_row aggregators::krum{
  aggregator::krum, "krum", [](std::uint64_t f) { return f == 0 ? 1 : 2 * f + 3; }, true, false,
  write_krum};

constexpr aggregator_row aggregators::median_norm{
  aggregator::median_norm, "median_norm", most_are_honest, false, false, write_median_norm};

namespace {

/// Of equal numbers it is that one: weights round.
WAGGLE_VECTORIZED
void add_number(const double* numbers, double weight, const double* first, double* sums,
                double* differ, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    sums[i] += weight * numbers[i];
    differ[i] = numbers[i] == first[i] ? differ[i] : 1;
  }
}

std::vector<double> write_means_of_numbers(std::span<const contribution_view> contributions,
                                           std::span<const double> weights, std::span<float> out) {
  constexpr std::size_t block = 512;
  using numbers = std::array<double, block>;
  block_rows all{contributions, block * exact_values};
  std::vector<double> squares(contributions.size(), 0.0);
  const auto total = std::accumulate(weights.begin(), weights.end(), 0.0);
  numbers first{}, next{}, sums{}, differ{};
  for (std::size_t begin = 0; begin < out.size(); begin += block * exact_values) {
    auto n = std::min(block, (out.size() - begin) / exact_values);
    auto rows = all.at(begin, n * exact_values);
    sums.fill(0);
    differ.fill(0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto& numbers_of = i == 0 ? first : next;
      if (read_exact(rows[i], n, numbers_of.data()) > 0)
        squares[i] = std::numeric_limits<double>::infinity();
      add_number(numbers_of.data(), weights[i], first.data(), sums.data(), differ.data(), n);
    }
    for (std::size_t i = 0; i < n; ++i)
      sums[i] = differ[i] != 0 ? sums[i] / total : first[i];
    write_exact(sums.data(), n, out.data() + begin);
  }
  return squares;
}

} // namespace

std::vector<double> write_numbers(codec_result how,
                                  std::span<const contribution_view> contributions,
                                  std::span<const double> weights, std::span<float> out) {
  struct weighted {
    double number;
    double weight;
  };
  if (how == codec_result::mean)
    return write_means_of_numbers(contributions, weights, out);
  block_rows all{contributions, out.size()};
  auto rows = all.at(0, out.size());
  std::vector<double> squares;
  for (const auto* row : rows)
    squares.push_back(std::all_of(row, row + out.size(), [](float x) { return std::isfinite(x); })
                        ? 0
                        : std::numeric_limits<double>::infinity());
  if (!finite(squares))
    return squares;
  std::vector<weighted> found;
  for (std::size_t at = 0; at < out.size(); at += exact_values) {
    found.clear();
    double half = 0;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (auto number = read_exact(std::span{rows[i] + at, exact_values}.first<exact_values>())) {
        found.push_back({*number, weights[i]});
        half += weights[i] / 2;
      }
    std::ranges::stable_sort(found, {}, &weighted::number);
    std::optional<double> settled;
    for (const auto& each : found) {
      settled = each.number;
      half -= each.weight;
      if (how == codec_result::median && half <= 0)
        break;
    }
    write_exact(settled, out.subspan(at).first<exact_values>());
  }
  return squares;
}

} // namespace waggle
