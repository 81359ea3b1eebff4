#pragma once

// What happens to a peer, for those who watch it: the lines of /api/v1/events, of the event log on
// disk and of `waggle replay`.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/watch/event_types.hpp"

namespace waggle::watch {

/// The list is closed: a line of another type is of a later version. Times are Unix milliseconds of
/// the clock of the peer that wrote the line; a number that is not known is absent.

struct started {
  static constexpr std::string_view type = "start";
  std::string version;
  std::string run;
  std::string role; // trainer, client or node
  std::optional<std::uint64_t> epoch{};
};
struct stopping {
  static constexpr std::string_view type = "stop";
  std::string reason;
};
/// Not the routine change between training and averaging, twice an epoch.
struct phase_changed {
  static constexpr std::string_view type = "phase";
  std::string from;
  std::string to;
  std::string reason;
};
/// At most one a second, which covers all epochs since the one before.
struct epochs_ended {
  static constexpr std::string_view type = "epoch";
  std::uint64_t epoch = 0; // that has begun
  std::uint64_t epochs = 1;
  std::uint64_t samples = 0; // that entered their updates, of this peer
  std::optional<double> loss{};
  std::optional<double> duration_s{};
};

/// One member of a round, as the writer saw it. Milliseconds since the all-reduce began there.
struct round_member {
  peer_id peer;
  bool self = false;
  bool contributed = false;
  bool reduces = false;
  std::optional<std::uint64_t> samples{};
  std::optional<double> first_ms{}; // its contributions to the parts that the writer reduces
  std::optional<double> last_ms{};
  std::optional<double> result_first_ms{}; // the parts of the result that it summed
  std::optional<double> result_last_ms{};
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::optional<double> rtt_ms{};
};
struct round_ended {
  static constexpr std::string_view type = "round";
  round_id round{};
  std::string kind{}; // gradients, params, progress or vector
  std::uint64_t epoch = 0;
  std::string outcome{}; // complete, shrunk, failed
  std::string reason{};
  std::int64_t began = 0;  // t
  double duration_ms = 0;  // of the all-reduce
  double search_ms = 0;    // before it
  double agreement_ms = 0; // of duration_ms
  double recovery_ms = 0;  // of duration_ms, since the first fault
  std::string spans{};     // what the writer did since the round before: recent_time::take_spans
  std::vector<round_member> members{};
};

struct peer_joined {
  static constexpr std::string_view type = "peer_joined";
  peer_id other;
  std::string address;
  std::string role; // client; of others it is not known yet
  std::string link; // tcp, shared memory
};
struct peer_left {
  static constexpr std::string_view type = "peer_left";
  peer_id other;
  std::string reason;
  double after_s = 0;
  bool ordered = false; // it said goodbye
  std::string code{};   // of `reason`
};
struct member_lost {
  static constexpr std::string_view type = "member_lost";
  peer_id other;
  round_id round;
  std::string reason;
};
struct excluded {
  static constexpr std::string_view type = "excluded";
  peer_id other;
  round_id round;
  std::string reason;
};
/// Of a state: it was sent to `other`, or received from it.
struct state_moved {
  bool sent = false; // the type: state_sent or state_received
  std::optional<peer_id> other{};
  std::uint64_t bytes = 0;
  double duration_s = 0;
  std::optional<std::uint64_t> epoch{};
  std::string outcome;
};
struct checkpoint {
  static constexpr std::string_view type = "checkpoint";
  std::uint64_t epoch = 0;
  std::uint64_t bytes = 0;
  double duration_s = 0;
  std::string outcome;
};
/// Something that a sentence describes.
struct remark {
  enum class what : std::uint8_t { disbelieved, history, split, notice, clock, restart };
  what type = what::notice;
  std::string text;
  std::optional<double> number{}; // clock: milliseconds
};
struct refused {
  static constexpr std::string_view type = "refused";
  std::uint64_t count = 0; // since the line before
  std::string reason;      // of most of them
};
/// A peer slows the rounds down, for another reason than in the line before, or does not any more.
struct slow {
  static constexpr std::string_view type = "slow";
  peer_id other;
  std::string cause; // slow_cause; empty: not any more
  std::string text;
  std::optional<double> number{};
};

using event =
  std::variant<started, stopping, phase_changed, epochs_ended, round_ended, peer_joined, peer_left,
               member_lost, excluded, state_moved, checkpoint, remark, refused, slow>;

event_kind kind_of(const event& what);

/// All of the line but its number: "\"t\":1,\"type\":\"start\",…". Texts, which may come from other
/// peers, are valid UTF-8 afterwards, escaped, and cut to text_bytes_max; numbers that are not
/// finite are absent.
std::string fields_of(const event& what, const peer_id& writer, swarm_time now);
constexpr std::size_t text_bytes_max = 512;

/// Unix milliseconds.
std::int64_t unix_ms(swarm_time t);

} // namespace waggle::watch
