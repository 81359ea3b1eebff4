#include "runtime/training/learner_layer.hpp"

#include <algorithm>

#include "runtime/crypto/digest.hpp"

namespace waggle {

learner_layer::learner_layer(std::unique_ptr<learner>&& below, std::vector<state_tensor> own,
                             std::string mark)
  : below_(std::move(below)), mark_(std::move(mark)) {
  if (own.empty())
    return;
  auto all = below_->tensors().tensors();
  for (std::size_t i = 0; i < all.size(); ++i)
    places_.push_back({false, i});
  for (std::size_t i = 0; i < own.size(); ++i) {
    auto next = std::find_if(all.begin(), all.end(),
                             [&](const state_tensor& t) { return t.group() > own[i].group(); });
    places_.insert(places_.begin() + (next - all.begin()), {true, i});
    all.insert(next, own[i]);
  }
  tensors_ = state_table{std::move(all)};
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
  if (places_.empty())
    return below_->read_tensor(which, out);
  auto at = places_[which];
  return at.own ? read_own(at.index, out) : below_->read_tensor(at.index, out);
}

void learner_layer::read_own(std::size_t own, std::span<float> out) const {
  auto from = values_of_own(own);
  std::copy(from.begin(), from.end(), out.begin());
}

std::span<const float> learner_layer::values_of(std::size_t which) const {
  if (places_.empty())
    return below_->values_of(which);
  auto at = places_[which];
  return at.own ? values_of_own(at.index) : below_->values_of(at.index);
}

void learner_layer::write_tensor(std::size_t which, std::span<const float> values) {
  if (places_.empty())
    return below_->write_tensor(which, values);
  auto at = places_[which];
  return at.own ? write_own(at.index, values) : below_->write_tensor(at.index, values);
}

status learner_layer::check_values(const byte_source& from, std::uint64_t at) const {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i].own || places_[i].index >= checked_own())
      continue;
    std::vector<float> values(static_cast<std::size_t>(tensors_[i].elements()));
    auto begin = at + tensors_.header_bytes() + tensors_.offset(i) * sizeof(float);
    if (auto read = from.read(begin, std::as_writable_bytes(std::span{values})); !read)
      return read;
    if (auto good = check_own(places_[i].index, values); !good)
      return good;
  }
  return below_->check_values(from, at);
}

} // namespace waggle
