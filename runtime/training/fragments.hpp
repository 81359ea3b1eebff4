#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/core/float_vector.hpp"
#include "runtime/training/state_table.hpp"

namespace waggle {

/// How the parameters of a model are dealt to the vectors that its rounds average in turn, so that
/// each has tensors from all depths of the model (Streaming DiLoCo, arXiv 2501.18512). Immutable.
class fragments {
public:
  /// Deals each parameter of the table to the fragment that has the fewest values so far: their
  /// sizes differ by no more than the largest tensor. REQUIRES: 1 ≤ count ≤ parameters.
  fragments(const state_table& state, std::size_t count) : fragments(count) {
    for (auto i : state.indices_of({state_tensor::kind::parameter})) {
      auto& to = *std::ranges::min_element(all_, {}, &fragment::values);
      auto length = static_cast<std::size_t>(state[i].elements());
      auto at = static_cast<std::size_t>(state.offset(i));
      if (!to.pieces.empty() && to.pieces.back().in_all + to.pieces.back().length == at)
        to.pieces.back().length += length;
      else
        to.pieces.push_back({at, to.values, length});
      to.tensors.push_back(i);
      to.values += length;
      values_ += length;
    }
  }
  /// One, of so many values.
  static fragments one_of(std::size_t values) {
    fragments out{1};
    out.all_[0].pieces.push_back({0, 0, values});
    out.all_[0].values = out.values_ = values;
    return out;
  }

  [[nodiscard]] std::size_t count() const { return all_.size(); }
  /// The values of all of them, and of one.
  [[nodiscard]] std::size_t values() const { return values_; }
  [[nodiscard]] std::size_t values(std::size_t which) const { return all_[which].values; }
  /// Indices in the table, in order; not of one_of.
  [[nodiscard]] std::span<const std::size_t> tensors(std::size_t which) const {
    return all_[which].tensors;
  }
  /// A range of values that stand one after another both in the fragment and among all parameters.
  struct piece {
    std::size_t in_all;
    std::size_t in_fragment;
    std::size_t length;
  };
  [[nodiscard]] std::span<const piece> pieces(std::size_t which) const {
    return all_[which].pieces;
  }

  /// Copies the values of a fragment. REQUIRES: `all` has all values, the other span no fewer than
  /// the fragment.
  void gather(std::size_t which, std::span<const float> all, std::span<float> out) const {
    for (const auto& p : pieces(which))
      std::ranges::copy(all.subspan(p.in_all, p.length), out.subspan(p.in_fragment).begin());
  }
  void scatter(std::size_t which, std::span<const float> from, std::span<float> all) const {
    for (const auto& p : pieces(which))
      std::ranges::copy(from.subspan(p.in_fragment, p.length), all.subspan(p.in_all).begin());
  }

private:
  explicit fragments(std::size_t count) : all_(count) {}

  struct fragment {
    std::vector<std::size_t> tensors;
    std::vector<piece> pieces;
    std::size_t values = 0;
  };
  std::vector<fragment> all_;
  std::size_t values_ = 0;
};

} // namespace waggle
