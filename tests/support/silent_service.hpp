#pragma once

#include "actors/actors.hpp"

namespace waggle::testing {

/// A peer that answers no request.
inline service_actor::behavior_type silent_service(service_actor::pointer self) {
  return {
    [self](const inbound_call&) -> caf::result<outbound_answer> {
      return self->make_response_promise<outbound_answer>();
    },
    [](const inbound_event&) {},
  };
}

} // namespace waggle::testing
