#include "runtime/training/low_rank.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/core/check.hpp"
#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/matrix_products.hpp"

namespace waggle {

namespace {

/// x = values + residual.
void add_residual(const float* values, const float* residual, std::span<float> x) {
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = values[i] + residual[i];
}

float finite_or_zero(float x) {
  return std::isfinite(x) ? x : 0.0F;
}

} // namespace

matrix_shape flattened(std::span<const std::uint64_t> shape) {
  WAGGLE_CHECK(shape.size() >= 2, std::to_string(shape.size()));
  std::vector<std::uint64_t> axes(shape.begin(), shape.end());
  while (axes.size() > 2) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < axes.size(); ++i)
      if (axes[i] * axes[i + 1] < axes[best] * axes[best + 1])
        best = i;
    axes[best] *= axes[best + 1];
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  return {axes[0], axes[1]};
}

bool is_compressed(std::span<const std::uint64_t> shape, const lane_coding& how) {
  if (how.rank == 0 || shape.size() < 2)
    return false;
  auto matrix = flattened(shape);
  auto elements = static_cast<double>(matrix.rows) * static_cast<double>(matrix.columns);
  auto sent = how.rank * (static_cast<double>(matrix.rows) + static_cast<double>(matrix.columns));
  return 1 - sent / elements >= how.least_saving;
}

std::shared_ptr<low_rank> low_rank::make(const state_table& state, const lane_coding& how,
                                         std::string_view run) {
  std::shared_ptr<low_rank> made{new low_rank{how.rank, run}};
  lane gradients;
  gradients.coding = how;
  auto averaged = averaged_tensors::of(state, gradients);
  WAGGLE_CHECK(averaged.ok(), "gradients need nothing of the optimizer");
  auto parameters = state.indices_of({state_tensor::kind::parameter});
  for (std::size_t i = 0; i < (*averaged)->infos()->size(); ++i)
    if (i < parameters.size() && is_compressed(state[i].shape, how))
      made->add_compressed(state[i], i);
    else
      made->add_whole((*(*averaged)->infos())[i], i);
  return made->first_.empty() ? nullptr : made;
}

low_rank::low_rank(std::uint32_t rank, std::string_view run)
  : rank_(rank), random_(random_source{0}.fork("waggle low rank/" + std::string{run})) {}

void low_rank::add_compressed(const state_tensor& tensor, std::uint64_t index) {
  auto m = next_place(index);
  auto shape = flattened(tensor.shape);
  m.rows = static_cast<std::size_t>(shape.rows);
  m.columns = static_cast<std::size_t>(shape.columns);
  m.first = basis_.size();
  m.residual = kept_.residual.size();
  m.factor = kept_.factors.size();
  first_.push_back({tensor.name, rank_ * m.rows, tensor_role::gradient});
  second_.push_back({tensor.name, rank_ * m.columns, tensor_role::gradient});
  basis_.resize(basis_.size() + rank_ * m.rows);
  kept_.residual.resize(kept_.residual.size() + m.elements());
  kept_.factors.resize(kept_.factors.size() + rank_ * m.columns);
  for (std::size_t j = 0; j < rank_; ++j)
    write_first_column(m, j, std::span{kept_.factors}.subspan(m.factor + j * m.columns, m.columns));
  add(m);
}

void low_rank::add_whole(const tensor_info& values, std::uint64_t index) {
  auto m = next_place(index);
  m.columns = static_cast<std::size_t>(values.elements);
  m.residual = rest_values_;
  rest_values_ += m.columns;
  second_.push_back(values);
  add(m);
}

low_rank::matrix low_rank::next_place(std::uint64_t index) const {
  return {
    .offset = values_, .second = static_cast<std::size_t>(elements_of(second_)), .index = index};
}

void low_rank::add(const matrix& next) {
  values_ += next.elements();
  tensors_.push_back(next);
}

/// Uniform in [-1, 1): with [0, 1) all columns would have nearly the same direction.
void low_rank::write_first_column(const matrix& of, std::size_t j, std::span<float> column) const {
  auto random = random_.fork(std::to_string(of.index) + "/" + std::to_string(j));
  for (auto& x : column)
    x = static_cast<float>(2 * random.unit() - 1);
  orthonormalize(column, 1);
}

void low_rank::write_first(std::span<const float> values, std::span<float> first) {
  WAGGLE_CHECK(values.size() == values_ && first.size() == basis_.size(), "lengths");
  next_.reset();
  std::vector<float> x;
  for (const auto& m : tensors_) {
    if (!m.compressed())
      continue;
    x.resize(m.columns);
    auto q = std::span{kept_.factors}.subspan(m.factor, rank_ * m.columns);
    for (std::size_t i = 0; i < m.rows; ++i) {
      auto at = i * m.columns;
      add_residual(values.data() + m.offset + at, kept_.residual.data() + m.residual + at, x);
      dot_with_each(x, q, rank_, first.data() + m.first + i, m.rows);
    }
  }
}

void low_rank::write_second(std::span<const float> values, std::span<const float> mean_of_first,
                            std::span<float> second) {
  WAGGLE_CHECK(values.size() == values_ && mean_of_first.size() == basis_.size()
                 && second.size() == elements_of(second_),
               "lengths");
  std::copy(mean_of_first.begin(), mean_of_first.end(), basis_.begin());
  std::vector<float> x;
  for (const auto& m : tensors_) {
    const auto* from = values.data() + m.offset;
    auto to = second.subspan(m.second, m.compressed() ? rank_ * m.columns : m.columns);
    if (!m.compressed()) {
      if (kept_.rest.empty())
        std::copy_n(from, m.columns, to.begin());
      else
        add_residual(from, kept_.rest.data() + m.residual, to);
      continue;
    }
    orthonormalize(std::span{basis_}.subspan(m.first, rank_ * m.rows), rank_);
    std::fill(to.begin(), to.end(), 0.0F);
    x.resize(m.columns);
    for (std::size_t i = 0; i < m.rows; ++i) {
      auto at = i * m.columns;
      add_residual(from + at, kept_.residual.data() + m.residual + at, x);
      add_to_each(x, basis_.data() + m.first + i, m.rows, rank_, to);
    }
  }
}

void low_rank::finish(std::span<const float> values, std::span<const float> mean_of_second,
                      std::span<const float> carried, std::span<float> result) {
  WAGGLE_CHECK(values.size() == values_ && result.size() == values_
                 && mean_of_second.size() == elements_of(second_)
                 && (carried.empty() || carried.size() == mean_of_second.size()),
               "lengths");
  next_ = kept_;
  std::vector<float> given;
  for (const auto& m : tensors_) {
    if (!m.compressed()) {
      if (!carried.empty())
        keep_rest(m, values, carried);
      std::copy_n(mean_of_second.data() + m.second, m.columns, result.data() + m.offset);
      continue;
    }
    given.resize(m.columns);
    for (std::size_t i = 0; i < m.rows; ++i) {
      auto at = i * m.columns;
      const auto* p = basis_.data() + m.first + i;
      if (!carried.empty()) {
        combine(p, m.rows, carried.subspan(m.second, rank_ * m.columns), rank_, given);
        auto* kept = next_->residual.data() + m.residual + at;
        for (std::size_t k = 0; k < m.columns; ++k)
          kept[k] = finite_or_zero(values[m.offset + at + k] + kept[k] - given[k]);
      }
      combine(p, m.rows, mean_of_second.subspan(m.second, rank_ * m.columns), rank_,
              result.subspan(m.offset + at, m.columns));
    }
    keep_factor(m, mean_of_second);
  }
}

void low_rank::keep_factor(const matrix& of, std::span<const float> mean_of_second) {
  for (std::size_t j = 0; j < rank_; ++j) {
    auto from = mean_of_second.subspan(of.second + j * of.columns, of.columns);
    auto column = std::span{next_->factors}.subspan(of.factor + j * of.columns, of.columns);
    std::copy(from.begin(), from.end(), column.begin());
    orthonormalize(column, 1);
    if (std::all_of(column.begin(), column.end(), [](float x) { return x == 0; }))
      write_first_column(of, j, column);
  }
}

void low_rank::keep_rest(const matrix& of, std::span<const float> values,
                         std::span<const float> carried) {
  for (std::size_t i = 0; i < of.columns; ++i) {
    auto before = next_->rest.empty() ? 0.0F : next_->rest[of.residual + i];
    auto lost = finite_or_zero(values[of.offset + i] + before - carried[of.second + i]);
    if (lost != 0 && next_->rest.empty())
      next_->rest.resize(rest_values_);
    if (!next_->rest.empty())
      next_->rest[of.residual + i] = lost;
  }
}

void low_rank::finish_alone(std::span<const float> values, std::span<float> result) {
  WAGGLE_CHECK(values.size() == values_ && result.size() == values_, "lengths");
  auto all = residual();
  add_residual(values.data(), all.data(), result);
  next_ = memory{std::vector<float>(kept_.residual.size()), {}, kept_.factors};
}

void low_rank::commit() {
  WAGGLE_CHECK(next_.has_value(), "there is no result");
  kept_ = std::move(*next_);
  next_.reset();
}

void low_rank::forget() {
  std::fill(kept_.residual.begin(), kept_.residual.end(), 0.0F);
  kept_.rest = {};
  next_.reset();
}

std::vector<float> low_rank::residual() const {
  std::vector<float> all(values_);
  for (const auto& m : tensors_) {
    const auto& from = m.compressed() ? kept_.residual : kept_.rest;
    if (!from.empty())
      std::copy_n(from.data() + m.residual, m.elements(), all.data() + m.offset);
  }
  return all;
}

} // namespace waggle
