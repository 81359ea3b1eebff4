#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/codec/codec.hpp"

namespace waggle {

/// A range of a vector that is encoded as one part.
struct coded_part {
  std::uint64_t offset = 0; // in values
  std::uint32_t count = 0;
  codec_id codec = codec_id::none;
};

inline bool is_lossy(std::span<const coded_part> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const coded_part& part) { return part.codec != codec_id::none; });
}

/// Writes to `carried` what a receiver of the parts of `values` decodes: decode(encode(part)) of
/// each. REQUIRES: equal lengths; no overlap; `parts` are in order and cover `values`, which are
/// finite.
void write_carried(std::span<const float> values, std::span<const coded_part> parts,
                   std::span<float> carried);

/// Which values of a residual belong to a vector. Of vectors that are averaged in turn, there is
/// one residual: that of the first, of the second, and so on.
struct residual_range {
  std::size_t begin = 0;
  std::size_t of = 0; // values of the whole residual; 0: those of the vector
};

/// Adds the error of a lossy codec in one round to the vector of the next, so that the sum over the
/// rounds of the sent values stays within one round's error of the sum of the vectors (error
/// feedback of 1-bit SGD).
///
///   feedback.begin(values, sent);   // sent = values + decay · residual: this is encoded
///   … the round …
///   feedback.commit(sent, parts);   // it counted: residual = sent − decode(encode(sent))
///   feedback.roll_back();           // or it did not: the residual stays as it was
///
/// With a decay below 1, older values count for less: where few values are carried, the residual is
/// a momentum (SparseLoCo, arXiv 2508.15706).
///
/// Call roll_back if the contribution did not enter the result: the round failed, it went on
/// without us, our weight was zero, or we are an auxiliary.
///
/// Holds one vector, the residual. The error is computed in `commit` by encoding again, which gives
/// the same bytes. Not thread-safe.
class error_feedback {
public:
  /// @param decay 0 … 1.
  explicit error_feedback(double decay = 1) : decay_(static_cast<float>(decay)) {}

  /// Writes values + decay · residual to `sent`, which may be `values` itself. A residual of
  /// another length than `where` says is dropped, and a round that was neither committed nor rolled
  /// back is rolled back. Finite values stay finite; others are passed on unchanged, so that later
  /// checks find them. REQUIRES: equal lengths.
  void begin(std::span<const float> values, std::span<float> sent, residual_range where = {});

  /// Sets the residual to the codecs' error on `sent`, cut into the parts of the round. Where the
  /// error is not finite the residual is 0. Encodes and decodes the whole vector once.
  /// REQUIRES: begun; the length given to `begin`; `parts` are in order and cover it.
  void commit(std::span<const float> sent, std::span<const coded_part> parts);

  /// The round did not count. Without a round: no effect.
  void roll_back() { begun_ = false; }

  /// Drops the residual, too: the vector has another meaning now (a state was loaded).
  void forget();

  /// Continues with the residual of an earlier object. REQUIRES: finite values.
  void restore(std::span<const float> residual) {
    residual_.assign(residual.begin(), residual.end());
  }

  /// Adds such a residual to this one, between rounds. One of another length replaces it. REQUIRES:
  /// finite values.
  void add(std::span<const float> residual);

  /// The residual: as long as the vectors, or empty if it is zero.
  [[nodiscard]] std::span<const float> residual() const { return residual_; }
  [[nodiscard]] bool in_round() const { return begun_; }

private:
  float decay_;
  std::vector<float> residual_; // finite
  std::size_t length_ = 0;      // of the vector given to `begin`
  residual_range where_;        // likewise
  bool begun_ = false;
};

} // namespace waggle
