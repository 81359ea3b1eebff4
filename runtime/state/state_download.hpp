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
#include "runtime/core/time.hpp"

namespace waggle {

/// The most bytes of a model's state, if all that is known is how many values its peers average:
/// at least its parameters. With these, an optimizer keeps up to three statistics and a peer the
/// last gradient; the rest of the factor, and the MiB, are for what is small, and for names.
constexpr std::uint64_t state_bytes_max(std::uint64_t averaged_values) {
  constexpr auto most = std::uint64_t{1} << 40U; // of any vector
  return 1_MiB + 8 * sizeof(float) * (averaged_values < most ? averaged_values : most);
}

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
    /// Larger offers are refused before anything is allocated. Whoever knows the model sets the
    /// size of its state; others, state_bytes_max.
    std::uint64_t bytes_max = 16_GiB;
    std::uint32_t chunk_bytes_min = 4096;
    std::uint32_t chunk_bytes_max = 1_MiB; // larger bodies are no chunks, for the link
    std::uint64_t chunks_max = 1U << 20U;  // one byte of memory each; of 256 KiB: 256 GiB
    /// Chunks requested at the same time: at first, at least and at most. The window follows the
    /// link: what is requested also arrives when the download has been given up, and delays
    /// whatever follows it.
    std::size_t window = 8;
    std::size_t window_min = 2;
    std::size_t window_max = 64;
    /// A chunk that takes longer than `slow` from its request halves the window; one that takes
    /// less than `fast` widens it.
    milliseconds slow{2'000};
    milliseconds fast{500};
  };

  /// @param make_store makes the store in which the bytes are assembled.
  state_download(options opts, byte_store_factory make_store)
    : options_(opts), make_store_(std::move(make_store)) {}

  /// Whether the offer is within the limits. Fails with ec::oversize or protocol_violation.
  [[nodiscard]] status check(const state_offer& offer) const;
  /// Begins with this offer, or resumes if its content is the one that is partly downloaded.
  /// Fails as `check` does, or with ec::io_error, also if the state would fill more than half of
  /// what is free: nothing is known of its bytes yet.
  status accept(const state_offer& offer);

  /// The chunks to request now; they count as requested.
  std::vector<std::uint32_t> next();
  /// A chunk arrived. Fails with ec::wrong_shape if it has the wrong length or was not requested,
  /// or with ec::io_error.
  /// @param took from its request.
  status chunk(std::uint32_t index, byte_span bytes, steady_time::duration took = {});
  /// The donor sends this chunk later, because too much of what was requested is on its way: it
  /// counts as missing, and fewer are requested at the same time. False: none is on its way.
  [[nodiscard]] bool postponed(std::uint32_t index);
  /// The donor is lost: the requested chunks will not arrive.
  void interrupted();

  [[nodiscard]] bool complete() const { return offer_ && missing_ == 0; }
  /// The complete state, checked against its hash. On ec::hash_mismatch or io_error everything is
  /// discarded.
  result<std::shared_ptr<const byte_source>> finish();

  [[nodiscard]] const std::optional<state_offer>& offer() const { return offer_; }
  [[nodiscard]] double progress() const;
  [[nodiscard]] std::size_t window() const { return window_; }

private:
  void adapt(steady_time::duration took);

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
  std::size_t window_ = options_.window;
  std::size_t settling_ = 0; // chunks that were requested before the window was halved
  bool crowded_ = false;     // the donor has postponed chunks
};

} // namespace waggle
