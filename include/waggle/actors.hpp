#pragma once

// The parts of a peer as actors, for the actors of a service: messages in place of calls that wait.
// The peer itself: waggle/control.hpp. Link waggle::actors.
//
//     auto table = waggle::dht_of(node);
//     self->request(*table, 11s, waggle::get_values{"members"})
//       .then([](const waggle::values_found& found) { … },
//             [](const caf::error& why) { … waggle::why_failed(why) … });
//
// Each actor ends with its peer, which those that monitor or link it notice, or when nobody holds a
// handle any more. Ask with a deadline. An actor that starts a node, or destroys one that has not
// left (leave_run), waits meanwhile: spawn it detached.

#include <cstddef>
#include <string>
#include <vector>

#include "waggle/control.hpp"
#include "waggle/dht.hpp"
#include "waggle/state.hpp"
#include "waggle/step.hpp"

namespace waggle {

/// The reason in an error of these actors, as the calls give it.
failure why_failed(const caf::error& error);

/// See dht::put.
struct put_value {
  std::string key;
  std::string subkey;
  std::string value;
  std::chrono::milliseconds lifetime{3'600'000};
  std::chrono::milliseconds timeout{10'000};
};
/// See dht::get_dated.
struct get_values {
  std::string key;
  std::chrono::milliseconds timeout{10'000};
};
struct values_found {
  std::map<std::string, dated_value> by_subkey;
};
using dht_actor = caf::typed_actor<caf::replies_to<put_value>::with<done>,
                                   caf::replies_to<get_values>::with<values_found>>;
/// These fail with ec::shutting_down after the peer has left.
result<dht_actor> dht_of(const node& peer);

/// Command: one step (averager::step), of these values, or without any of the averager's tensors,
/// which hold the mean before the answer: write them only between steps.
struct run_step {
  average_options how;
  std::vector<float> values{};
};
struct step_ended {
  average_report report;
  std::vector<float> values; // the mean; none: it is in the tensors
};
/// Command: with average_options::require_trigger, the round may begin, with the values that the
/// tensors have now, or that were given.
struct allow_step {};
/// Command: the step that runs fails with ec::cancelled; the group goes on without this peer.
struct stop_step {};
using averaging_actor =
  caf::typed_actor<caf::replies_to<run_step>::with<step_ended>,
                   caf::replies_to<allow_step>::with<done>, caf::reacts_to<stop_step>>;
/// The averager of this name. Fails with ec::bad_config if there is none.
result<averaging_actor> averager_of(const node& peer, const std::string& name);

/// See shared_state::donate.
struct donate_state {
  std::string name;
  std::uint64_t version = 0;
  std::vector<std::byte> bytes;
};
/// See shared_state::fetch.
struct fetch_version {
  std::string name;
  std::uint64_t version_min = 0;
  std::chrono::milliseconds timeout{60'000};
  std::uint64_t bytes_max = 1ULL << 30U;
};
using state_actor = caf::typed_actor<caf::replies_to<donate_state>::with<done>,
                                     caf::replies_to<fetch_version>::with<fetched_version>>;
result<state_actor> state_of(const node& peer);

} // namespace waggle

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::done)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::put_value)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::get_values)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::values_found)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::run_step)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::step_ended)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::allow_step)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::stop_step)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::donate_state)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::fetch_version)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::fetched_version)
