#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/state/state_download.hpp"

namespace waggle {

/// What donors at one epoch of one history have in common.
enum class state_comparison : std::uint8_t {
  none,       // their states are only approximately equal: the first offer is chosen
  parameters, // passes change the rest, as the running means of a normalization
  content     // all bytes
};

/// Chooses the state to download where some donors may lie: the one that more than half of them
/// offer. Donors at one epoch of one history hold the same bytes, so two offers are compared by
/// their hashes alone, before anything is downloaded. Offers of different epochs say nothing about
/// each other: those who are behind are asked again, for the epoch that the others have reached.
///
/// Donors that cannot be reached, or have no state, are not counted. A single donor suffices if it
/// is all there is. Uses no network and no clock. Not thread-safe.
class state_vote {
public:
  /// Further donors are not asked: each one copies and hashes its state.
  static constexpr std::size_t donors_max = 7;
  /// How often donors are asked again for a later epoch.
  static constexpr std::uint32_t alignments_max = 5;

  struct question {
    peer_record donor;
    epoch_id epoch_min;
  };
  struct vote {
    peer_record donor;
    state_offer offer;
  };
  enum class standing : std::uint8_t { open, chosen, failed };

  /// @param donors in order of preference.
  /// @param epoch_min no state before it is of use.
  /// @param rounded honest states differ, too, because the donors' updates round differently: if
  /// enough donors offer one, and none is that of most, the first one is chosen. Nobody is a
  /// dissenter.
  state_vote(std::vector<peer_record> donors, epoch_id epoch_min, state_comparison compare,
             bool rounded = false);

  /// The donors to ask now; they count as asked.
  [[nodiscard]] std::vector<question> next();
  /// The answer of a donor that was asked. An offer below the epoch that was asked for counts as a
  /// refusal.
  void offered(const peer_id& donor, const state_offer& offer);
  /// The donor has refused, or cannot be reached.
  void refused(const peer_id& donor, failure why);
  /// The donors that were asked take their time: the others are asked, too.
  void hurry();

  [[nodiscard]] standing outcome() const { return standing_; }
  /// REQUIRES: chosen.
  [[nodiscard]] const state_offer& chosen() const { return *chosen_; }
  /// Those that offer it, in order of preference. REQUIRES: chosen.
  [[nodiscard]] std::deque<vote> voters() const;
  /// Those that offer another state of the same epoch. REQUIRES: chosen.
  [[nodiscard]] std::vector<peer_id> dissenters() const;
  /// The donors that are there, as far as is known.
  [[nodiscard]] std::size_t present() const;
  /// REQUIRES: failed.
  [[nodiscard]] const failure& why() const { return why_; }

private:
  enum class phase : std::uint8_t { idle, due, asked, offered, refused, absent };
  struct entry {
    peer_record donor;
    phase at = phase::idle;
    epoch_id epoch_min;
    state_offer offer;
  };

  [[nodiscard]] bool compares() const { return compare_ != state_comparison::none; }
  [[nodiscard]] std::size_t needed() const;
  [[nodiscard]] std::size_t count(phase at) const;
  [[nodiscard]] bool choose();
  [[nodiscard]] bool align();
  void decide();
  entry* find(const peer_id& donor);

  [[nodiscard]] bool same_state(const state_offer& a, const state_offer& b) const;

  std::vector<entry> donors_;
  state_comparison compare_;
  bool rounded_;
  bool begun_ = false;
  std::uint32_t alignments_ = 0;
  standing standing_ = standing::open;
  std::optional<state_offer> chosen_;
  failure why_{ec::no_donor, "no peer offers its state"};
};

} // namespace waggle
