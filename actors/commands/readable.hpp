#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace waggle {

// How commands show values to people: as many digits as matter, with their unit, and nothing that
// can drive a terminal. What is not known, or is no number, is "-".

/// "5,120"
std::string readable_count(std::uint64_t value);
/// Four significant digits: "2.341", "0.003", "5,120", "1.5e-07".
std::string readable_number(double value);
/// "812 B", "12.3 MB", "4.1 GB": powers of ten, as the size of a transfer is told everywhere.
std::string readable_bytes(double bytes);
/// "0.4 s", "42 s", "3 m 20 s", "5 h 4 m", "2 d 7 h".
std::string readable_duration(double seconds);
/// 2.341, as losses are compared.
std::string readable_loss(double value);

/// `text`, which may come from the network, as one ASCII character per column: all others are
/// written as \x1b. At most `length_max` characters (≥ 3); "..." stands for what is left out.
std::string printable(std::string_view text, std::size_t length_max);

/// For logs: keeps UTF-8, escapes control characters and invalid bytes as \x1b. At most about
/// `bytes_max` of `text`; what is left out is counted at the end.
std::string without_control_characters(std::string_view text, std::size_t bytes_max);

} // namespace waggle
