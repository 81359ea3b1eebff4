#pragma once

#include <span>
#include <vector>

#include "runtime/codec/codec_choice.hpp"

namespace waggle {

/// Replaces the vector that a group averages by two shorter ones, which are averaged one after the
/// other: the second is computed from the mean of the first, and the result from both means. May
/// keep a residual: what it did not carry of this peer's vectors, for the next ones.
///
///   coding.write_first(values, first);                  // first is averaged
///   coding.write_second(values, mean_of_first, second); // second is averaged
///   coding.finish(values, mean_of_second, carried, result);
///
/// The result is a function of the two means alone, and has equal bytes on all peers with equal
/// means, whatever these peers' own vectors and residuals are. What a peer keeps for later vectors
/// changes only in `commit`, once the result is used: an attempt that is abandoned before changes
/// nothing, and `write_first` or `finish_alone` begins the next one. Not thread-safe.
class two_round_coding {
public:
  virtual ~two_round_coding() = default;

  /// The tensors of the vector that each round averages.
  [[nodiscard]] virtual const std::vector<tensor_info>& first_tensors() const = 0;
  [[nodiscard]] virtual const std::vector<tensor_info>& second_tensors() const = 0;

  /// All spans of `values` and results have the length of the vector; the others that of their
  /// round.
  virtual void write_first(std::span<const float> values, std::span<float> first) = 0;
  /// REQUIRES: after write_first.
  virtual void write_second(std::span<const float> values, std::span<const float> mean_of_first,
                            std::span<float> second) = 0;
  /// `carried`: what the second round has carried of our second vector, which differs from it if
  /// its codec is lossy; empty if our vector did not count. REQUIRES: after write_second.
  virtual void finish(std::span<const float> values, std::span<const float> mean_of_second,
                      std::span<const float> carried, std::span<float> result) = 0;
  /// The group has no other member: nothing has to be sent, so the result is the vector itself and
  /// all of the residual.
  virtual void finish_alone(std::span<const float> values, std::span<float> result) = 0;
  /// The last result is used. REQUIRES: after finish or finish_alone.
  virtual void commit() = 0;
  /// What was kept belongs to vectors of another history.
  virtual void forget() = 0;
};

/// How many values the tensors have together.
inline std::uint64_t elements_of(const std::vector<tensor_info>& tensors) {
  std::uint64_t sum = 0;
  for (const auto& tensor : tensors)
    sum += tensor.elements;
  return sum;
}

} // namespace waggle
