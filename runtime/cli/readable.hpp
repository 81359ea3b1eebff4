#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace waggle {

// How commands format values for people: with the significant digits and the unit, and without
// terminal control characters. A value that is unknown or not a number is "-".

/// "5,120"
std::string readable_count(std::uint64_t value);
/// Four significant digits: "2.341", "0.003", "5,120", "1.5e-07".
std::string readable_number(double value);
/// "812 B", "12.3 MB", "4.1 GB": powers of ten.
std::string readable_bytes(double bytes);
/// "0.4 s", "42 s", "3 m 20 s", "5 h 4 m", "2 d 7 h".
std::string readable_duration(double seconds);
/// "2.341": three decimals, so that losses can be compared.
std::string readable_loss(double value);
/// "41 %", of 0.41.
std::string readable_share(double value);

/// `text`, which may come from the network, as one ASCII character per column: all others are
/// written as \x1b. At most `length_max` characters (≥ 3); "..." replaces the omitted end.
std::string printable(std::string_view text, std::size_t length_max);

/// For logs: keeps UTF-8, escapes control characters and invalid bytes as \x1b. At most about
/// `bytes_max` of `text`; the number of omitted bytes is appended.
std::string without_control_characters(std::string_view text, std::size_t bytes_max);

} // namespace waggle
