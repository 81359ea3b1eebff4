#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

// Parsers for the values that users write. Each fails with ec::bad_config and half a sentence ("is
// no duration: write 500ms, 5s, 2m or 1h") that follows the option's name.

result<std::uint64_t> parse_whole(std::string_view text);
result<double> parse_real(std::string_view text);
result<bool> parse_yes_no(std::string_view text);
/// "500ms", "5s", "2m", "1h"; a bare number means seconds.
result<milliseconds> parse_duration(std::string_view text);
/// "65536", "64KiB", "16MiB", "1GiB".
result<std::uint64_t> parse_bytes(std::string_view text);
/// "HOST:PORT".
result<endpoint> parse_address(std::string_view text);
/// "HOST:PORT,HOST:PORT"; empty is none.
result<std::vector<endpoint>> parse_endpoints(std::string_view text);

} // namespace waggle
