#include "runtime/training/schedule_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>

#include "runtime/core/named.hpp"
#include "runtime/core/nearest.hpp"

namespace waggle {

namespace {

using form = schedule_number::form;

constexpr schedule_number length{"epochs", form::whole, 1, 0x1p40, {}};

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' '))
    text.remove_prefix(1);
  while (text.ends_with(' '))
    text.remove_suffix(1);
  return text;
}

/// The pieces between the separators; at least one.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    auto at = text.find(separator);
    pieces.push_back(trimmed(text.substr(0, at)));
    if (at == std::string_view::npos)
      return pieces;
    text.remove_prefix(at + 1);
  }
}

/// The shortest text that is read back as the same number.
std::string exact(double value) {
  char text[64];
  auto end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

/// For people.
std::string rounded(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

/// "every of step".
std::string name_of(const schedule_row& row, std::string_view number) {
  return std::string{number} + " of " + std::string{row.name};
}

std::vector<std::string> known_numbers(const schedule_row& row) {
  auto names = names_in(row.numbers);
  names.emplace_back(length.name);
  return names;
}

result<double> parse_number(const schedule_row& row, const schedule_number& of,
                            std::string_view text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  auto gives = "gives " + name_of(row, of.name) + " the value '" + std::string{text} + "', ";
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return bad(gives + "which is no finite number");
  if (value < of.low || value > of.high)
    return bad(gives + "which must lie between " + exact(of.low) + " and " + exact(of.high));
  if (of.what != form::real && value != std::floor(value))
    return bad(gives + "which must be a whole number");
  return value;
}

using values = std::map<std::string_view, std::string_view>;

result<values> parse_values(const schedule_row& row, std::string_view text) {
  values found;
  auto names = known_numbers(row);
  for (auto setting : split(text, ',')) {
    auto equals = setting.find('=');
    auto name = setting.substr(0, equals);
    if (std::find(names.begin(), names.end(), name) == names.end())
      return bad("gives " + std::string{row.name} + " the unknown number '" + std::string{name}
                 + "': it takes " + joined(names, " and ") + "; the nearest is "
                 + nearest(name, names));
    if (equals == std::string_view::npos)
      return bad("gives " + name_of(row, name) + " no value: write " + std::string{name} + "=N");
    if (!found.emplace(name, setting.substr(equals + 1)).second)
      return bad("sets " + name_of(row, name) + " twice");
  }
  return found;
}

result<std::vector<double>> parse_one(const schedule_row& row, const schedule_number& of,
                                      const values& given) {
  auto found = given.find(of.name);
  if (found == given.end() && !of.initial)
    return bad("leaves out " + name_of(row, of.name) + ": write " + std::string{row.name} + ":"
               + std::string{of.name} + (of.what == form::list ? "=30+60" : "=N"));
  if (found == given.end())
    return std::vector<double>{*of.initial};
  std::vector<double> all;
  for (auto text : of.what == form::list ? split(found->second, '+') : std::vector{found->second}) {
    auto value = parse_number(row, of, text);
    if (!value)
      return value.error();
    all.push_back(*value);
  }
  std::sort(all.begin(), all.end()); // the order of a list has no meaning
  return all;
}

result<schedule_part> parse_part(std::string_view text) {
  auto colon = text.find(':');
  auto name = text.substr(0, colon);
  const auto* row = find_named(schedule_table(), name);
  if (row == nullptr)
    return bad("has the unknown schedule '" + std::string{name} + "': use "
               + listed(schedule_table()) + "; the nearest is "
               + nearest(name, names_in(schedule_table())));
  values given;
  if (colon != std::string_view::npos) {
    auto parsed = parse_values(*row, text.substr(colon + 1));
    if (!parsed)
      return parsed.error();
    given = std::move(*parsed);
  }
  schedule_part part{row, {}};
  for (const auto& number : row->numbers) {
    auto parsed = parse_one(*row, number, given);
    if (!parsed)
      return parsed.error();
    part.numbers.insert(part.numbers.end(), parsed->begin(), parsed->end());
  }
  if (auto found = given.find(length.name); found != given.end()) {
    auto parsed = parse_number(*row, length, found->second);
    if (!parsed)
      return parsed.error();
    part.epochs = static_cast<std::uint64_t>(*parsed);
  }
  return part;
}

/// The epochs of all parts but the last.
std::uint64_t epochs_before_last(const std::vector<schedule_part>& parts) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i)
    sum += parts[i].epochs.value_or(0);
  return sum;
}

/// Impossible combinations of the numbers of a part.
status check_part(const schedule_part& part, double peak) {
  std::string name{part.row->name};
  double own = 0; // epochs that its warm-up and decay take
  for (const auto& number : part.row->numbers) {
    if (number.name == "warmup" || number.name == "decay")
      own += part[number.name];
    if (number.name == "floor" && part["floor"] > peak)
      return bad("--schedule: floor of " + name + " is " + exact(part["floor"])
                 + ", which is above --lr " + exact(peak) + ": the rate would rise");
  }
  if (name == plateau_name && part["factor"] == 1)
    return bad("--schedule: factor of plateau is 1: the rate would never fall; write factor=0.1");
  if (name == plateau_name && part["absolute"] == 0 && part["threshold"] >= 1)
    return bad("--schedule: threshold of plateau is " + exact(part["threshold"])
               + ": no loss above 0 falls by so much of the best one; for an absolute threshold "
                 "write absolute=1");
  if (part.row->ends && own > static_cast<double>(*part.epochs))
    return bad("--schedule: warm-up and decay of " + name + " take " + exact(own)
               + " epochs, but it lasts only " + std::to_string(*part.epochs));
  return done{};
}

bool warms_up(const schedule_part& part) {
  return find_named(part.row->numbers, "warmup") != nullptr;
}

} // namespace

result<std::vector<schedule_part>> parse_schedule(std::string_view text) {
  std::vector<schedule_part> parts;
  for (auto piece : split(text, '/')) {
    auto part = parse_part(piece);
    if (!part)
      return part.error();
    parts.push_back(std::move(*part));
  }
  return parts;
}

std::string text_of(const std::vector<schedule_part>& parts) {
  std::string all;
  for (const auto& part : parts) {
    all.append(all.empty() ? "" : "/").append(part.row->name);
    char before = ':';
    auto add = [&](std::string_view name, const std::string& value) {
      all.append(1, std::exchange(before, ',')).append(name).append("=").append(value);
    };
    for (std::size_t i = 0; i < part.row->numbers.size(); ++i) {
      const auto& number = part.row->numbers[i];
      auto value = exact(part.numbers[i]);
      for (auto next = i + 1; number.what == form::list && next < part.numbers.size(); ++next)
        value.append("+").append(exact(part.numbers[next]));
      add(number.name, value);
    }
    if (part.epochs)
      add(length.name, std::to_string(*part.epochs));
  }
  return all;
}

result<lr_schedule> make_schedule(std::vector<schedule_part> parts, double peak,
                                  std::uint64_t warmup_epochs, std::uint64_t total_epochs) {
  if (!parts.empty() && warmup_epochs > 0 && warms_up(parts.front()))
    return bad("--warmup-epochs cannot stand before --schedule "
               + std::string{parts.front().row->name}
               + ", which has a warm-up of its own: set its number warmup instead");
  auto before = epochs_before_last(parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto& part = parts[i];
    std::string name{part.row->name};
    bool last = i + 1 == parts.size();
    if (!last && name == plateau_name)
      return bad("--schedule: plateau goes on until the run ends, so nothing can follow it: put it "
                 "last");
    if (!last && !part.epochs)
      return bad("--schedule: " + name + " needs its length, because "
                 + std::string{parts[i + 1].row->name} + " follows it: write " + name
                 + ":epochs=N");
    if (last && part.epochs && !part.row->ends)
      return bad("--schedule: " + name + " goes on until the run ends: leave out its epochs");
    if (last && part.row->ends && !part.epochs) {
      if (total_epochs == 0)
        return bad("--schedule " + name + " needs its length: write " + name
                   + ":epochs=N, or set --epochs");
      if (parts.size() > 1 && warmup_epochs + before >= total_epochs)
        return bad("--schedule: before " + name + ", " + std::to_string(warmup_epochs + before)
                   + " epochs are taken, and --epochs is only " + std::to_string(total_epochs));
      part.epochs = total_epochs - std::min(total_epochs, warmup_epochs + before);
    }
    if (auto fits = check_part(part, peak); !fits)
      return fits.error();
  }
  return lr_schedule{std::move(parts), peak, warmup_epochs};
}

std::string agreed_text(std::vector<schedule_part> parts, std::uint64_t warmup_epochs,
                        std::uint64_t total_epochs) {
  if (!parts.empty() && parts.back().epochs
      && warmup_epochs + epochs_before_last(parts) + *parts.back().epochs == total_epochs)
    parts.back().epochs.reset();
  return text_of(parts);
}

std::string schedule_help() {
  std::string all;
  for (const auto& row : schedule_table()) {
    std::vector<std::string> numbers;
    for (const auto& number : row.numbers)
      numbers.push_back(std::string{number.name}
                        + (number.initial              ? "=" + rounded(*number.initial)
                           : number.what == form::list ? "=30+60"
                                                       : "=N"));
    if (row.ends)
      numbers.emplace_back("epochs");
    all.append(all.empty() ? "" : "; ").append(row.name);
    if (!numbers.empty())
      all.append(" (").append(joined(numbers, ", ")).append(")");
    all.append(": ").append(row.help);
  }
  return all;
}

} // namespace waggle
