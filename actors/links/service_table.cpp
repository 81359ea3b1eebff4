#include "actors/links/service_table.hpp"

#include <variant>

namespace waggle {

namespace {

struct request_topic {
  service_topic operator()(const wire::dht_ping&) const { return service_topic::dht; }
  service_topic operator()(const wire::dht_find&) const { return service_topic::dht; }
  service_topic operator()(const wire::dht_store&) const { return service_topic::dht; }
  service_topic operator()(const wire::dial_back&) const { return service_topic::dht; }
  service_topic operator()(const wire::join_group&) const { return service_topic::matchmaking; }
  service_topic operator()(const wire::open_state&) const { return service_topic::state; }
  service_topic operator()(const wire::get_state_chunk&) const { return service_topic::state; }
  service_topic operator()(const wire::enter_group&) const { return service_topic::averaging; }
};

struct event_topic {
  using topic = std::optional<service_topic>;
  topic operator()(const wire::goodbye&) const { return std::nullopt; }
  topic operator()(const wire::begin_group&) const { return service_topic::matchmaking; }
  topic operator()(const wire::disband_group&) const { return service_topic::matchmaking; }
  topic operator()(const wire::leave_group&) const { return service_topic::matchmaking; }
  topic operator()(const wire::progress_push&) const { return service_topic::progress; }
  topic operator()(const wire::progress_note&) const { return service_topic::progress; }
  template <class RoundEvent>
  topic operator()(const RoundEvent&) const {
    return service_topic::averaging;
  }
};

struct named_prefix {
  std::string_view operator()(const wire::join_group& x) const { return x.prefix; }
  std::string_view operator()(const wire::begin_group& x) const { return x.plan.prefix; }
  std::string_view operator()(const wire::disband_group& x) const { return x.prefix; }
  std::string_view operator()(const wire::leave_group& x) const { return x.prefix; }
  std::string_view operator()(const wire::enter_group& x) const { return x.prefix; }
  std::string_view operator()(const wire::next_plan& x) const { return x.plan.prefix; }
  template <class Other>
  std::string_view operator()(const Other&) const {
    return {};
  }
};

} // namespace

void service_table::set(const serve& msg) {
  if (msg.prefix.empty())
    by_topic[static_cast<std::size_t>(msg.topic)] = msg.service;
  else
    by_prefix[static_cast<std::size_t>(msg.topic)].insert_or_assign(msg.prefix, msg.service);
  if (!msg.service)
    by_prefix[static_cast<std::size_t>(msg.topic)].erase(msg.prefix);
}

const service_actor& service_table::find(service_topic topic, std::string_view prefix) const {
  const auto& named = by_prefix[static_cast<std::size_t>(topic)];
  auto found = named.find(prefix);
  return found != named.end() ? found->second : by_topic[static_cast<std::size_t>(topic)];
}

std::string_view prefix_of(const wire::request& what) {
  return std::visit(named_prefix{}, what);
}

std::string_view prefix_of(const wire::event& what) {
  return std::visit(named_prefix{}, what);
}

service_topic topic_of(const wire::request& what) {
  return std::visit(request_topic{}, what);
}

std::optional<service_topic> topic_of(const wire::event& what) {
  return std::visit(event_topic{}, what);
}

} // namespace waggle
