#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/allreduce/round_engine.hpp"
#include "tests/runtime/allreduce/swarm/round_net.hpp"

namespace waggle::testing {

enum class fault_kind : std::uint8_t {
  crash,     // the process dies, its connections are reset
  vanish,    // the machine dies: only silence shows it
  nap,       // frozen, but too briefly to be noticed
  freeze,    // frozen until all have noticed
  hiccup,    // the network splits, too briefly to be noticed
  partition, // the network splits until all have noticed
  half_open, // one direction of one link is dead
  cut,       // one link is dead
  reset,     // one connection is reset and made again
  slow,      // one link takes long for a part, but not as long as the stall timeout
  stuck,     // one link takes several stall timeouts for a part
  cancel,    // the caller cancels its round
  break_off, // a bug: the round ends at one member without a message
  leave,     // the member does not begin, and reports that
  absent,    // the member does not begin, and is silent
};
constexpr std::size_t fault_kinds = 15;
const char* to_string(fault_kind kind);

/// The event that is counted until a fault strikes.
enum class moment : std::uint8_t {
  delivery, // of any message
  prepared, // deliveries of round_prepared
  proposal, // deliveries of round_propose
  promise,  // deliveries of round_promise
  finish,   // members that have finished
};
constexpr std::size_t moments = 5;

/// Stands for the member that finished last.
constexpr std::size_t the_finisher = 64;

struct fault {
  fault_kind kind = fault_kind::crash;
  moment when = moment::delivery;
  std::uint64_t count = 0; // strikes after this many
  std::size_t who = 0;
  std::size_t other = 0;       // the other end, if the fault concerns a link
  member_set side{};           // of a split
  round_net::duration lasts{}; // of a freeze or a split
  double bytes_per_second = 0; // of a slow link
};
std::string describe(const fault& f);

/// A complete round: the members and their inputs, the network, and the faults.
struct round_scenario {
  std::uint64_t seed = 0;
  round_plan plan;
  std::vector<double> weights;
  std::vector<round_net::duration> begins; // when each member begins
  round_config config;
  round_net::options net;
  std::vector<fault> faults;
  bool offload = false; // sums are computed later, as by other threads
  /// When the vector of each member is filled, counted from its beginning, in steps from its end to
  /// its front; empty: at once.
  std::vector<round_net::duration> fills;
  std::optional<std::size_t> spoiled; // whose vector turns out to be of no use half way
  std::optional<std::size_t> stalled; // whose vector is never filled beyond that
};

/// 4 to 16 members of all modes, with weights, codecs and an aggregator, and up to three faults at
/// random points; points at which the protocol is most vulnerable are more frequent. A pure
/// function of the seed.
round_scenario random_scenario(std::uint64_t seed);

/// How long the survivors may take from this fault on, in addition to the transfer itself.
round_net::duration recovery_bound(const fault& f, const round_scenario& scene);

/// Of the body of a result: all contributions, with some codecs.
inline std::size_t result_bytes(const round_plan& plan, codec_id codec, std::size_t elements) {
  auto times = sends_contributions_back(codec) ? plan.members.size() : 1;
  return times * encoded_size(codec, elements);
}

} // namespace waggle::testing
