#pragma once

#include <cstdint>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <tuple>
#include <utility>

#include <torch/torch.h>

namespace waggle {

namespace detail {

template <class T>
concept tuple_like = requires {
  std::tuple_size<T>::value;
};

/// A batch of a DataLoader: data and target.
template <class T>
concept example_like = requires(const T& x) {
  x.data;
  x.target;
};

template <class Batch>
std::optional<std::uint64_t> find_batch_size(const Batch& batch) {
  std::optional<std::uint64_t> found;
  if constexpr (std::is_convertible_v<const Batch&, const torch::Tensor&>) {
    const torch::Tensor& tensor = batch;
    if (tensor.defined() && tensor.dim() > 0)
      found = static_cast<std::uint64_t>(tensor.size(0));
  } else if constexpr (example_like<Batch>) {
    found = find_batch_size(batch.data);
    if (!found)
      found = find_batch_size(batch.target);
  } else if constexpr (std::ranges::input_range<const Batch>) {
    using item_type = std::ranges::range_value_t<const Batch>;
    if constexpr (example_like<item_type> && std::ranges::sized_range<const Batch>)
      return std::ranges::size(batch); // a DataLoader without Stack: each example is one sample
    else if constexpr (!std::is_same_v<item_type, Batch>) // not of a path, whose items are paths
      for (const auto& item : batch)
        if (found = find_batch_size(item); found)
          break;
  } else if constexpr (tuple_like<Batch>) {
    std::apply(
      [&found](const auto&... item) { (void)((found = find_batch_size(item)).has_value() || ...); },
      batch);
  }
  return found;
}

} // namespace detail

/// The number of samples of a batch: the length of the first dimension of the first tensor that is
/// found in it, depth first, so samples must come first in it. A batch is a tensor, an Example of a
/// DataLoader, or a container, map, pair or tuple of batches; a container of Examples has as many
/// samples as Examples. Throws std::invalid_argument if it contains no tensor with a
/// dimension, or no sample.
template <class Batch>
std::uint64_t batch_size_of(const Batch& batch) {
  auto found = detail::find_batch_size(batch);
  if (!found || *found == 0)
    throw std::invalid_argument{
      "the number of samples cannot be found in this batch: pass it to step as a number"};
  return *found;
}

} // namespace waggle
