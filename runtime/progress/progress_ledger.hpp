#pragma once

#include <array>
#include <cstddef>
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

/// The position in the run's history that a peer claims.
struct history_claim {
  history past;
  std::uint32_t group_size = 0; // members of its group, including itself; 0: it is in none
  bool ready = false;           // it holds the state of its epoch and can send it
  bool provisional = false;     // it continued without most of its group
  /// It does not train, and reduces for peers that cannot reach each other. It has no state of its
  /// own: `ready` means that it can relay one.
  bool auxiliary = false;
  /// It does not train either, but follows the run with a model of its own, which it can send.
  bool reduces_only = false;
  /// Samples of the whole swarm per epoch, for auxiliaries, which are not configured with it; 0:
  /// not reported.
  std::uint64_t target_batch_size = 0;

  /// Whether it is in a group that trains this history.
  [[nodiscard]] bool trains(const digest& branch) const {
    return group_size > 0 && past.branch == branch;
  }
  friend bool operator==(const history_claim&, const history_claim&) = default;
};

/// Numbers from 0 to 65.5, to a thousandth, that a peer reports for its row on pages; most are
/// shares. A new one is a name at the end, because they travel in this order, and where it is set.
class peer_shares {
public:
  static constexpr std::array<std::string_view, 12> names{
    // of the last minute, in the order of `activities`; the agreement is a part of the rounds
    "time.pass", "time.update", "time.round", "time.search", "time.download", "time.idle",
    "time.agreement",
    // in the order of machine_use
    "machine.memory", "machine.disk", "machine.load", "machine.gpu", "machine.gpu_memory"};
  static constexpr std::size_t first_of_machine = 7;

  void set(std::size_t place, double value);
  [[nodiscard]] std::optional<double> at(std::size_t place) const;
  /// Those of a later version are ignored.
  void read_thousandths(std::size_t place, std::uint16_t value) {
    if (place < values_.size())
      values_[place] = value;
  }
  [[nodiscard]] const auto& thousandths() const { return values_; }

  friend bool operator==(const peer_shares&, const peer_shares&) = default;

private:
  static constexpr std::uint16_t none = 65'535;
  std::array<std::uint16_t, names.size()> values_ = [] {
    std::array<std::uint16_t, names.size()> all{};
    all.fill(none);
    return all;
  }();
};

/// What a peer reports of its work, for people. Decides nothing: shown as claimed.
struct peer_vitals {
  std::optional<std::uint8_t> phase; // trainer_phase; one of a later version counts as not reported
  std::optional<float> loss;         // finite; smoothed
  std::optional<float> pass_seconds; // 0 to vitals_seconds_max
  std::optional<float> samples_per_second; // used ones, by wall time; finite, not negative
  peer_shares shares{};
  /// What it says that it was started with, for people who compare: the version, and options that
  /// may differ between peers, as lines "name=value" of printable ASCII.
  std::string settings{};
  /// Newcomers ask those first for the state whose number is highest; none: it gives it to nobody.
  std::optional<float> share_priority = 0.0F;

  friend bool operator==(const peer_vitals&, const peer_vitals&) = default;
};
constexpr float vitals_seconds_max = 1e6;
constexpr std::size_t settings_bytes_max = 480;

/// Parameters in a few numbers, for peers whose updates round differently (README.md). A value
/// enters one of the sums, with a sign that is random but the same on all peers, and the sums are
/// divided by the length of all values.
struct parameter_sketch {
  std::uint64_t rounding = 0;   // learner::rounding of the peer; 0: not known
  std::array<float, 16> sums{}; // finite

  [[nodiscard]] double distance_to(const parameter_sketch& other) const;
  /// Whether both roundings are known, and not the same.
  [[nodiscard]] bool rounds_unlike(const parameter_sketch& other) const {
    return rounding != other.rounding && rounding != 0 && other.rounding != 0;
  }
  friend bool operator==(const parameter_sketch&, const parameter_sketch&) = default;
};

/// The progress that a peer reports of itself.
struct progress_report {
  peer_record who{};
  epoch_id epoch{};
  std::uint64_t samples = 0;     // accumulated toward `epoch`
  double samples_per_second = 0; // while it computes; 0: not known
  swarm_time time{};
  digest parameters{}; // of the parameters at the beginning of the epoch; zero: not known
  history_claim claim{};
  peer_vitals vitals{};
  parameter_sketch sketch{}; // of `parameters`

  friend bool operator==(const progress_report&, const progress_report&) = default;
};

/// The value of a progress record. The peer's id and key are the record's subkey and owner.
std::string encode_progress(const progress_report& report);
/// Fails with ec::malformed for anything that `encode_progress` would not write, including numbers
/// out of range. Later versions may append fields.
result<progress_report> decode_progress(const public_key& owner, const peer_id& who,
                                        std::string_view value);

/// The view that one peer has of the run.
struct swarm_progress {
  using peer = progress_report;
  epoch_id global_epoch{}; // E, the newest one: ours, or of a peer that is no client
  double samples_per_second = 0;
  double eta_seconds = 0;      // until the target is reached; infinite if never
  double refresh_seconds = 0;  // until the others' reports are read again
  std::uint32_t num_peers = 0; // that train, with a live report, including ourselves
  std::uint32_t num_clients = 0;
  std::uint32_t num_auxiliaries = 0; // with a live report; not counted in num_peers
  std::vector<peer> peers{};         // in ascending order of id, including ourselves
};

struct ledger_options {
  std::uint64_t target_batch_size = 256;
  double expected_drift_peers = 3;
  double expected_drift_rate = 0.2;
  milliseconds refresh_min{500};
  milliseconds refresh_max{10'000};
  milliseconds refresh_default{3'000}; // while no other peer is known
  std::size_t peers_max = 4096;        // that are remembered
  std::size_t unconnected_max = 1024;  // of them that only the DHT knows; also of those that left
};

/// How a report came here, and what its peer is to this one. Decides who is remembered if there is
/// no room for all.
struct report_source {
  bool member = false;    // its peer has averaged with this one
  bool connected = false; // its peer is connected
  std::string host{};     // address of the sender; empty: it was read from the DHT
};

/// Combines the last report of every live peer into one view of the run.
///
/// A report is live until its expiration. A peer behind the newest epoch is live, but its samples
/// do not count: it will resynchronize and contribute to the new epoch instead.
///
/// Anybody can make up peers, so there are limits: for all, and for each of the two lowest ranks,
/// because making up a peer that has no link costs next to nothing.
///
///     gone        left or was lost, or its link ended before its report was read
///     found       its report was read from the DHT
///     connected
///     member      has averaged with this peer
///
/// A report beyond the limit of its rank takes the place of another peer of that rank, and one
/// beyond the limit of all that of a peer of the lowest rank that there is: of the host with the
/// most peers, the one without a sign for longest. A report of a still lower rank is dropped. So
/// peers of the run are never forgotten for strangers, and those of one host never take more than
/// an equal share. Not thread-safe.
class progress_ledger {
public:
  progress_ledger(const peer_id& self, ledger_options options) : self_(self), options_(options) {}

  /// Keeps `report` if it is newer than the known report of the peer and there is room. Returns
  /// whether it was kept.
  bool record(const progress_report& report, swarm_time expiration, const report_source& from = {});
  /// Progress that a peer sent over its own link since its last report, received at `now`. Accepted
  /// only for the branch that it reported, and only if it is ahead of the known progress. Returns
  /// whether it was accepted.
  bool note(const peer_id& peer, epoch_id epoch, const digest& branch, std::uint64_t samples,
            double samples_per_second, swarm_time now);
  /// The peer left at `time`: its older reports do not count any more.
  bool forget(const peer_id& peer, swarm_time time, swarm_time expiration);

  /// The view of the run. `own`: what this peer would report now; nothing if it only observes.
  [[nodiscard]] swarm_progress view(const std::optional<progress_report>& own,
                                    swarm_time now) const;
  /// The `global_epoch` of this view.
  [[nodiscard]] epoch_id global_epoch(const std::optional<progress_report>& own,
                                      swarm_time now) const;

  /// The connection to the peer broke: its reports so far do not count, because no peer should wait
  /// for one that was killed. Returns whether a report counted before.
  bool lose(const peer_id& peer, swarm_time now, swarm_time expiration);
  /// The peer is connected. If it was lost, its reports count again, regardless of its clock.
  void found_again(const peer_id& peer);

  /// Drops expired entries. Returns whether a report was among them, so that the view changed.
  bool purge(swarm_time now);
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  /// Reports that were dropped or forgotten so far because there was no room.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

private:
  enum class rank : std::uint8_t { gone, found, connected, member };
  using peers_by_age = std::map<std::uint64_t, peer_id>; // by `heard`
  using hosts_by_name = std::map<std::string, peers_by_age>;
  struct entry {
    std::optional<progress_report> report; // nothing: the peer left or was lost
    swarm_time time{};                     // older reports are ignored
    swarm_time expiration{};
    bool lost = false;
    report_source from{};
    std::uint64_t heard = 0; // the number of the last sign of it

    [[nodiscard]] rank standing() const;
  };

  void enter_rank(const peer_id& who, const entry& e);
  void leave_rank(const entry& e);
  /// Changes what is known of a peer, because there was a sign of it.
  template <class Change>
  void update(const peer_id& who, entry& e, Change change);
  [[nodiscard]] bool is_full(rank which) const;
  /// False: all others are worth more than the newcomer.
  bool make_room(rank of_newcomer, const std::string& host);
  /// Forgets one peer of a rank that has some. @param newcomers_host counts one more peer.
  void forget_one(rank which, const std::optional<std::string>& newcomers_host);
  /// Clients never advance the global epoch: no peer could download a state from them. Nor do
  /// auxiliaries without clients.
  [[nodiscard]] static bool advances(const progress_report& report);

  peer_id self_;
  ledger_options options_;
  std::map<peer_id, entry> entries_;
  std::map<rank, hosts_by_name> ranks_; // without empty ones
  std::map<rank, std::size_t> held_;    // peers of each rank
  std::uint64_t signs_ = 0;
  std::uint64_t dropped_ = 0;
};

} // namespace waggle
