#include "runtime/config/values.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "runtime/core/try.hpp"
#include "runtime/training/named_number.hpp"

namespace waggle {

namespace {

failure no(const std::string& what) {
  return {ec::bad_config, what};
}

struct unit {
  std::string_view name;
  double factor;
};

template <std::size_t N>
std::optional<double> with_unit(std::string_view text, const unit (&units)[N]) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0)
    return std::nullopt;
  auto name = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& u : units)
    if (u.name == name)
      return number * u.factor;
  return std::nullopt;
}

} // namespace

result<std::uint64_t> parse_whole(std::string_view text) {
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty())
    return no("is no whole number");
  return value;
}

result<double> parse_real(std::string_view text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    return no("is too large, or too close to 0, for a number");
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return no("is no finite number");
  return value;
}

result<bool> parse_yes_no(std::string_view text) {
  if (text == "true" || text == "1" || text == "yes" || text == "on")
    return true;
  if (text == "false" || text == "0" || text == "no" || text == "off")
    return false;
  return no("is neither true nor false");
}

result<milliseconds> parse_duration(std::string_view text) {
  // Thirty years: deadlines are counted in nanoseconds, and 2^63 ns are 292 years.
  constexpr double longest_ms = 1e12;
  constexpr unit units[] = {{"ms", 1}, {"s", 1e3}, {"", 1e3}, {"m", 60e3}, {"h", 3600e3}};
  auto value = with_unit(text, units);
  if (!value || *value > longest_ms)
    return no("is no duration: write 500ms, 5s, 2m or 1h");
  return milliseconds{static_cast<std::int64_t>(std::llround(*value))};
}

result<std::uint64_t> parse_bytes(std::string_view text) {
  constexpr unit units[] = {
    {"", 1}, {"B", 1}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
  auto value = with_unit(text, units);
  if (!value || *value > 1e15)
    return no("is no size: write 65536, 64KiB, 16MiB or 1GiB");
  return static_cast<std::uint64_t>(*value);
}

result<endpoint> parse_address(std::string_view text) {
  auto where = parse_endpoint(text);
  if (!where) {
    // The detail begins with the text in quotes; the caller prints that itself.
    auto why = where.error().detail;
    auto quoted = text.size() + 3;
    return no(why.size() > quoted ? why.substr(quoted) : why);
  }
  return *where;
}

result<web_page> parse_url(std::string_view text) {
  constexpr std::string_view scheme = "http://";
  constexpr std::size_t longest = 2048;
  auto is_visible = [](char c) { return c > ' ' && c < '\x7f'; };
  if (!text.starts_with(scheme) || text.size() > longest || !std::ranges::all_of(text, is_visible))
    return no("is no address of a page: write http://HOST/PATH or http://HOST:PORT/PATH");
  text.remove_prefix(scheme.size());
  auto slash = std::min(text.find('/'), text.size());
  std::string host{text.substr(0, slash)};
  if (host.find(':', host.rfind(']') + 1) == std::string::npos)
    host += ":80";
  WAGGLE_TRY(where, parse_address(host));
  return web_page{*where, slash < text.size() ? std::string{text.substr(slash)} : "/"};
}

result<std::vector<endpoint>> parse_endpoints(std::string_view text) {
  std::vector<endpoint> found;
  while (!text.empty()) {
    auto comma = std::min(text.find(','), text.size());
    auto one = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (one.empty())
      continue;
    auto where = parse_address(one);
    if (!where)
      return no("names '" + std::string{one} + "', which " + where.error().detail);
    found.push_back(*where);
  }
  return found;
}

result<std::filesystem::path> absolute_path(const std::filesystem::path& path) {
  std::error_code error;
  auto found = std::filesystem::absolute(path, error);
  if (error)
    return no("is relative to a folder that cannot be found: " + error.message());
  return found;
}

std::string text_of(std::uint64_t value) {
  return std::to_string(value);
}

std::string text_of(double value) {
  return shortest_text(value);
}

std::string text_of(bool value) {
  return value ? "true" : "false";
}

std::string text_of(milliseconds value) {
  auto ms = value.count();
  if (ms == 0)
    return "0";
  return ms % 1'000 == 0 ? std::to_string(ms / 1'000) + "s" : std::to_string(ms) + "ms";
}

std::string text_of(const endpoint& value) {
  return to_string(value);
}

std::string text_of(const std::vector<endpoint>& value) {
  std::string all;
  for (const auto& where : value)
    all += (all.empty() ? "" : ",") + to_string(where);
  return all;
}

std::string text_of(const std::filesystem::path& value) {
  return value.string();
}

std::string plain(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", value);
  return text;
}

} // namespace waggle
