#include "actors/caf_error.hpp"

#include <caf/exit_reason.hpp>
#include <caf/sec.hpp>

namespace waggle {

failure from_caf(const caf::error& why) {
  if (why.category() == error_category) {
    std::string detail;
    if (why.context().match_elements<std::string>())
      detail = why.context().get_as<std::string>(0);
    return {ec_from_wire(why.code()), std::move(detail)};
  }
  if (why == caf::sec::request_timeout)
    return {ec::timeout, {}};
  if (why == caf::sec::request_receiver_down || why == caf::exit_reason::user_shutdown)
    return {ec::shutting_down, {}};
  return {ec::internal, to_string(why)};
}

} // namespace waggle
