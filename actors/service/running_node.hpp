#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/caf_error.hpp"
#include "actors/service/machine.hpp"
#include "waggle/averager.hpp"

namespace waggle {

/// What the classes of include/waggle/ hold of a peer. Thread-safe: nothing but `left` changes.
class running_node {
public:
  // In this order: the actor system ends last.
  own_system_config config;
  std::unique_ptr<caf::actor_system> own_system; // null: the caller's
  caf::actor_system* system = nullptr;
  std::vector<std::string> averagers; // their names
  started_node node;
  std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> left{false};

  /// A request from a thread of the caller, which waits at most `timeout`.
  template <class Answer, class Handle, class Question>
  result<Answer> ask(const Handle& receiver, milliseconds timeout, Question question) const {
    result<Answer> out = failure{ec::shutting_down, "this peer has left the run"};
    if (*ended)
      return out;
    caf::scoped_actor asker{*system};
    asker->request(receiver, timeout, std::move(question))
      .receive([&](const Answer& answer) { out = answer; },
               [&](const caf::error& why) { out = from_caf(why); });
    return out;
  }
};

// What node, vector_averager and dht ask the actors, and make of the answers. Shared with
// simulations, which ask in another way.

/// The configuration of such a peer. Fails with a sentence.
result<node_config> node_config_of(const node_options& options);

/// The number of the averager `name`; fails with ec::bad_config.
result<std::size_t> averager_named(const std::vector<std::string>& names, const std::string& name);
const averager_actor& averager_of(const node_parts& parts, std::size_t which);
average_vector average_question(std::span<const float> values, const average_options& options,
                                vector_pool& vectors);
/// Copies the mean to `values`, unless the round failed.
result<average_report> average_report_of(const round_report& report, std::span<float> values);

constexpr auto dht_margin = 1s; // the router has the same deadline, and should end first
/// Fails if the record would be refused.
result<record> open_record(const node_context& ctx, const std::string& key,
                           const std::string& subkey, const std::string& value,
                           milliseconds lifetime);
status put_status(const result<store_report>& answer, const std::string& key);
result<std::map<std::string, std::string>> values_of(const result<found_records>& answer);

} // namespace waggle
