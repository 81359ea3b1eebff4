#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/byte_store.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// What a donor offers.
struct state_offer {
  epoch_id epoch;
  digest content; // SHA-256 over all bytes
  digest parameters;
  std::uint64_t bytes = 0;
  std::uint32_t chunk_bytes = 0;

  friend bool operator==(const state_offer&, const state_offer&) = default;
};

/// The download of one state: which chunks are requested, which have arrived, and whether the hash
/// of the whole is the announced one. Chunks from another donor with the same content count as
/// well: a download that lost its donor resumes with another. Uses no network and no clock. Not
/// thread-safe.
class state_download {
public:
  struct options {
    std::uint64_t bytes_max = 16_GiB; // larger offers are refused before anything is allocated
    std::uint32_t chunk_bytes_min = 4096;
    std::uint32_t chunk_bytes_max = 16U << 20U;
    std::size_t window = 32; // chunks requested at the same time
  };

  /// @param make_store makes the store in which the bytes are assembled.
  state_download(options opts, byte_store_factory make_store)
    : options_(opts), make_store_(std::move(make_store)) {}

  /// Begins with this offer, or resumes if its content is the one that is partly downloaded.
  /// Fails with ec::oversize, protocol_violation or io_error.
  status accept(const state_offer& offer);

  /// The chunks to request now; they count as requested.
  std::vector<std::uint32_t> next();
  /// A chunk arrived. Fails with ec::wrong_shape if it has the wrong length or was not requested,
  /// or with ec::io_error.
  status chunk(std::uint32_t index, byte_span bytes);
  /// The donor is lost: the requested chunks will not arrive.
  void interrupted();

  [[nodiscard]] bool complete() const { return offer_ && missing_ == 0; }
  /// The complete state, checked against its hash. On ec::hash_mismatch or io_error everything is
  /// discarded.
  result<std::shared_ptr<const byte_source>> finish();

  [[nodiscard]] const std::optional<state_offer>& offer() const { return offer_; }
  [[nodiscard]] double progress() const;

private:
  enum class chunk_state : std::uint8_t { missing, asked, here };

  [[nodiscard]] std::size_t size_of(std::uint32_t index) const;

  options options_;
  byte_store_factory make_store_;
  std::optional<state_offer> offer_;
  std::shared_ptr<byte_store> bytes_;
  std::vector<chunk_state> chunks_;
  std::size_t missing_ = 0;         // chunks that have not arrived
  std::uint32_t first_missing_ = 0; // no chunk before it is missing
  std::size_t asked_ = 0;
};

} // namespace waggle
