#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/allreduce/round_engine.hpp"
#include "tests/runtime/allreduce/swarm/round_net.hpp"

namespace waggle::testing {

enum class fault_kind : std::uint8_t {
  crash,     // the process dies, its connections are reset
  vanish,    // the machine dies: only silence tells
  nap,       // frozen, but too briefly for anybody to mind
  freeze,    // frozen until all have noticed
  hiccup,    // the network splits, too briefly for anybody to mind
  partition, // the network splits until all have noticed
  half_open, // one direction of one link is dead
  cut,       // one link is dead
  reset,     // one connection is reset, and made again
  slow,      // one link takes long for a part, but not as long as the stall timeout
  stuck,     // one link takes several stall timeouts for a part
  cancel,    // the caller takes its step back
  break_off, // a bug: the round ends at one member, without a word
  leave,     // the member does not begin, and says so
  absent,    // the member does not begin, and says nothing
};
constexpr std::size_t fault_kinds = 15;
const char* to_string(fault_kind kind);

/// What is counted until a fault strikes.
enum class moment : std::uint8_t {
  delivery, // of anything
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
  std::uint64_t count = 0; // strikes after so many
  std::size_t who = 0;
  std::size_t other = 0;       // the other end, where the fault is a link's
  member_set side;             // of a split
  round_net::duration lasts{}; // of a freeze or a split
  double bytes_per_second = 0; // of a slow link
};
std::string describe(const fault& f);

/// One round, whole: who takes part with what, over which network, and what goes wrong.
struct round_scenario {
  std::uint64_t seed = 0;
  round_plan plan;
  std::vector<double> weights;
  std::vector<round_net::duration> begins; // when each member begins
  round_config config;
  round_net::options net;
  std::vector<fault> faults;
  bool offload = false; // sums are done later, as by other threads
};

/// 4 to 16 members of all modes, with weights, codecs and an aggregator, and up to three faults at
/// random points, the delicate ones more often. A pure function of the seed.
round_scenario random_scenario(std::uint64_t seed);

/// How long the survivors may take from this fault on, beside the transfer itself.
round_net::duration recovery_bound(const fault& f, const round_scenario& scene);

} // namespace waggle::testing
