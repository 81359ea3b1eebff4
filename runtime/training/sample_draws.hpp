#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/training/sample_ledger.hpp"

namespace waggle {

/// The order of a pass over `samples` samples: shuffled by run and pass, equal on all peers, and
/// without a list of them (a Feistel network over the places, walked until it ends within them).
class sample_order {
public:
  sample_order(std::uint64_t samples, const std::string& run, std::uint64_t pass);
  /// The number of the sample at this place. REQUIRES: place < samples.
  [[nodiscard]] std::uint64_t at(std::uint64_t place) const;

private:
  std::uint64_t samples_;
  unsigned half_bits_;
  std::array<std::uint64_t, 4> keys_{};
};

/// What one peer draws of its ranges (sample_ledger), and where those samples are that no update is
/// known to have: they were drawn for passes that have not ended, or are in the accumulated
/// gradient. Passes are in the order of the draws.
///
///     drawn: | in the gradient | of the pass that runs | ahead, for later ones | in the ranges
///     take() ─┘ claims these    └ pass_ended, refuse    └ offer                 └ draw
///
/// A sample *holds* if it may be claimed: its range is ours, and all samples of the range before it
/// were seen or are drawn and hold. After `follow` some may not. Thread-safe.
class sample_draws {
public:
  /// @param run shuffles the passes; equal on all peers.
  sample_draws(const peer_id& self, std::uint64_t samples, std::string run);

  /// Whether `draw` returns something.
  [[nodiscard]] bool any_left() const;
  /// Whether a pass can be over samples that hold: of those ahead, or that are left.
  [[nodiscard]] bool has_samples() const;
  /// The numbers of the next samples: up to `most`, and none if `of_pass` is not the present pass.
  std::vector<std::uint64_t> draw(std::uint64_t most, std::optional<std::uint64_t> of_pass = {});

  // Of a loop, which draws ahead of its passes, as the workers of a DataLoader do:

  /// Samples that were drawn, and that no pass was over yet.
  [[nodiscard]] std::uint64_t ahead() const;
  /// A pass over the next `samples` ahead has ended, which `pass_ended` or `refuse` will follow.
  /// Returns false, and they are drawn again, unless all of them hold. REQUIRES: they are ahead.
  [[nodiscard]] bool offer(std::uint64_t samples);
  /// The next `samples` ahead, or all there are, are drawn again.
  void put_back(std::uint64_t samples);
  /// What is drawn are blocks of a stream: the next pass is over the next `claims` of them, and its
  /// gradient over the `samples` records in there, which it weighs. `samples` of the other
  /// functions are those records. REQUIRES: samples >= claims > 0.
  void weigh(std::uint64_t samples, std::uint64_t claims);

  // The gradient:

  /// A pass over the next `samples` that were drawn is in the gradient. Returns whether all samples
  /// in there hold; otherwise the gradient must be dropped.
  [[nodiscard]] bool pass_ended(std::uint64_t samples);
  /// A pass over the next `samples` is not in the gradient, and the last `lost` of those in there
  /// were lost with it. They are drawn again, after the other ranges.
  void refuse(std::uint64_t samples, std::uint64_t lost);
  /// The first `samples` in the gradient were dropped. They are drawn again.
  void drop(std::uint64_t samples);

  struct taken {
    std::array<std::uint64_t, sample_ledger::ranges> counts{}; // by range
    bool holds = true;
  };
  /// The first `samples` in the gradient are given to a round. REQUIRES: what was given before is
  /// decided (`follow`), or was taken back.
  taken take(std::uint64_t samples);
  /// What was taken is in no update: it is drawn again.
  void take_back();
  /// What was taken is in no update, and in the gradient again, before the rest.
  void return_taken();

  /// The state has this ledger now. What was taken before is seen if the ledger says so; otherwise
  /// it is drawn again. Returns whether all samples in the gradient hold; otherwise it must be
  /// dropped. REQUIRES: a ledger of as many samples.
  [[nodiscard]] bool follow(const sample_ledger& now);
  [[nodiscard]] sample_ledger ledger() const;
  /// sample_ledger::passes.
  [[nodiscard]] std::uint64_t passes() const;

private:
  /// Samples that were drawn from one range, one after another.
  struct run {
    std::size_t range = 0;
    std::uint64_t begin = 0; // within the range
    std::uint64_t count = 0;
    bool holds = true;
  };

  // REQUIRE: the lock is held.
  std::deque<run> remove(std::int64_t from, std::uint64_t count);
  bool look_again();
  [[nodiscard]] bool range_left() const;
  [[nodiscard]] std::uint64_t count_ahead() const;
  std::uint64_t next_claims(std::uint64_t samples);
  std::uint64_t end_pass(std::uint64_t samples);
  struct weighed_pass {
    std::uint64_t samples = 0;
    std::uint64_t claims = 0;
  };
  std::uint64_t first_claims(std::uint64_t samples, std::deque<weighed_pass>* forgotten = nullptr);

  const peer_id self_;
  const std::string run_;
  mutable std::mutex mutex_;
  // -- guarded by mutex_
  sample_ledger ledger_;
  sample_order order_;
  std::vector<std::size_t> own_; // ranges, in the order in which they are drawn from
  std::array<std::uint64_t, sample_ledger::ranges> next_{}; // within each range, to be drawn
  std::deque<run> given_;                                   // to the round that is not decided
  std::deque<run> drawn_;
  /// Of drawn_, in the gradient. Below 0 while a pass that was taken already has not ended here.
  std::int64_t in_gradient_ = 0;
  /// Of drawn_, behind those in the gradient: of a pass that was offered, and has not ended here.
  std::uint64_t offered_ = 0;
  weighed_pass next_pass_;                  // what `weigh` got
  bool offers_ = false;                     // `offer` was called
  std::deque<weighed_pass> offered_passes_; // those in the gradient, and the one that was offered
  std::deque<weighed_pass> given_passes_;
};

} // namespace waggle
