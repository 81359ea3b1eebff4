#pragma once

#include <map>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"

namespace waggle {

struct donor_config {
  bool shares = true; // false: every request is refused
  /// Between two of them, other bodies get their turn on the link: what a round waits for, at most.
  std::uint32_t chunk_bytes = 1U << 18U;
  /// Peers that may download at once; another one is refused with ec::overloaded and asks another
  /// donor, unless a host has more downloads than that one would have: then it loses one of them.
  /// An offer, by which newcomers compare the donors, does not count as a download.
  std::size_t downloads_max = 4;
  /// Offers that may be in preparation at once, one for each peer; of them, for peers of one host.
  std::size_t offers_max = 64;
  std::size_t offers_per_host_max = 32;
  /// A reader that has not asked for a chunk that is new to it for this long makes room for others.
  /// A snapshot that nobody reads is dropped when no chunk of it was requested for this long.
  milliseconds snapshot_idle{30'000};
  milliseconds snapshot_timeout{30'000}; // for the source to make one
  milliseconds left_timeout{120'000};    // for it to get what a peer leaves with us
};

/// To itself: drop snapshots that are not being downloaded.
struct drop_idle_snapshots {};

using state_donor_base = state_donor_actor::extend<caf::reacts_to<drop_idle_snapshots>>::base;

/// Serves the state of `source` to newcomers in chunks. A snapshot is immutable and shared by all
/// who download it; the trainer goes on meanwhile.
class state_donor final : public state_donor_base {
public:
  state_donor(caf::actor_config& cfg, node_context ctx, donor_config config,
              snapshot_source_actor source);

  const char* name() const override { return "state-donor"; }
  void on_exit() override { source_ = nullptr; }

protected:
  behavior_type make_behavior() override;

private:
  struct reader {
    digest content;          // of the snapshot that it reads
    std::string host;        // empty: not known
    steady_time progressed;  // its offer, or its last chunk that was new to it
    bool downloads = false;  // it has asked for a chunk
    std::vector<bool> given; // by chunk
    steady_time opened;
  };
  struct snapshot {
    state_snapshot content;
    steady_time used; // the last request of any peer
  };

  [[nodiscard]] steady_time now() const { return clock().now(); }
  [[nodiscard]] bool is_read(const digest& content) const;
  [[nodiscard]] bool is_downloaded(const digest& content) const;
  bool take_slot(const peer_id& reader, const std::string& host);
  void make_room(const digest& newest);
  caf::result<outbound_answer> answer(const inbound_call& msg);
  caf::result<outbound_answer> open(const wire::open_state& wanted, const peer_record& from,
                                    const std::string& host);
  wire::state_header offer(state_snapshot made, const peer_id& reader, const std::string& host);
  void close(const peer_id& reader);
  caf::result<outbound_answer> read(const wire::get_state_chunk& what, const peer_id& reader,
                                    const std::string& host);
  void drop_idle();

  const node_context ctx_;
  const donor_config config_;
  snapshot_source_actor source_;
  std::map<digest, snapshot> snapshots_;   // by content hash
  std::map<peer_id, reader> readers_;      // so that a peer reads at most one snapshot
  std::map<peer_id, std::string> opening_; // the source makes them a snapshot; and their hosts
};

} // namespace waggle
