#pragma once

#include <map>
#include <string>
#include <utility>

#include "actors/actors.hpp"

namespace waggle {

/// Which service receives which messages of other peers.
class service_table {
public:
  void set(const serve& msg);
  /// The service that a message of a peer is for; null: there is none (yet). REQUIRES of an event:
  /// it is not one that the link itself handles.
  [[nodiscard]] service_actor find(const wire::request& what) const;
  [[nodiscard]] service_actor find(const wire::event& what) const;

private:
  [[nodiscard]] service_actor find(service_topic topic, std::string prefix) const;

  /// By topic and prefix. Messages under another prefix, or none, go to the one with an empty
  /// prefix, which refuses them with the reason.
  std::map<std::pair<service_topic, std::string>, service_actor> services_;
};

} // namespace waggle
