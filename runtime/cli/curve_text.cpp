#include "runtime/cli/curve_text.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "runtime/cli/readable.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t width = 64; // columns
constexpr std::size_t height = 12;
constexpr std::size_t label_width = 10;
constexpr std::size_t points_read_max = 10'000;
constexpr double exact_max = 1LL << 53;

struct point {
  double epoch = 0;
  double value = 0;
};

/// Those whose value is known.
std::vector<point> points_of(const json& document, std::string_view name) {
  auto epochs = field(document, "epoch");
  auto values = field(document, std::string{name}.c_str());
  std::vector<point> out;
  if (!epochs.is_array() || !values.is_array())
    return out;
  auto count = std::min({epochs.size(), values.size(), points_read_max});
  for (std::size_t i = 0; i < count; ++i) {
    if (!epochs[i].is_number() || !values[i].is_number())
      continue;
    point next{epochs[i].get<double>(), values[i].get<double>()};
    bool ascends =
      next.epoch >= 0 && next.epoch <= exact_max && (out.empty() || next.epoch > out.back().epoch);
    if (ascends && std::isfinite(next.value))
      out.push_back(next);
  }
  return out;
}

std::string epoch_text(double epoch) {
  return readable_count(static_cast<std::uint64_t>(epoch));
}

std::string at_epoch(double value, double epoch) {
  return readable_number(value) + " at epoch " + epoch_text(epoch);
}

/// The mean of the points in each column, a row of it for each line, the highest first.
std::vector<std::string> plot(const std::vector<point>& points, double low, double high) {
  auto first = points.front().epoch;
  auto epochs = std::max(points.back().epoch - first, 1.0);
  std::vector<double> sums(width);
  std::vector<std::size_t> counts(width);
  for (const auto& each : points) {
    auto column = static_cast<std::size_t>((each.epoch - first) / epochs * (width - 1) + 0.5);
    sums[column] += each.value;
    ++counts[column];
  }
  std::vector<std::string> rows(height, std::string(width, ' '));
  for (std::size_t i = 0; i < width; ++i) {
    if (counts[i] == 0)
      continue;
    auto mean = sums[i] / static_cast<double>(counts[i]);
    auto up = high > low ? std::clamp((mean - low) / (high - low), 0.0, 1.0) : 0.5;
    rows[height - 1 - static_cast<std::size_t>(up * (height - 1) + 0.5)][i] = '*';
  }
  return rows;
}

} // namespace

std::string curve_text(const json& document, std::string_view name) {
  auto points = points_of(document, name);
  if (points.empty())
    return {};
  auto [least, most] = std::ranges::minmax_element(points, {}, &point::value);
  auto low = least->value;
  auto high = most->value;
  auto rows = plot(points, low, high);
  std::string out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto label = i == 0                 ? readable_number(high)
                 : i + 1 == rows.size() ? readable_number(low)
                                        : std::string{};
    rows[i].erase(rows[i].find_last_not_of(' ') + 1);
    out += fmt::format("{:>{}} |{}\n", label, label_width, rows[i]);
  }
  out += std::string(label_width + 1, ' ') + "+" + std::string(width, '-') + "\n";
  auto from = epoch_text(points.front().epoch);
  out += fmt::format("{:>{}}{}{:>{}}\n", "", label_width + 2, from, epoch_text(points.back().epoch),
                     width - std::min(width, from.size()));
  out += fmt::format("{}: first {}", name, at_epoch(points.front().value, points.front().epoch));
  auto best = field(field(document, "best"), std::string{name}.c_str());
  auto value = number_in(best, "value");
  auto epoch = number_in(best, "epoch");
  if (value && epoch && *epoch >= 0 && *epoch <= exact_max)
    out += ", best " + at_epoch(*value, *epoch);
  return out + ", last " + at_epoch(points.back().value, points.back().epoch) + "\n";
}

} // namespace waggle
