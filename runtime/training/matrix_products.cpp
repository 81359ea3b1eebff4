#include "runtime/training/matrix_products.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

// Independent sums, so that the compiler can use vector instructions without changing any order.
constexpr std::size_t lanes = 16;

float dot(const float* __restrict a, const float* __restrict b, std::size_t n) {
  float sums[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane)
      sums[lane] += a[i + lane] * b[i + lane];
  double sum = 0;
  for (float part : sums)
    sum += static_cast<double>(part);
  for (; i < n; ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return static_cast<float>(sum);
}

void add_scaled(const float* __restrict x, float factor, std::size_t n, float* __restrict to) {
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane)
      to[i + lane] += factor * x[i + lane];
  for (; i < n; ++i)
    to[i] += factor * x[i];
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

} // namespace

void dot_with_each(std::span<const float> x, std::span<const float> q, std::size_t rank, float* out,
                   std::size_t out_stride) {
  for (std::size_t j = 0; j < rank; ++j)
    out[j * out_stride] = dot(x.data(), q.data() + j * x.size(), x.size());
}

void add_to_each(std::span<const float> x, const float* p, std::size_t p_stride, std::size_t rank,
                 std::span<float> q) {
  for (std::size_t j = 0; j < rank; ++j)
    add_scaled(x.data(), p[j * p_stride], x.size(), q.data() + j * x.size());
}

void combine(const float* p, std::size_t p_stride, std::span<const float> q, std::size_t rank,
             std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  for (std::size_t j = 0; j < rank; ++j)
    add_scaled(q.data() + j * out.size(), p[j * p_stride], out.size(), out.data());
}

void orthonormalize(std::span<float> rows, std::size_t rank, double negligible) {
  WAGGLE_CHECK(rank > 0 && rows.size() % rank == 0, "whole rows");
  auto length = rows.size() / rank;
  std::vector<std::vector<double>> done;
  for (std::size_t j = 0; j < rank; ++j) {
    auto row = rows.subspan(j * length, length);
    std::vector<double> rest(row.begin(), row.end());
    auto before = std::sqrt(dot(rest, rest));
    // Twice: if little is left after the first time, most of that is rounding error.
    for (int time = 0; time < 2; ++time)
      for (const auto& unit : done) {
        auto part = dot(rest, unit);
        for (std::size_t i = 0; i < length; ++i)
          rest[i] -= part * unit[i];
      }
    auto left = std::sqrt(dot(rest, rest));
    if (!std::isfinite(before) || left <= negligible * before) {
      std::fill(row.begin(), row.end(), 0.0F);
      continue;
    }
    for (std::size_t i = 0; i < length; ++i) {
      rest[i] /= left;
      row[i] = static_cast<float>(rest[i]);
    }
    done.push_back(std::move(rest));
  }
}

} // namespace waggle
