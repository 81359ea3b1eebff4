#include "runtime/codec/error_feedback.hpp"

#include <bit>
#include <limits>
#include <string>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

// Both loops are free of branches, so that the compiler vectorizes them.

bool is_finite(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7f800000U) != 0x7f800000U;
}

/// x + d·r; the largest float instead of an overflow.
void add_finite(const float* values, float decay, const float* residual, std::size_t n,
                float* out) {
  constexpr auto most = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < n; ++i) {
    auto x = values[i];
    auto sum = x + decay * residual[i];
    sum = sum > most ? most : sum;
    sum = sum < -most ? -most : sum;
    out[i] = is_finite(x) ? sum : x;
  }
}

/// Replaces `decoded` by values − decoded; 0 where that is not finite.
void subtract_finite(const float* values, std::size_t n, float* decoded) {
  for (std::size_t i = 0; i < n; ++i) {
    auto lost = values[i] - decoded[i];
    decoded[i] = is_finite(lost) ? lost : 0.0F;
  }
}

} // namespace

void write_carried(std::span<const float> values, std::span<const coded_part> parts,
                   std::span<float> carried) {
  std::vector<std::byte> bytes;
  std::uint64_t covered = 0;
  for (const auto& part : parts) {
    WAGGLE_CHECK(part.offset == covered && part.count <= values.size() - covered,
                 std::to_string(part.offset) + " + " + std::to_string(part.count));
    covered += part.count;
    bytes.resize(encoded_size(part.codec, part.count));
    encode(part.codec, values.subspan(part.offset, part.count), bytes);
    auto decoded = decode(part.codec, bytes, carried.subspan(part.offset, part.count));
    WAGGLE_CHECK(decoded.ok(), "a part that was just encoded does not decode");
  }
  WAGGLE_CHECK(covered == values.size() && covered == carried.size(), std::to_string(covered));
}

void error_feedback::begin(std::span<const float> values, std::span<float> sent,
                           residual_range where) {
  WAGGLE_CHECK(values.size() == sent.size(),
               std::to_string(values.size()) + " and " + std::to_string(sent.size()));
  begun_ = true;
  length_ = values.size();
  where_ = where.of > 0 ? where : residual_range{0, length_};
  WAGGLE_CHECK(where_.begin + length_ <= where_.of, std::to_string(where_.of));
  if (residual_.size() != where_.of)
    residual_ = {};
  if (!residual_.empty())
    add_finite(values.data(), decay_, residual_.data() + where_.begin, length_, sent.data());
  else if (values.data() != sent.data())
    std::copy(values.begin(), values.end(), sent.begin());
}

void error_feedback::commit(std::span<const float> sent, std::span<const coded_part> parts) {
  WAGGLE_CHECK(begun_ && sent.size() == length_,
               std::to_string(sent.size()) + " of " + std::to_string(length_));
  begun_ = false;
  if (!is_lossy(parts) && where_.of == length_) {
    residual_ = {}; // free the memory
    return;
  }
  residual_.resize(where_.of);
  auto own = std::span{residual_}.subspan(where_.begin, length_);
  write_carried(sent, parts, own);
  subtract_finite(sent.data(), sent.size(), own.data());
}

void error_feedback::add(std::span<const float> residual) {
  roll_back(); // else the round that ends would replace the sum
  if (residual_.size() == residual.size())
    add_finite(residual.data(), 1, residual_.data(), residual.size(), residual_.data());
  else
    restore(residual);
}

void error_feedback::forget() {
  begun_ = false;
  residual_ = {};
}

} // namespace waggle
