#include "runtime/training/learner_layer.hpp"

#include <algorithm>

#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

own_tensor kept_tensor(state_tensor what, std::function<std::span<float>()> values) {
  return {std::move(what), values, [values](std::span<const float> from) {
            std::copy(from.begin(), from.end(), values().begin());
          }};
}

learner_layer::learner_layer(std::unique_ptr<learner>&& below, std::vector<own_tensor> own,
                             std::string mark)
  : learner(below.get()), below_(std::move(below)), own_(std::move(own)), mark_(std::move(mark)) {
  auto all = below_->tensors().tensors();
  for (std::size_t i = 0; i < all.size(); ++i)
    places_.push_back({nullptr, i});
  for (const auto& tensor : own_) {
    auto next = std::find_if(all.begin(), all.end(), [&](const state_tensor& t) {
      return t.group() > tensor.what.group();
    });
    places_.insert(places_.begin() + (next - all.begin()), {&tensor});
    all.insert(next, tensor.what);
  }
  tensors_ = state_table{std::move(all), below_->tensors().numbers()};
}

void learner_layer::use_vectors(std::shared_ptr<vector_pool> vectors) {
  vectors_ = vectors;
  below_->use_vectors(std::move(vectors));
}

digest learner_layer::schema() const {
  auto below = below_->schema();
  return mark_.empty() ? below : sha256_stream{}.add(mark_).add(below.view()).finish();
}

void learner_layer::apply(std::span<const float> gradient, double lr) {
  update next{gradient, lr};
  before_update(next);
  below_->apply(next.gradient, next.lr);
  after_update();
}

void learner_layer::step_locally(double lr) {
  if (needs_gradient()) {
    if (auto mean = take_mean_vector(*vectors_, 0); mean.samples > 0)
      apply(std::span{*mean.values}.first(parameter_count()), lr);
    return;
  }
  bool steps = accumulated_samples() > 0;
  below_->step_locally(lr);
  if (steps)
    after_update();
}

void learner_layer::read_tensor(std::size_t which, std::span<float> out) const {
  auto at = places_[which];
  if (at.own == nullptr)
    return below_->read_tensor(at.below, out);
  auto from = at.own->values();
  std::copy(from.begin(), from.end(), out.begin());
}

std::span<const float> learner_layer::values_of(std::size_t which) const {
  auto at = places_[which];
  return at.own != nullptr ? at.own->values() : below_->values_of(at.below);
}

void learner_layer::write_tensor(std::size_t which, std::span<const float> values) {
  auto at = places_[which];
  return at.own != nullptr ? at.own->write(values) : below_->write_tensor(at.below, values);
}

status learner_layer::check_values(const tensor_reader& read) const {
  std::vector<std::size_t> of_below; // where its tensors are in the table
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const auto* own = places_[i].own;
    if (own == nullptr)
      of_below.push_back(i);
    if (own == nullptr || !own->check)
      continue;
    std::vector<float> values(static_cast<std::size_t>(tensors_[i].elements()));
    WAGGLE_TRY(there, read(i, values));
    WAGGLE_TRY(good, own->check(values));
  }
  return below_->check_values(
    [&](std::size_t which, std::span<float> out) { return read(of_below[which], out); });
}

} // namespace waggle
