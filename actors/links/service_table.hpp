#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "actors/actors.hpp"

namespace waggle {

/// Which service receives which messages of other peers.
struct service_table {
  std::array<service_actor, service_topics> by_topic; // null: not served (yet)
  /// Of averaging and matchmaking: by prefix. Messages under another prefix go to the one in
  /// `by_topic`, which refuses them with the reason.
  std::array<std::map<std::string, service_actor, std::less<>>, service_topics> by_prefix;

  void set(const serve& msg);
  /// @param prefix as `prefix_of` returns it. Null: no service.
  [[nodiscard]] const service_actor& find(service_topic topic, std::string_view prefix) const;
};

/// The service that a request or event of a peer is for; nothing for what the link itself handles.
service_topic topic_of(const wire::request& what);
std::optional<service_topic> topic_of(const wire::event& what);
/// The prefix that a message about a group names; empty for others.
std::string_view prefix_of(const wire::request& what);
std::string_view prefix_of(const wire::event& what);

} // namespace waggle
