#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

#include "actors/caf_error.hpp"
#include "actors/caller_thread.hpp"
#include "actors/service/averager_table.hpp"
#include "actors/service/machine.hpp"
#include "actors/service/state_publisher.hpp"
#include "actors/service/state_search.hpp"
#include "runtime/core/folder_lock.hpp"
#include "waggle/averager.hpp"
#include "waggle/dht.hpp"

namespace waggle {

constexpr milliseconds timeout_max = std::chrono::hours{24 * 365};

/// Fails with ec::bad_config if a caller's `timeout` cannot be one.
status check_timeout(milliseconds timeout, const std::string& name);

/// Why an actor of a peer did not answer. One that has ended says nothing: then the peer has left.
inline failure why_unanswered(const caf::error& error) {
  auto why = from_caf(error);
  if (why.code == ec::shutting_down && why.detail.empty())
    why.detail = "this peer has left the run";
  return why;
}

/// What the classes of include/waggle/ hold of a peer. Thread-safe.
class running_node {
public:
  // In this order: the actor system ends last.
  own_system_config config;
  std::unique_ptr<caf::actor_system> own_system; // null: the caller's
  caf::actor_system* system = nullptr;
  std::shared_ptr<averager_table> averagers = std::make_shared<averager_table>();
  std::shared_ptr<const run_agreement> agreement; // null: none
  std::mutex lock_mutex;
  std::unique_ptr<folder_lock> lock; // null: it stores nothing, or has left
  milliseconds shutdown_timeout{5'000};
  started_node node;
  std::mutex states_mutex;
  state_publisher_actor states; // guarded by states_mutex; null: nothing was donated

  /// A request from a thread of the caller, which waits at most `timeout`.
  template <class Answer, class Handle, class Question>
  result<Answer> ask(const Handle& receiver, milliseconds timeout, Question question) const {
    result<Answer> out = failure{ec::shutting_down, "this peer has left the run"};
    if (node.board->has_ended())
      return out;
    timeout = std::clamp(timeout, milliseconds{0}, timeout_max); // CAF throws, or overflows
    caller_actor asker{*system};
    auto failed = [&](const caf::error& why) { out = why_unanswered(why); };
    if constexpr (std::is_same_v<Answer, caf::unit_t>) // CAF sends nothing, but expects a unit
      asker->request(caf::actor_cast<caf::actor>(receiver), timeout, std::move(question))
        .receive([&] { out = caf::unit; }, failed);
    else
      asker->request(receiver, timeout, std::move(question))
        .receive([&](const Answer& answer) { out = answer; }, failed);
    return out;
  }
};

// What node, averager and dht ask the actors, and make of the answers. Shared with
// simulations, which ask in another way.

/// The configuration of such a peer. Fails with a sentence.
result<node_config> node_config_of(const node_options& options);

/// The configuration of an averager. Fails with a sentence that names the option.
/// @param tensors their description; empty: one vector.
result<node_config::averaging_parts> averaging_parts_of(const averager_options& given,
                                                        const run_agreement* agreement,
                                                        bool client_mode,
                                                        const std::string& tensors = {});
/// The averagers that the node has been started with.
std::shared_ptr<averager_table> averagers_of(const node_options& options, const node_parts& parts);
/// With all but the values.
average_vector average_question(const average_options& options);
/// Fails if the round did.
result<average_report> average_report_of(const round_report& report);

constexpr auto dht_margin = 1s; // the router has the same deadline, and should end first
/// Fails if the record would be refused. @param owner null: it is open.
result<record> application_record(const node_context& ctx, const std::string& key,
                                  const std::string& subkey, const std::string& value,
                                  milliseconds lifetime, const identity* owner = nullptr);
constexpr auto publish_timeout = 60s; // hashing a large state
/// Gives the state to peers that ask, or tells them that it does not.
status publish(running_node& peer, publish_state what);
const state_publisher_actor& publisher_of(running_node& peer); // starts it
result<fetched_version> fetch_published(running_node& peer, state_query wanted);
status check_donation(std::uint64_t version, std::size_t bytes);
status check_state_name(const std::string& name);
status put_status(const result<store_report>& answer, const std::string& key);
std::map<std::string, dated_value> dated_values_of(const found_records& answer);
result<std::map<std::string, std::string>> values_of(const result<found_records>& answer);

} // namespace waggle
