#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
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
/// Of a page without encryption.
struct web_page {
  endpoint where;
  std::string target; // "/latest/meta-data/spot/instance-action"
};
/// "http://HOST/PATH", "http://HOST:PORT/PATH".
result<web_page> parse_url(std::string_view text);
/// "HOST:PORT,HOST:PORT"; empty is none.
result<std::vector<endpoint>> parse_endpoints(std::string_view text);

/// The path from the root: the process may go to another folder later.
result<std::filesystem::path> absolute_path(const std::filesystem::path& path);

// The texts of values, which the parsers read back. Each value has one.

inline std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(std::uint64_t value);
/// The shortest text that is read back as the same number.
std::string text_of(double value);
std::string text_of(bool value);
std::string text_of(milliseconds value);
std::string text_of(const endpoint& value);
std::string text_of(const std::vector<endpoint>& value);
std::string text_of(const std::filesystem::path& value);
template <class Value>
std::string text_of(const std::optional<Value>& value) {
  return value ? text_of(*value) : std::string{};
}

/// For people: "0.003", "1000000", "1e+30".
std::string plain(double value);

} // namespace waggle
