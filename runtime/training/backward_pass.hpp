#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/training/learner.hpp"
#include "runtime/training/offered_gradients.hpp"

namespace waggle {

/// The gradients that are complete in a backward pass, before the loop offers all of them. Others
/// may take the pass from its `begin_early` on. The loop's thread only, but for `use_vectors`.
class backward_pass {
public:
  backward_pass(const state_table& tensors, offered_gradients& to)
    : values_(tensors.parameter_count() + tensors.buffer_count() + tensors.term_count()), to_(to) {
    std::size_t begin = 0;
    for (const auto& tensor : tensors.tensors_of({state_tensor::kind::parameter})) {
      places_.emplace_back(begin, tensor.elements());
      begin += tensor.elements();
    }
  }

  /// Before the first pass: where the gradients of passes go that are taken early.
  void use_vectors(std::shared_ptr<vector_pool> vectors) { vectors_ = std::move(vectors); }
  /// Before the first pass: the loop says of each gradient when it is complete.
  void hear() { heard_ = true; }
  [[nodiscard]] bool heard() const { return heard_; }

  [[nodiscard]] bool empty() const { return computed_.empty(); }
  /// `values` are the gradient of a parameter. Returns whether others can take the pass.
  bool add(std::size_t parameter, const float* values) {
    computed_.resize(places_.size());
    computed_.at(parameter) = values;
    bool early = to_.is_early();
    if (early)
      write(parameter);
    return early;
  }
  /// See offered_gradients::begin_early. Then call `write_all`.
  [[nodiscard]] bool begin_early(std::uint64_t samples, std::uint64_t merges) {
    return vectors_ && to_.begin_early(samples, merges, vectors_->take(values_));
  }
  void write_all() {
    for (std::size_t i = 0; i < computed_.size(); ++i)
      if (computed_[i] != nullptr)
        write(i);
  }
  /// There will be no gradient of it, or it was offered. Otherwise, if others were to get a part of
  /// it already, the next one that is offered is dropped.
  void discard() {
    computed_.clear();
    to_.fail_early();
  }

private:
  void write(std::size_t parameter) {
    auto [begin, count] = places_[parameter];
    to_.write_early(begin, {computed_[parameter], count});
  }

  const std::size_t values_; // of a gradient, and of what stands behind it
  offered_gradients& to_;
  bool heard_ = false;
  std::shared_ptr<vector_pool> vectors_;
  std::vector<std::pair<std::size_t, std::size_t>> places_; // of parameters: begin, count
  std::vector<const float*> computed_;                      // by parameter; null: not yet
};

} // namespace waggle
