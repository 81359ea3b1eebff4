#include "actors/links/service_table.hpp"

#include <variant>

namespace waggle {

namespace {

struct topic_of {
  service_topic operator()(const wire::dht_ping&) const { return service_topic::dht; }
  service_topic operator()(const wire::dht_find&) const { return service_topic::dht; }
  service_topic operator()(const wire::dht_store&) const { return service_topic::dht; }
  service_topic operator()(const wire::dial_back&) const { return service_topic::dht; }
  service_topic operator()(const wire::introduce&) const { return service_topic::dht; }
  service_topic operator()(const wire::reach_note&) const { return service_topic::dht; }
  service_topic operator()(const wire::punch_note&) const { return service_topic::dht; }
  service_topic operator()(const wire::members_note&) const { return service_topic::dht; }
  service_topic operator()(const wire::open_state&) const { return service_topic::state; }
  service_topic operator()(const wire::get_state_chunk&) const { return service_topic::state; }
  service_topic operator()(const wire::join_group&) const { return service_topic::matchmaking; }
  service_topic operator()(const wire::begin_group&) const { return service_topic::matchmaking; }
  service_topic operator()(const wire::disband_group&) const { return service_topic::matchmaking; }
  service_topic operator()(const wire::leave_group&) const { return service_topic::matchmaking; }
  service_topic operator()(const wire::progress_push&) const { return service_topic::progress; }
  service_topic operator()(const wire::progress_note&) const { return service_topic::progress; }
  template <class OfRounds>
  service_topic operator()(const OfRounds&) const {
    return service_topic::averaging;
  }
};

/// That a message about a group names; empty for others.
constexpr auto prefix_of = [](const auto& x) -> std::string {
  if constexpr (requires { x.prefix; })
    return x.prefix;
  else if constexpr (requires { x.plan.prefix; })
    return x.plan.prefix;
  else
    return {};
};

} // namespace

void service_table::set(const serve& msg) {
  if (msg.service)
    services_.insert_or_assign({msg.topic, msg.prefix}, msg.service);
  else
    services_.erase({msg.topic, msg.prefix});
}

service_actor service_table::find(service_topic topic, std::string prefix) const {
  auto found = services_.find({topic, std::move(prefix)});
  if (found == services_.end())
    found = services_.find({topic, {}});
  return found == services_.end() ? service_actor{} : found->second;
}

service_actor service_table::find(const wire::request& what) const {
  return find(std::visit(topic_of{}, what), std::visit(prefix_of, what));
}

service_actor service_table::find(const wire::event& what) const {
  return find(std::visit(topic_of{}, what), std::visit(prefix_of, what));
}

} // namespace waggle
