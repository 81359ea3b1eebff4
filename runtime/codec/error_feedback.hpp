#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/codec/coded_part.hpp"

namespace waggle {

/// Carries what a lossy codec dropped of a vector in one round into the next, so that the sum over
/// the rounds of what was sent stays within one round's error of the sum of the vectors (1-bit
/// SGD's error feedback; spec averaging.md §10, fifth point).
///
///   feedback.begin(values, sent);   // sent = values + residual: this goes into the encoder
///   … the round …
///   feedback.commit(sent, parts);   // it counted: residual = sent − decode(encode(sent))
///   feedback.roll_back();           // or it did not: the residual stays as it was
///
/// A contribution that did not enter the result did not count: of a failed round, of a round that
/// went on without us, with weight zero, of an auxiliary peer (F8, F9 of spec optimizer.md §10).
///
/// Holds one vector, the residual, whatever happens in the round: what decoding lost is found out
/// in `commit` by encoding again, which gives the same bytes. Not thread-safe.
class error_feedback {
public:
  /// Writes values + residual to `sent`, which may be `values` itself. A residual of a vector of
  /// another length is forgotten, and a round that was neither committed nor rolled back is rolled
  /// back. Finite values stay finite; others pass through, for whoever looks for them.
  /// REQUIRES: equal lengths.
  void begin(std::span<const float> values, std::span<float> sent);

  /// Takes over what the codecs lose of `sent`, cut as it was for the round. Where that is not
  /// finite it is forgotten. Encodes and decodes the whole vector once.
  /// REQUIRES: begun; the length begun with; `parts` are in order and cover it.
  void commit(std::span<const float> sent, std::span<const coded_part> parts);

  /// The round did not count. Without a round: does nothing.
  void roll_back() { begun_ = false; }

  /// Drops the residual, too: the vector now means something else (a state was loaded).
  void forget();

  /// What is owed: as long as the vector, or empty if that is nothing.
  [[nodiscard]] std::span<const float> residual() const { return residual_; }
  [[nodiscard]] bool in_round() const { return begun_; }

private:
  std::vector<float> residual_; // finite
  std::size_t length_ = 0;      // of the vector begun with
  bool begun_ = false;
};

} // namespace waggle
