#include "runtime/config/fault_point.hpp"

#include "runtime/config/values.hpp"

namespace waggle {

result<fault_point> parse_fault_point(std::string_view text) {
  using moment = fault_point::moment;
  const failure wrong{ec::bad_config,
                      "is not one of sent:K, received:K, result:K, prepared, committed"};
  if (text == "prepared")
    return fault_point{moment::prepared, 1};
  if (text == "committed")
    return fault_point{moment::committed, 1};
  auto colon = text.find(':');
  if (colon == std::string_view::npos)
    return wrong;
  auto name = text.substr(0, colon);
  auto count = parse_whole(text.substr(colon + 1));
  if (!count || *count == 0)
    return failure{ec::bad_config, "counts from 1, as in sent:1"};
  if (name == "sent")
    return fault_point{moment::sent, *count};
  if (name == "received")
    return fault_point{moment::received, *count};
  if (name == "result")
    return fault_point{moment::result, *count};
  return wrong;
}

} // namespace waggle
