#include "runtime/cli/readable.hpp"

#include <algorithm>
#include <cmath>

#include <spdlog/fmt/fmt.h>

namespace waggle {

namespace {

constexpr const char* unknown = "-";

void append_escaped(std::string& out, char c) {
  out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
}

/// The length of the UTF-8 character at the start of `text`; 0 if it is invalid or a control.
std::size_t shown_character(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  auto first = byte(0);
  if (first < 0x80)
    return first >= 0x20 && first != 0x7f ? 1 : 0;
  std::size_t size = first >= 0xc2 && first < 0xe0   ? 2
                     : first >= 0xe0 && first < 0xf0 ? 3
                     : first >= 0xf0 && first < 0xf5 ? 4
                                                     : 0;
  if (size == 0 || text.size() < size)
    return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0U) != 0x80)
      return 0;
  // Too long an encoding (a surrogate, beyond Unicode's end); U+0080 to U+009F are controls, too:
  // U+009B begins an escape sequence.
  bool bad = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0)
             || (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90)
             || (first == 0xc2 && byte(1) < 0xa0);
  // Line separators, and characters that reverse the text after them: U+2028 to U+202E, U+2066 to
  // U+2069.
  bad = bad || (first == 0xe2 && byte(1) == 0x80 && byte(2) >= 0xa8 && byte(2) <= 0xae)
        || (first == 0xe2 && byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);
  return bad ? 0 : size;
}

} // namespace

std::string readable_count(std::uint64_t value) {
  auto digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

std::string readable_number(double value) {
  if (!std::isfinite(value))
    return unknown;
  auto size = std::abs(value);
  // Whole numbers in this range are exact, and so is their rounding.
  if (size >= 1000 && size < 1e15)
    return (value < 0 ? "-" : "") + readable_count(static_cast<std::uint64_t>(std::llround(size)));
  return fmt::format("{:.4g}", value);
}

std::string readable_bytes(double bytes) {
  if (!std::isfinite(bytes) || bytes < 0)
    return unknown;
  constexpr const char* units[] = {" B", " kB", " MB", " GB", " TB", " PB"};
  std::size_t unit = 0;
  // 999.95 and more would be shown as 1000.0
  for (; bytes >= 999.95 && unit + 1 < std::size(units); bytes /= 1000)
    ++unit;
  if (bytes >= 1e6)
    return unknown; // implausibly large
  return fmt::format("{:.{}f}{}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

std::string readable_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12)
    return unknown;
  if (seconds < 9.95)
    return fmt::format("{:.1f} s", seconds);
  auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  if (whole < 60)
    return std::to_string(whole) + " s";
  if (whole < 3600)
    return fmt::format("{} m {} s", whole / 60, whole % 60);
  if (whole < 86400)
    return fmt::format("{} h {} m", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {} h", whole / 86400, whole / 3600 % 24);
}

std::string readable_loss(double value) {
  if (!std::isfinite(value))
    return unknown;
  return std::abs(value) < 1e5 ? fmt::format("{:.3f}", value) : fmt::format("{:.3g}", value);
}

std::string readable_share(double value) {
  return std::isfinite(value) ? fmt::format("{:.0f} %", 100 * value) : unknown;
}

std::string printable(std::string_view text, std::size_t length_max) {
  std::string out;
  for (char c : text) {
    if (out.size() > length_max)
      break;
    if (c >= ' ' && c <= '~')
      out += c;
    else
      append_escaped(out, c);
  }
  if (out.size() > length_max) {
    out.resize(length_max - std::min<std::size_t>(3, length_max));
    out += "...";
  }
  return out;
}

std::string without_control_characters(std::string_view text, std::size_t bytes_max) {
  std::string out;
  out.reserve(std::min(text.size(), bytes_max));
  std::size_t at = 0;
  while (at < text.size() && at < bytes_max) {
    auto size = shown_character(text.substr(at));
    if (size == 0)
      append_escaped(out, text[at]);
    else
      out += text.substr(at, size);
    at += std::max<std::size_t>(size, 1);
  }
  if (at < text.size())
    out += "... (" + readable_count(text.size() - at) + " bytes more)";
  return out;
}

} // namespace waggle
