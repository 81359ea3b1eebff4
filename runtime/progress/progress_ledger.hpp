#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/history.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Where a peer stands in the run's history, as it says itself.
struct history_claim {
  history line;
  std::uint32_t group_size = 0; // members of its group, itself included; 0: it is in none
  bool ready = false;           // it holds the state of its epoch, and can give it
  bool provisional = false;     // it went on without most of its group
  /// It trains nothing and reduces for those who cannot reach each other. Holds no state of its
  /// own: `ready` says that it can pass one on.
  bool auxiliary = false;
  /// Samples of the whole swarm per epoch, for auxiliaries, which are not told; 0: not said.
  std::uint64_t target_batch_size = 0;

  friend bool operator==(const history_claim&, const history_claim&) = default;
};

/// How far one peer is, as it says itself.
struct progress_report {
  peer_record who;
  epoch_id epoch;
  std::uint64_t samples = 0; // accumulated toward `epoch`
  double samples_per_second = 0;
  swarm_time time{};
  digest parameters; // of the parameters that the epoch began with; zero: not known
  history_claim claim;

  friend bool operator==(const progress_report&, const progress_report&) = default;
};

/// The value of a progress record. The peer's id and key are the record's subkey and owner.
std::string encode_progress(const progress_report& report);
/// Fails with ec::malformed for anything that `encode_progress` would not write, also for numbers
/// out of range. Later versions may append fields.
result<progress_report> decode_progress(const public_key& owner, const peer_id& who,
                                        std::string_view value);

/// The view of the run that one peer has.
struct swarm_progress {
  struct peer {
    peer_record who;
    epoch_id epoch;
    std::uint64_t samples = 0;
    double samples_per_second = 0;
    digest parameters;
    history_claim claim;
    swarm_time time{}; // of its report
  };
  epoch_id global_epoch;            // spec/optimizer.md §2.4: E
  std::uint64_t global_samples = 0; // S_reported, ours included
  double samples_per_second = 0;
  double eta_seconds = 0;      // until the target is reached; infinite if never
  double refresh_seconds = 0;  // when to read the others' reports again
  std::uint32_t num_peers = 0; // that train, with a live report, ourselves included
  std::uint32_t num_clients = 0;
  std::uint32_t num_auxiliaries = 0; // with a live report; not of num_peers
  std::uint32_t peers_at_epoch = 0;  // num_peers whose epoch is the global one
  bool ready = false;                // the epoch may be ended now
  bool in_sync = true;               // own epoch ≥ E − 1
  bool parameters_differ = false;    // at the global epoch most peers hold other parameters than we
  std::vector<peer> peers;           // ascending id, ourselves included
  std::vector<peer_record> donors;   // at the global epoch with most peers' parameters, not we
};

struct ledger_options {
  std::uint64_t target_batch_size = 256;
  /// End an epoch only on samples that were reported, not on extrapolated ones (spec §2.4, ≠D).
  bool strict_target = true;
  double expected_drift_peers = 3;
  double expected_drift_rate = 0.2;
  milliseconds refresh_min{500};
  milliseconds refresh_max{10'000};
  milliseconds refresh_default{3'000}; // while nobody else is known
  std::size_t peers_max = 4096;        // more are not remembered
};

/// Folds the last report of every live peer into one view of the run (spec/optimizer.md §2.4,
/// §2.6).
///
/// A report lives until its expiration. A peer behind the newest epoch is live, but its samples do
/// not count: it will resynchronize and contribute to the new epoch instead. Not thread-safe.
class progress_ledger {
public:
  progress_ledger(const peer_id& self, ledger_options options) : self_(self), options_(options) {}

  /// Keeps `report` if it is newer than what is known of the peer. False: it was not.
  bool record(const progress_report& report, swarm_time expiration);
  /// What a peer said over its own link since its last report, `now`. Counts only for the branch
  /// that it reported, and only forwards. True: it was news.
  bool note(const peer_id& peer, epoch_id epoch, const digest& branch, std::uint64_t samples,
            double samples_per_second, swarm_time now);
  /// The peer said goodbye at `time`: older reports of it do not count any more.
  bool forget(const peer_id& peer, swarm_time time, swarm_time expiration);

  /// The view, given what we ourselves would report now (nothing: we only watch).
  [[nodiscard]] swarm_progress view(const std::optional<progress_report>& own,
                                    swarm_time now) const;

  /// The connection to the peer broke: what it reported so far does not count, as nobody should
  /// wait for a peer that was killed. True if it counted before.
  bool lose(const peer_id& peer, swarm_time now, swarm_time expiration);
  /// A lost peer is connected again: its reports count, whatever its clock says.
  void found_again(const peer_id& peer);

  /// Drops what expired. True if a report was among it, so that the view changed.
  bool purge(swarm_time now);
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

private:
  struct entry {
    std::optional<progress_report> report; // nothing: said goodbye, or lost
    swarm_time time{};                     // older reports are not news
    swarm_time expiration{};
    bool lost = false;
  };

  peer_id self_;
  ledger_options options_;
  std::map<peer_id, entry> entries_;
};

} // namespace waggle
