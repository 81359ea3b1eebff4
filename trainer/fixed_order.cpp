#include "trainer/fixed_order.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>

#include "runtime/core/check.hpp"
#include "trainer/fused_sum.hpp"

namespace waggle {

namespace {

/// Sums of `count` values in independent lanes, so that the additions need not wait for each other.
template <class Of>
double sum_in_lanes(const float* x, std::int64_t count, Of of) {
  constexpr std::int64_t lanes = 8;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane)
      sums[lane] += of(static_cast<double>(x[i + lane]));
  double sum = 0;
  for (double part : sums)
    sum += part;
  for (; i < count; ++i)
    sum += of(static_cast<double>(x[i]));
  return sum;
}

constexpr std::int64_t tile_rows = 2;
constexpr std::int64_t tile_columns = 16; // with two rows, the sums fit into SSE registers

/// A tile of a product. Each sum adds its products in the order of k. `rows` and `columns` are at
/// most those of a whole tile.
void multiply_tile(const float* a, const float* b, float* out, std::int64_t inner,
                   std::int64_t width, std::int64_t rows, std::int64_t columns) {
  float sums[tile_rows][tile_columns] = {};
  if (rows == tile_rows && columns == tile_columns) {
    for (std::int64_t k = 0; k < inner; ++k)
      for (std::int64_t i = 0; i < tile_rows; ++i)
        for (std::int64_t j = 0; j < tile_columns; ++j)
          sums[i][j] += a[i * inner + k] * b[k * width + j];
  } else {
    for (std::int64_t k = 0; k < inner; ++k)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
          sums[i][j] += a[i * inner + k] * b[k * width + j];
  }
  for (std::int64_t i = 0; i < rows; ++i)
    std::copy_n(sums[i], columns, out + i * width);
}

/// See fused_sum; `b` may be null.
void sum_on_cpu(const torch::Tensor& out, const torch::Tensor& from, double keep,
                const torch::Tensor& a, const torch::Tensor* b, double by) {
  WAGGLE_CHECK(out.is_contiguous() && from.is_contiguous() && a.numel() == out.numel(), "shapes");
  auto first = a.contiguous();
  auto second = b != nullptr ? b->contiguous() : torch::Tensor{};
  const fused_sum all{out.data_ptr<float>(),   from.data_ptr<float>(),
                      first.data_ptr<float>(), b != nullptr ? second.data_ptr<float>() : nullptr,
                      static_cast<float>(by),  static_cast<float>(keep)};
  at::parallel_for(0, out.numel(), at::internal::GRAIN_SIZE, [&](auto begin, auto end) {
    all.from(begin).compute(end - begin, best_fused_path());
  });
}

} // namespace

torch::Tensor add_scaled(torch::Tensor to, const torch::Tensor& x, double by, double keep) {
  if (!to.is_cpu())
    return to.mul_(keep).add_(x, by);
  sum_on_cpu(to, to, keep, x, nullptr, by);
  return to;
}

torch::Tensor plus_scaled(const torch::Tensor& to, const torch::Tensor& x, double by) {
  if (!to.is_cpu())
    return to.add(x, by);
  auto out = torch::empty_like(to);
  sum_on_cpu(out, to, 1, x, nullptr, by);
  return out;
}

torch::Tensor add_product(torch::Tensor to, const torch::Tensor& a, const torch::Tensor& b,
                          double by, double keep) {
  if (!to.is_cpu())
    return to.mul_(keep).addcmul_(a, b, by);
  sum_on_cpu(to, to, keep, a, &b, by);
  return to;
}

double sum_of_squares(const torch::Tensor& x) {
  if (!x.is_cpu())
    return x.to(torch::kDouble).square().sum().item<double>();
  auto values = x.contiguous();
  return sum_in_lanes(values.data_ptr<float>(), values.numel(), [](double v) { return v * v; });
}

double length_of(const torch::Tensor& x) {
  return std::sqrt(sum_of_squares(x));
}

double root_mean_square(const torch::Tensor& x) {
  return std::sqrt(sum_of_squares(x) / static_cast<double>(x.numel()));
}

torch::Tensor row_means(const torch::Tensor& matrix) {
  if (!matrix.is_cpu())
    return matrix.mean(1);
  auto values = matrix.contiguous();
  auto columns = matrix.size(1);
  auto means = torch::empty({matrix.size(0)});
  for (std::int64_t i = 0; i < matrix.size(0); ++i)
    means.data_ptr<float>()[i] = static_cast<float>(
      sum_in_lanes(values.data_ptr<float>() + i * columns, columns, [](double v) { return v; })
      / static_cast<double>(columns));
  return means;
}

torch::Tensor column_means(const torch::Tensor& matrix) {
  if (!matrix.is_cpu())
    return matrix.mean(0);
  auto values = matrix.contiguous();
  auto columns = matrix.size(1);
  std::vector<double> sums(static_cast<std::size_t>(columns));
  const auto* next = values.data_ptr<float>();
  for (std::int64_t i = 0; i < matrix.size(0); ++i)
    for (auto& sum : sums)
      sum += static_cast<double>(*next++);
  auto means = torch::empty({columns});
  std::transform(sums.begin(), sums.end(), means.data_ptr<float>(), [&](double sum) {
    return static_cast<float>(sum / static_cast<double>(matrix.size(0)));
  });
  return means;
}

torch::Tensor product(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.is_cpu())
    return torch::mm(a, b);
  auto left = a.contiguous();
  auto right = b.contiguous();
  auto height = left.size(0);
  auto inner = left.size(1);
  auto width = right.size(1);
  auto out = torch::empty({height, width});
  const auto* from_left = left.data_ptr<float>();
  const auto* from_right = right.data_ptr<float>();
  auto* to = out.data_ptr<float>();
  // Each thread computes whole rows, so that the number of threads changes no sum.
  at::parallel_for(0, (height + tile_rows - 1) / tile_rows, 1, [&](auto begin, auto end) {
    for (auto row = begin * tile_rows; row < std::min(end * tile_rows, height); row += tile_rows)
      for (std::int64_t column = 0; column < width; column += tile_columns)
        multiply_tile(from_left + row * inner, from_right + column, to + row * width + column,
                      inner, width, std::min(tile_rows, height - row),
                      std::min(tile_columns, width - column));
  });
  return out;
}

} // namespace waggle
